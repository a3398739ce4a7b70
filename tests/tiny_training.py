"""A whole training run on a tiny model: built from plain values, also as a process of its own under torchrun.

python tests/tiny_training.py SPEC.json     {"directory": …, "source": …, further keywords of `tiny_trainer`}
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from safetensors.torch import load_file
from torch import Tensor

from supertrainer.core.run_directory import RunDirectory
from tiny_models import tiny_texts

LABELS = ("bad", "fair", "good")
KWARGS: dict[str, Any] = {
    "per_device_train_batch_size": 4,
    "per_device_eval_batch_size": 8,
    "num_train_epochs": 2,
    "learning_rate": 1e-3,
    "lr_scheduler_type": "constant_with_warmup",
    "warmup_steps": 2,
    "weight_decay": 0.01,
    "logging_steps": 1,
    "eval_strategy": "no",
    "save_strategy": "no",
    "disable_tqdm": True,
}


def weights(run: Path) -> dict[str, Tensor]:
    """The weights that a run was left with: all of them, or those of its adapter."""
    [file] = (run / "model").glob("*model.safetensors")
    return load_file(file)


def distance(one: dict[str, Tensor], other: dict[str, Tensor], start: dict[str, Tensor]) -> float:
    """How far two runs are apart, as a share of how far they moved; over all weights."""
    assert one.keys() == other.keys()
    apart = sum(float((one[name] - other[name]).double().square().sum()) for name in one)
    moved = sum(float((one[name] - start[name]).double().square().sum()) for name in one)
    assert moved > 0
    return (apart / moved) ** 0.5


def write_rows(path: Path, count: int, *, seed: int = 0) -> Path:
    """Texts of mixed length with a label that depends on their first word, as JSON lines."""
    lines = []
    for text in tiny_texts(count, seed=seed):
        label = LABELS[int(text.split()[0].removeprefix("w")) % 3]
        lines.append(json.dumps({"text": text, "label": label}))
    path.parent.mkdir(exist_ok=True)
    aside = path.with_suffix(f".{os.getpid()}")  # processes that train together make the same file at the same time
    aside.write_text("\n".join(lines) + "\n")
    aside.replace(path)
    return path


TAGS = ("O", "B-LOC", "I-LOC", "B-PER", "I-PER")


def label_of(task: str, words: list[str]) -> Any:
    """What a head is to learn of a text: a function of its words' numbers."""
    numbers = [int(word.removeprefix("w")) for word in words]
    match task:
        case "multi_label":
            return [name for place, name in enumerate(LABELS) if any(number % 5 == place for number in numbers)]
        case "regression":
            return sum(numbers) / len(numbers) / 10
        case "token_classification":
            tags = ["O" if number % 3 else f"B-{('LOC', 'PER')[number % 2]}" for number in numbers]
            return [
                f"I-{before[2:]}" if tag == "O" and number % 2 and before != "O" else tag
                for before, tag, number in zip(["O", *tags], tags, numbers, strict=False)
            ]
        case _:
            return LABELS[numbers[0] % 3]


def write_head_rows(path: Path, task: str, count: int, *, seed: int = 0) -> Path:
    """Rows for any head, as JSON lines."""
    lines = []
    for text in tiny_texts(count, seed=seed):
        words = text.split()
        shown = words if task == "token_classification" else text
        lines.append(json.dumps({"text": shown, "label": label_of(task, words)}))
    path.parent.mkdir(parents=True, exist_ok=True)
    aside = path.with_suffix(f".{os.getpid()}")
    aside.write_text("\n".join(lines) + "\n")
    aside.replace(path)
    return path


def tiny_metric(task: str, label_names: Any) -> Any:
    """The metric of a head, with its default main scalar."""
    from supertrainer.metrics import masked_lm, multi_label, regression, schema, tokens

    match task:
        case "multi_label":
            return multi_label.MultiLabelMetric(schema.MultiLabelMetricConfig(_target_="x"), label_names=label_names)
        case "regression":
            return regression.RegressionMetric(schema.RegressionMetricConfig(_target_="x"))
        case "token_classification":
            return tokens.TokenMetric(schema.TokenMetricConfig(_target_="x"), label_names=label_names)
        case _:
            return masked_lm.MaskedLmMetric(schema.MaskedLmMetricConfig(_target_="x"))


def head_trainer(
    directory: Path | str,
    source: Path | str,
    task: str,
    *,
    rows: int = 22,
    validation: int = 9,
    dataset: dict[str, Any] | None = None,
    model: dict[str, Any] | None = None,
    training_kwargs: dict[str, Any] | None = None,
    seed: int = 7,
    **trainer: Any,
) -> Any:
    """A `BertTrainer` of one head on 22 rows of a made-up language, 8 a step."""
    from supertrainer.data.bert import BertDataset
    from supertrainer.data.schema import BertDatasetConfig
    from supertrainer.metrics.classification import ClassificationMetric
    from supertrainer.metrics.schema import ClassificationMetricConfig
    from supertrainer.models.bert import BertModel
    from supertrainer.models.schema import BertModelConfig
    from supertrainer.trainers.bert import BertTrainer
    from supertrainer.trainers.schema import BertTrainerConfig, NoTrackerConfig
    from supertrainer.trainers.trackers import NoTracker

    run = RunDirectory(Path(directory))
    run.path.mkdir(parents=True, exist_ok=True)
    data = run.path.parent / f"data-{task}-{rows}-{validation}"
    if not (data / "validation.jsonl").exists():
        write_head_rows(data / "train.jsonl", task, rows)
        write_head_rows(data / "validation.jsonl", task, validation, seed=1)
    settings = {"on_repeated_across_splits": "drop", **(dataset or {})}
    read = BertDataset(BertDatasetConfig(_target_="x", source=str(data), **settings), seed=seed, task=task)
    if task == "sequence_classification":
        metric: Any = ClassificationMetric(ClassificationMetricConfig(_target_="x"), label_names=read.label_names)
    else:
        metric = tiny_metric(task, read.label_names)
    values = {"global_batch_size": 8, "training_kwargs": {**KWARGS, **(training_kwargs or {})}, **trainer}
    return BertTrainer(
        BertTrainerConfig(_target_="x", **values),
        run=run,
        model=BertModel(BertModelConfig(_target_="x", source=str(source), task=task, **(model or {}))),
        dataset=read,
        metric=metric,
        tracker=NoTracker(NoTrackerConfig(_target_="x")),
        seed=seed,
    )


def tiny_trainer(
    directory: Path | str,
    source: Path | str,
    *,
    rows: int = 22,
    validation: int = 9,
    training_kwargs: dict[str, Any] | None = None,
    config_overrides: dict[str, Any] | None = None,
    tensorboard: bool = False,
    main: str = "macro_f1",
    seed: int = 7,
    attempt: int = 1,
    **trainer: Any,
) -> Any:
    """A `BertTrainer` on 22 rows of a made-up language, 8 a step."""
    from supertrainer.data.bert import BertDataset
    from supertrainer.data.schema import BertDatasetConfig
    from supertrainer.metrics.classification import ClassificationMetric
    from supertrainer.metrics.schema import ClassificationMetricConfig
    from supertrainer.models.bert import BertModel
    from supertrainer.models.schema import BertModelConfig
    from supertrainer.trainers.bert import BertTrainer
    from supertrainer.trainers.schema import BertTrainerConfig, NoTrackerConfig, TensorBoardTrackerConfig
    from supertrainer.trainers.trackers import NoTracker, TensorBoardTracker

    run = RunDirectory(Path(directory))
    run.path.mkdir(parents=True, exist_ok=True)
    data = run.path.parent / f"data-{rows}-{validation}"
    if not (data / "validation.jsonl").exists():
        write_rows(data / "train.jsonl", rows)
        write_rows(data / "validation.jsonl", validation, seed=1)
    dataset = BertDataset(
        BertDatasetConfig(_target_="x", source=str(data), labels=LABELS, on_repeated_across_splits="drop"), seed=seed
    )
    tracker = (
        TensorBoardTracker(TensorBoardTrackerConfig(_target_="x"))
        if tensorboard
        else NoTracker(NoTrackerConfig(_target_="x"))
    )
    settings = {"global_batch_size": 8, "training_kwargs": {**KWARGS, **(training_kwargs or {})}, **trainer}
    return BertTrainer(
        BertTrainerConfig(_target_="x", **settings),
        run=run,
        model=BertModel(BertModelConfig(_target_="x", source=str(source), config_overrides=config_overrides or {})),
        dataset=dataset,
        metric=ClassificationMetric(
            ClassificationMetricConfig(_target_="x", main=main, greater_is_better=main != "loss"), label_names=LABELS
        ),
        tracker=tracker,
        seed=seed,
        attempt=attempt,
    )


def killed_after(whole: Path, step: int, run: Path) -> Path:
    """A run directory as a kill after the checkpoint of a step leaves it, in the middle of writing the next."""
    (run / "checkpoints").mkdir(parents=True)
    for folder in sorted((whole / "checkpoints").glob("step-*"))[:step]:
        shutil.copytree(folder, run / "checkpoints" / folder.name)
    lines = (whole / "metrics.jsonl").read_text().splitlines(keepends=True)
    (run / "metrics.jsonl").write_text("".join(lines[: step + 1]) + '{"attempt": 1, "st')
    staged = run / "checkpoints" / ".incoming" / f"checkpoint-{step + 1}"
    staged.mkdir(parents=True)
    (staged / "model.safetensors").write_bytes(b"half")
    return run


@contextlib.contextmanager
def signals(rank: int, step: int, number: int = signal.SIGTERM) -> Iterator[None]:
    """Makes every trainer send its own process a signal in the middle of a step, on one rank."""
    from transformers import TrainerCallback

    from supertrainer.core import distributed
    from supertrainer.trainers import base, session

    class Signalling(TrainerCallback):
        def on_step_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
            if distributed.rank() == rank and state.global_step == step - 1:
                os.kill(os.getpid(), number)

    def build(*args: Any, **kwargs: Any) -> Any:
        built = session.build_session(*args, **kwargs)
        built.trainer.add_callback(Signalling())
        return built

    base.build_session = build
    try:
        yield
    finally:
        base.build_session = session.build_session


def launch(processes: int, specs: list[dict[str, Any]], folder: Path, *, script: str = __file__) -> None:
    """Trains what the specs say under torchrun, in processes of their own."""
    (folder / "specs.json").write_text(json.dumps(specs))
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(processes)]
    started = subprocess.Popen(
        [*torchrun, script, str(folder / "specs.json")],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        start_new_session=True,
    )
    try:
        _, said = started.communicate(timeout=280)
    except subprocess.TimeoutExpired:
        os.killpg(started.pid, signal.SIGKILL)  # its workers too
        raise
    assert started.returncode == 0, said[-9000:]


def main(specs: str) -> None:
    import dataclasses

    import torch

    from supertrainer.core import distributed
    from supertrainer.core.files import write_json

    torch.set_num_threads(1)
    distributed.initialize()
    for spec in json.loads(Path(specs).read_text()):
        killed, signalled = spec.pop("killed", None), spec.pop("signalled", None)
        if killed is not None and distributed.is_main():
            killed_after(Path(killed[0]), killed[1], Path(spec["directory"]))
        distributed.barrier()
        with signals(*signalled) if signalled is not None else contextlib.nullcontext():
            result = (head_trainer if "task" in spec else tiny_trainer)(**spec).train()
        if distributed.is_main():
            write_json(Path(spec["directory"]) / "result.json", dataclasses.asdict(result))
    distributed.shutdown()


if __name__ == "__main__":
    main(sys.argv[1])
