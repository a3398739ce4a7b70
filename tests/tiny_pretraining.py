"""A whole pretraining on a tiny decoder: from plain values, also in processes of its own.

python tests/tiny_pretraining.py SPECS.json     [{"directory": …, further keywords of `pretrainer`}]
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import shutil
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from supertrainer.core import distributed
from supertrainer.core.files import write_json
from supertrainer.core.run_directory import RunDirectory
from supertrainer.data.streams.dataset import StreamDataset
from supertrainer.data.streams.schema import StreamDatasetConfig
from supertrainer.models.distributed_checkpoint import read_tensors
from supertrainer.models.pretrain import DecoderModel
from supertrainer.models.schema import DecoderModelConfig
from supertrainer.trainers.pretrain import PretrainTrainer
from supertrainer.trainers.pretraining import update
from supertrainer.trainers.pretraining.gradients import GradientBuckets
from supertrainer.trainers.pretraining.session import PretrainSession
from supertrainer.trainers.schema import NoTrackerConfig, PretrainTrainerConfig
from supertrainer.trainers.trackers import NoTracker
from tiny_decoders import decoder_tokenizer
from tiny_models import tiny_texts

MODEL: dict[str, Any] = {
    "num_layers": 2,
    "hidden_size": 32,
    "num_heads": 4,
    "num_kv_heads": 2,
    "ffn_size": 48,
    "max_length": 64,
    "tie_embeddings": True,
    "vocab_multiple": 7,  # 105 rows: two processes can't have the same number
    "init_std": 0.1,
}
TRAINER: dict[str, Any] = {
    "global_batch_size": 8,
    "sequence_length": 16,
    "max_steps": 6,
    "learning_rate": 1e-2,
    "schedule": {"name": "constant", "warmup_steps": 2},
    "log_every": 1,
    "save_every": 100,
    "eval_every": 0,
    "eval_rows": 5,
    "keep_last": 99,
}


def write_corpus(folder: Path, *, texts: int = 60) -> Path:
    """A tokenizer and documents of 2 to 20 words; processes that train together write the same at the same time."""
    if not (folder / "texts.jsonl").exists():
        folder.mkdir(parents=True, exist_ok=True)
        aside = folder / f".{os.getpid()}"
        decoder_tokenizer().save_pretrained(aside)
        with contextlib.suppress(OSError):
            aside.rename(folder / "tokenizer")
        shutil.rmtree(aside, ignore_errors=True)
        rows = folder / f".{os.getpid()}.jsonl"
        rows.write_text("".join(f"{json.dumps({'text': text})}\n" for text in tiny_texts(texts)))
        rows.replace(folder / "texts.jsonl")
    return folder


def pretrainer(
    directory: Path | str,
    *,
    texts: int = 60,
    model: dict[str, Any] | None = None,
    dataset: dict[str, Any] | None = None,
    attempt: int = 1,
    seed: int = 7,
    **trainer: Any,
) -> PretrainTrainer:
    """A `PretrainTrainer` on documents of a made-up language, in the folder beside the run."""
    run = RunDirectory(Path(directory))
    run.path.mkdir(parents=True, exist_ok=True)
    corpus = write_corpus(run.path.parent / f"corpus-{texts}", texts=texts)
    data = {
        "sources": {"words": {"path": str(corpus / "texts.jsonl")}},
        "tokenizer": str(corpus / "tokenizer"),
        "validation": {"share": 0.2},
        "num_streams": 2,
        "workers": 0,
        **(dataset or {}),
    }
    return PretrainTrainer(
        PretrainTrainerConfig.model_validate({"_target_": "x", **TRAINER, **trainer}, strict=False),
        run=run,
        model=DecoderModel(DecoderModelConfig(_target_="x", **{**MODEL, **(model or {})})),
        dataset=StreamDataset(StreamDatasetConfig.model_validate({"_target_": "x", **data}, strict=False), seed=seed),
        tracker=NoTracker(NoTrackerConfig(_target_="x")),
        seed=seed,
        attempt=attempt,
    )


def checkpoint(run: Path, step: int) -> Path:
    """A step directory."""
    return run / "checkpoints" / f"step-{step:08d}"


def state(run: Path, step: int) -> dict[str, Tensor]:
    """Every tensor of a checkpoint: weights and moments."""
    return read_tensors(checkpoint(run, step))


def facts(run: Path, step: int) -> dict[str, Any]:
    """All else of a checkpoint."""
    found: dict[str, Any] = json.loads((checkpoint(run, step) / "trainer.json").read_text())
    return found


def same_bits(one: Path, other: Path, step: int) -> bool:
    """Whether two runs have the same checkpoint at a step: weights, moments, data, counters."""
    left, right = state(one, step), state(other, step)
    equal = left.keys() == right.keys() and all(torch.equal(left[name], right[name]) for name in left)
    return equal and facts(one, step) == facts(other, step)


def apart(one: Path, other: Path, step: int, *, since: Path) -> float:
    """How far the weights of two runs are apart, as a share of how far they moved from the checkpoint `since`."""
    sides = [
        {name: tensor.double() for name, tensor in read_tensors(folder, prefix="model.").items()}
        for folder in (checkpoint(one, step), checkpoint(other, step), since)
    ]
    left, right, start = sides
    difference = sum(float((left[name] - right[name]).square().sum()) for name in left)
    moved = sum(float((left[name] - start[name]).square().sum()) for name in left)
    assert moved > 0
    return (difference / moved) ** 0.5


def cut(whole: Path, step: int, run: Path) -> Path:
    """A run directory as a kill after the checkpoint of a step leaves it, in the middle of writing the next."""
    (run / "checkpoints").mkdir(parents=True)
    for folder in sorted((whole / "checkpoints").glob("step-*")):
        if int(folder.name[5:]) <= step:
            shutil.copytree(folder, run / "checkpoints" / folder.name)
    lines = (whole / "metrics.jsonl").read_text().splitlines(keepends=True)
    (run / "metrics.jsonl").write_text("".join(lines[: step + 1]) + '{"attempt": 1, "st')
    staged = run / "checkpoints" / ".incoming" / f"step-{step + 1}"
    staged.mkdir(parents=True)
    (staged / "__0_0.distcp").write_bytes(b"half")
    return run


@contextlib.contextmanager
def signals(rank: int, step: int, number: int = signal.SIGTERM) -> Iterator[None]:
    """Makes a process send itself a signal in a step, on one rank."""
    original = PretrainSession.make_step

    def make_step(self: PretrainSession, *, request: Any) -> Any:
        if distributed.rank() == rank and self.step == step - 1:
            os.kill(os.getpid(), number)
        return original(self, request=request)

    PretrainSession.make_step = make_step  # type: ignore[method-assign]
    try:
        yield
    finally:
        PretrainSession.make_step = original  # type: ignore[method-assign]


@contextlib.contextmanager
def poisoned(*steps: int, rank: int = 0) -> Iterator[None]:
    """Makes the logits of these steps NaN on one rank; steps of one micro-batch, without evaluations."""
    build = DecoderModel.build

    def build_poisoned(self: DecoderModel, *args: Any, **kwargs: Any) -> Any:
        decoder = build(self, *args, **kwargs)
        calls = iter(range(1, 10**6))

        def poison(module: Any, args: Any, output: Tensor) -> Tensor | None:
            return output * float("nan") if next(calls) in steps and distributed.rank() == rank else None

        decoder.norm.register_forward_hook(poison)
        return decoder

    DecoderModel.build = build_poisoned  # type: ignore[method-assign,assignment]
    try:
        yield
    finally:
        DecoderModel.build = build  # type: ignore[method-assign]


@contextlib.contextmanager
def small_buckets(size: int) -> Iterator[None]:
    """Makes the buckets of gradients so small that there are many."""
    update.GradientBuckets = lambda parameters: GradientBuckets(parameters, bucket_bytes=size)  # type: ignore[misc,assignment]
    try:
        yield
    finally:
        update.GradientBuckets = GradientBuckets  # type: ignore[misc]


def main(specs: str) -> None:
    torch.set_num_threads(1)
    distributed.initialize()
    for spec in json.loads(Path(specs).read_text()):
        taken = spec.pop("cut", None)
        if taken is not None and distributed.is_main():
            cut(Path(taken[0]), taken[1], Path(spec["directory"]))
        distributed.barrier()
        with contextlib.ExitStack() as stack:
            for name, manager in (("signalled", signals), ("buckets", small_buckets)):
                if (given := spec.pop(name, None)) is not None:
                    stack.enter_context(manager(*given))
            if (given := spec.pop("poisoned", None)) is not None:
                stack.enter_context(poisoned(*given["steps"], rank=given["rank"]))
            result = pretrainer(**spec).train()
        if distributed.is_main():
            write_json(Path(spec["directory"]) / "result.json", dataclasses.asdict(result))
    distributed.shutdown()


if __name__ == "__main__":
    main(sys.argv[1])
