"""One call of `train`, put together: the model on its processes, optimizer, stream, checkpoints, log."""

from __future__ import annotations

import functools
import logging
from typing import TYPE_CHECKING, Any

from supertrainer.checkpoint.manifest import Checkpoint, step_name
from supertrainer.core.distributed import all_gather_object, is_main, on_main_then_broadcast, rank, world_size
from supertrainer.data.streams.train_stream import TrainStream, merge_states
from supertrainer.data.streams.units import ODD_KINDS
from supertrainer.export.dcp import write_hf
from supertrainer.models.distributed_checkpoint import read_dcp
from supertrainer.trainers.pretrain_schema import micro_batch_rows
from supertrainer.trainers.pretraining import saving
from supertrainer.trainers.pretraining.building import Built, build
from supertrainer.trainers.pretraining.evaluation import evaluate
from supertrainer.trainers.pretraining.failures import hopeless
from supertrainer.trainers.pretraining.guard import Guard
from supertrainer.trainers.pretraining.optimizer import set_rates, training_state
from supertrainer.trainers.pretraining.recorder import Recorder
from supertrainer.trainers.pretraining.results import PretrainResult
from supertrainer.trainers.pretraining.samples import continuations
from supertrainer.trainers.pretraining.schedule import lr_share
from supertrainer.trainers.pretraining.update import Update, Updater
from supertrainer.trainers.samples_file import SAMPLES_FILE, write_samples
from supertrainer.trainers.stop_request import StopRequest
from supertrainer.trainers.throughput import peak_memory_gib

if TYPE_CHECKING:
    from supertrainer.trainers.pretrain import PretrainTrainer

log = logging.getLogger(__name__)


class PretrainSession:
    """A model that is being trained, and everything around it.

    Attributes:
        step: the last one that is done.
        writer: of its checkpoints.
    """

    def __init__(self, trainer: PretrainTrainer, built: Built, *, latest: Checkpoint | None) -> None:
        """
        Args:
            trainer: says what is trained, how, and where.
            built: the model and its optimizer, as they stood at `latest`.
            latest: the checkpoint to go on from.
        """
        config = trainer.config
        self._trainer, self._config, self._built = trainer, config, built
        self._facts: dict[str, Any] = {} if latest is None else saving.read_facts(latest.path)
        self._metrics: dict[str, float] = {} if latest is None else dict(latest.extra["metrics"])
        self.step = self._first_step = 0 if latest is None else latest.step
        self._micro_batch_rows = micro_batch_rows(config, processes=world_size())
        self._guard = Guard(config.guard)
        if self._facts:
            self._guard.load(self._facts["guard"])
        self._updater = Updater(built, config, guard=self._guard, micro_batch_rows=self._micro_batch_rows)
        self.writer = saving.CheckpointWriter(trainer.store, in_background=config.async_save)
        self._recorder = Recorder(
            trainer.run.metrics_jsonl,
            attempt=trainer.attempt,
            tracker=trainer.tracker,
            layout=built.layout,
            tokens_per_step=config.global_batch_size * config.sequence_length,
            flops_per_token=built.flops_per_token,
        )
        self._stream: TrainStream | None = None

    def described(self) -> str:
        """How the rows of a step are dealt, in words."""
        rows, accumulation = self._config.global_batch_size, self._config.global_batch_size // world_size()
        accumulation //= self._micro_batch_rows
        dealt = f"{self._micro_batch_rows} × {accumulation} micro-batches × {world_size()} processes"
        return (
            f"a step has {rows} rows of {self._config.sequence_length} tokens = {dealt} ({self._built.layout.strategy})"
        )

    def start(self) -> None:
        """Opens the stream where the run stands, and begins to count.

        Raises:
            DataError: there is nothing to train on, or nothing to evaluate where that is asked for.
            CheckpointError: the disk has no room for a checkpoint.
        """
        if self._config.eval_every:
            _ = self._validation  # what is wrong with it shows now, not after the first thousand steps
        store, needed = self._trainer.store, saving.checkpoint_bytes(self._built.parameters)
        on_main_then_broadcast(lambda: store.check_free_space(needed))
        self._stream = self._trainer.dataset.open(
            sequence_length=self._config.sequence_length,
            global_batch_size=self._config.global_batch_size,
            rank=rank(),
            world_size=world_size(),
            state=self._facts.get("data"),
        )
        losses = self._facts.get("losses", [])
        self._recorder.start(total=self._config.max_steps, done=self.step, losses=losses)

    def make_step(self, *, request: StopRequest) -> Update:
        """Makes the next step.

        Args:
            request: what this process was asked.
        """
        set_rates(self._built.optimizer, self._share(self.step + 1))
        update = self._updater.step(self._open_stream.next_step(), request=request)
        self.step += 1
        self._metrics = {}
        self._recorder.end_step(update, step=self.step)
        if update.skipped and is_main():
            log.warning("step %d leaves the weights as they were: %s", self.step, update.skipped)
        return update

    def require_hope(self) -> None:
        """Ends a run whose updates are left out one after the other; every process comes to the same.

        Raises:
            SupertrainerError: with what would mend it, and the last good checkpoint.
        """
        if not self._guard.has_given_up:
            return
        self.writer.wait()
        raise hopeless(self._guard, self._config, step=self.step, store=self._trainer.store)

    def log(self, update: Update) -> None:
        """Writes a row of the steps since the last one."""
        lr = self._config.learning_rate * self._share(self.step)
        self._recorder.training_row(update, step=self.step, epoch=self._epoch, lr=lr, skipped=self._guard.skipped)

    def evaluate(self) -> None:
        """The validation loss, and samples."""
        with self._recorder.apart():
            rows = self._validation
            self._metrics = evaluate(
                self._built.decoder, rows, layout=self._built.layout, micro_batch_rows=self._micro_batch_rows
            )
            values = {f"eval_{name}": value for name, value in self._metrics.items()}
            self._recorder.write(values, step=self.step, epoch=self._epoch)
            if self._config.sample_prompts:
                self._sample()

    def save(self) -> None:
        """Begins to write the checkpoint of this step."""
        with self._recorder.apart():
            states = all_gather_object(self._open_stream.state())
            facts = {
                "step": self.step,
                "max_steps": self._config.max_steps,
                "tokens": self.step * self._config.global_batch_size * self._config.sequence_length,
                "data": merge_states(states),
                "guard": self._guard.state(),
                "losses": self._recorder.losses,
            }
            extra = {"attempt": self._trainer.attempt, "metrics": self._metrics}
            self.writer.save(
                training_state(self._built.decoder, self._built.optimizer), facts, step=self.step, extra=extra
            )

    def export(self) -> None:
        """Writes the model of the last step, as it stands in its checkpoint, for other programs to read."""
        trainer, tokenizer = self._trainer, self._built.tokenizer
        directory = trainer.run.checkpoints / step_name(self.step)

        def write() -> None:
            state = read_dcp(directory)
            write_hf(
                trainer.run.model, model=trainer.model, vocab_size=len(tokenizer), state=state, tokenizer=tokenizer
            )

        on_main_then_broadcast(write)
        log.info("the weights of step %d are in %s", self.step, trainer.run.model)

    def result(self, *, stopped_by: str | None) -> PretrainResult:
        """What this call came to."""
        seconds = self._recorder.seconds
        rate = self._recorder.rate(self.step - self._first_step, seconds)
        return PretrainResult(
            stopped_by=stopped_by,
            step=self.step,
            first_step=self._first_step,
            planned_steps=self._config.max_steps,
            metrics=self._metrics,
            parameters=self._built.parameters,
            seconds=seconds,
            tokens_per_second=rate,
            mfu=self._recorder.mfu(rate),
            peak_memory_gib=peak_memory_gib(self._built.layout.device),
            skipped_steps=self._guard.skipped,
            odd_documents=self._odd_documents(),
        )

    def close(self) -> None:
        """Ends threads and the stream, after an error too."""
        self.writer.close()
        self._recorder.close()
        if self._stream is not None:
            self._stream.close()

    @functools.cached_property
    def _validation(self) -> Any:
        config = self._config
        return self._trainer.dataset.validation(sequence_length=config.sequence_length, rows=config.eval_rows)

    @property
    def _open_stream(self) -> TrainStream:
        assert self._stream is not None, "start comes first"
        return self._stream

    def _odd_documents(self) -> dict[str, int]:
        """Over all processes, each of which has streams of its own."""
        if self._stream is None:
            return {}
        sources = [source for counts in all_gather_object(self._stream.counts()) for source in counts.values()]
        return {kind: sum(source[kind] for source in sources) for kind in ODD_KINDS}

    @property
    def _epoch(self) -> float:
        """How often the source that was read most often was read, on this process."""
        return max(float(source["epochs"]) for source in self._open_stream.counts().values())

    def _share(self, update: int) -> float:
        return lr_share(self._config.schedule, update, max_steps=self._config.max_steps)

    def _sample(self) -> None:
        if self._built.layout.strategy != "fsdp" and not is_main():
            return
        rows = continuations(
            self._built.decoder,
            self._built.tokenizer,
            self._config.sample_prompts,
            layout=self._built.layout,
            max_new_tokens=self._config.sample_tokens,
            max_length=self._config.sequence_length,
            temperature=self._config.sample_temperature,
            seed=self._trainer.seed,
        )
        if is_main():
            path = self._trainer.run.path / SAMPLES_FILE
            write_samples(path, [{"step": self.step, **row} for row in rows], step=self.step)


def open_session(trainer: PretrainTrainer, latest: Checkpoint | None) -> PretrainSession:
    """Builds the model and goes to where the run stands. Every process calls it.

    Args:
        trainer: says what is trained, how, and where.
        latest: the checkpoint to go on from; None at the beginning.

    Raises:
        ConfigError: the processes can't be laid out as asked.
        CheckpointError: the checkpoint doesn't fit the model.
    """
    tokenizer = trainer.dataset.tokenizer()
    built = build(trainer.config, model=trainer.model, tokenizer=tokenizer, seed=trainer.seed)
    if latest is not None:
        saving.load(latest.path, training_state(built.decoder, built.optimizer))
        log.info("going on from %s", latest.path)
    return PretrainSession(trainer, built, latest=latest)
