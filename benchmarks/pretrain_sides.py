"""The sides of benchmarks/pretrain.py: the same training by our trainer, by hand, and by the Hugging Face Trainer."""

from __future__ import annotations

import json
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import torch

SOURCE = "package://shksprdata/texts/*_gut.txt"
ROWS, LENGTH, VOCABULARY, SEED = 8, 256, 4096, 7
EQUAL = LOG_EVERY = 10  # steps whose mean loss is compared: ours and the Trainer log no others
WARM_UP = 15  # steps that aren't timed; so many that saves fall into the middle of a turn
LEARNING_RATE, WEIGHT_DECAY, BETAS, EPS, MAX_GRAD_NORM = 1e-3, 0.1, (0.9, 0.95), 1e-8, 1.0
PARAMETERS_OF_MATRICES = 4 * (256 * 256 * 3 + 3 * 256 * 704) + 256 * VOCABULARY  # the embedding is only looked up


class Pace:
    """Lets a training go on for a turn at a time. A side calls it at the beginning of every step."""

    def __init__(self, *, steps: int, answers: Any) -> None:
        self._steps, self._answers = steps, answers
        self._done = 0
        self._began = self._cpu = 0.0
        self.losses: list[float] = []

    def step_begins(self) -> None:
        """Returns at once within a turn; between turns it tells how long the last one took and waits for the next.

        Raises:
            SystemExit: there is no other turn.
        """
        done, self._done = self._done, self._done + 1
        if done < WARM_UP or (done - WARM_UP) % self._steps:
            return
        told = {"seconds": time.perf_counter() - self._began, "cpu_seconds": time.process_time() - self._cpu}
        print(json.dumps({**told, "losses": self.losses}), file=self._answers, flush=True)
        if not sys.stdin.readline():
            raise SystemExit
        self._began, self._cpu = time.perf_counter(), time.process_time()


def material() -> tuple[Any, Any]:
    """Our model and dataset."""
    from supertrainer.data.streams.dataset import StreamDataset
    from supertrainer.data.streams.schema import StreamDatasetConfig
    from supertrainer.models.pretrain import DecoderModel
    from supertrainer.models.schema import DecoderModelConfig

    sizes = {"num_layers": 4, "hidden_size": 256, "num_heads": 4, "num_kv_heads": 2, "max_length": LENGTH}
    model = DecoderModel(DecoderModelConfig.model_validate({"_target_": "-", **sizes}))
    dataset = StreamDataset(
        StreamDatasetConfig.model_validate(
            {
                "_target_": "-",
                "sources": {"plays": {"path": SOURCE}},
                "tokenizer_training": {"vocab_size": VOCABULARY},
                "isolate_documents": False,  # the others don't
            }
        ),
        seed=SEED,
    )
    return model, dataset


class PacedDataset:
    """A dataset whose stream does something else before every step."""

    def __init__(self, dataset: Any, *, before_step: Callable[[], None]) -> None:
        self._dataset, self._before_step = dataset, before_step

    def __getattr__(self, name: str) -> Any:
        return getattr(self._dataset, name)

    def open(self, **options: Any) -> Any:
        """The stream of the dataset."""
        stream = self._dataset.open(**options)
        following = stream.next_step

        def next_step() -> Any:
            self._before_step()
            return following()

        stream.next_step = next_step
        return stream


def batches(dataset: Any, *, steps: int) -> list[torch.Tensor]:
    """The rows of every step, as ours takes them: (B, T + 1)."""
    stream = dataset.open(sequence_length=LENGTH, global_batch_size=ROWS)
    found = [torch.from_numpy(stream.next_step().tokens).clone() for _ in range(steps)]
    stream.close()
    return found


def start(model: Any) -> tuple[dict[str, Any], dict[str, torch.Tensor]]:
    """A Llama's config and weights: those that ours starts from."""
    from supertrainer.models.llama_format import to_llama

    decoder = model.build(VOCABULARY)
    model.initialize(decoder, seed=SEED, vocab_size=VOCABULARY)
    return to_llama(model.shape(VOCABULARY), model.table(VOCABULARY), decoder.state_dict())


def ours(pace: Pace, *, compiled: bool, steps: int, save_every: int, directory: Path) -> None:
    """`PretrainTrainer`, as `operation=train` builds it."""
    from supertrainer.core.records import read_records
    from supertrainer.core.run_directory import RunDirectory
    from supertrainer.trainers.pretrain import PretrainTrainer
    from supertrainer.trainers.schema import NoTrackerConfig, PretrainTrainerConfig
    from supertrainer.trainers.trackers import NoTracker

    model, dataset = material()
    run = RunDirectory(directory / "run")
    run.create()
    config = PretrainTrainerConfig.model_validate(
        {
            "_target_": "-",
            "global_batch_size": ROWS,
            "sequence_length": LENGTH,
            "max_steps": steps,
            "learning_rate": LEARNING_RATE,
            "weight_decay": WEIGHT_DECAY,
            "betas": BETAS,
            "eps": EPS,
            "max_grad_norm": MAX_GRAD_NORM,
            "schedule": {"name": "constant"},
            "compile": compiled,
            "log_every": LOG_EVERY,
            "save_every": save_every,
            "keep_last": 1,
            "eval_every": 0,
        },
    )

    def before_step() -> None:
        if not pace.losses and run.metrics_jsonl.is_file():
            pace.losses.append(read_records(run.metrics_jsonl).rows[0]["loss"])  # the mean of the first LOG_EVERY
        pace.step_begins()

    PretrainTrainer(
        config,
        run=run,
        model=model,
        dataset=PacedDataset(dataset, before_step=before_step),
        tracker=NoTracker(NoTrackerConfig(_target_="-")),
        seed=SEED,
        deterministic=False,  # the others aren't
    ).train()


def plain(pace: Pace, *, compiled: bool, steps: int) -> None:
    """`plain_pretraining.train`."""
    from plain_pretraining import PlainDecoder, PlainShape, train

    model, dataset = material()
    config, weights = start(model)
    decoder = PlainDecoder(PlainShape.of(config), length=LENGTH)
    decoder.load(weights)
    rows, first = batches(dataset, steps=steps), []

    def paced() -> Iterator[torch.Tensor]:
        for row in rows:
            pace.step_begins()
            yield row

    def after_step(loss: float | None) -> None:
        if len(first) < EQUAL and loss is not None:
            first.append(loss)
            pace.losses[:] = [statistics.fmean(first)]

    train(
        decoder, paced(), learning_rate=LEARNING_RATE, weight_decay=WEIGHT_DECAY, betas=BETAS, eps=EPS,
        max_grad_norm=MAX_GRAD_NORM, is_logged=lambda step: step <= EQUAL or step % LOG_EVERY == 0,
        compiled=compiled, after_step=after_step,
    )  # fmt: skip


def hugging_face(pace: Pace, *, compiled: bool, steps: int, directory: Path) -> None:
    """`transformers.Trainer` on `LlamaForCausalLM`, with targets that are shifted already."""
    from transformers import LlamaConfig, LlamaForCausalLM, PrinterCallback, Trainer, TrainerCallback, TrainingArguments

    ours_model, dataset = material()
    config, weights = start(ours_model)
    model = LlamaForCausalLM(LlamaConfig(**{key: config[key] for key in config if key != "architectures"}))
    model.load_state_dict(weights)
    rows = [
        {"input_ids": row[:-1], "labels": row[1:].clone(), "shift_labels": row[1:].clone()}
        for step in batches(dataset, steps=steps)
        for row in step
    ]

    class Paced(TrainerCallback):
        def on_step_begin(self, *arguments: Any, **options: Any) -> None:
            pace.step_begins()

        def on_log(self, args: Any, state: Any, control: Any, logs: Mapping[str, float], **options: Any) -> None:
            if not pace.losses:
                pace.losses.append(float(logs["loss"]))

    trainer = Trainer(
        model=model,
        args=TrainingArguments(
            output_dir=str(directory / "hf"), use_cpu=True, per_device_train_batch_size=ROWS, num_train_epochs=1,
            learning_rate=LEARNING_RATE, weight_decay=WEIGHT_DECAY, adam_beta1=BETAS[0], adam_beta2=BETAS[1],
            adam_epsilon=EPS, max_grad_norm=MAX_GRAD_NORM, lr_scheduler_type="constant", optim="adamw_torch_fused",
            torch_compile=compiled, logging_steps=LOG_EVERY, save_strategy="no", eval_strategy="no", report_to="none",
            train_sampling_strategy="sequential", remove_unused_columns=False, disable_tqdm=True, seed=SEED,
        ),
        train_dataset=rows,
        callbacks=[Paced()],
    )  # fmt: skip
    trainer.remove_callback(PrinterCallback)
    trainer.train()
