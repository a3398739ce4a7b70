"""Pretraining: a loop of its own over streams of tokens, on any number of processes."""

from __future__ import annotations

import contextlib
import gc
import logging
from collections.abc import Iterator

from supertrainer.checkpoint.manifest import Checkpoint
from supertrainer.checkpoint.store import CheckpointStore
from supertrainer.core import distributed
from supertrainer.core.errors import ConfigError, raise_all
from supertrainer.core.job import has_waiting_script
from supertrainer.core.records import abandon_after
from supertrainer.core.run_directory import RunDirectory
from supertrainer.core.seeds import seed_everything
from supertrainer.data.streams.dataset import StreamDataset
from supertrainer.models.distributed_checkpoint import lone_process_is_meant
from supertrainer.models.pretrain import DecoderModel
from supertrainer.trainers.pretrain_schema import PretrainTrainerConfig, division_problems
from supertrainer.trainers.pretraining import saving
from supertrainer.trainers.pretraining.failures import errors_told
from supertrainer.trainers.pretraining.results import PretrainResult
from supertrainer.trainers.pretraining.schedule import common_steps, decay_span
from supertrainer.trainers.pretraining.session import PretrainSession, open_session
from supertrainer.trainers.samples_file import SAMPLES_FILE
from supertrainer.trainers.stop_request import StopRequest
from supertrainer.trainers.trackers import Tracker

log = logging.getLogger(__name__)


class PretrainTrainer:
    """Trains a decoder on a dataset's streams.

    The weights are a function of config, data and seed: micro-batch, processes and where a run was interrupted don't
    show in them, but for the last bits where other processes add in another order.
    """

    def __init__(
        self,
        config: PretrainTrainerConfig,
        *,
        run: RunDirectory,
        model: DecoderModel,
        dataset: StreamDataset,
        tracker: Tracker,
        seed: int,
        deterministic: bool = True,
        attempt: int = 1,
    ) -> None:
        """
        Args:
            config: recipe, batches, cadence.
            run: where checkpoints, metrics and the trained model go; its lock is held by the caller.
            model: builds what is trained.
            dataset: its streams are trained on, its held-out rows evaluated.
            tracker: takes the curves.
            seed: of new weights and of the data's order.
            deterministic: deterministic kernels.
            attempt: number of this start of the run, for metrics.jsonl.
        """
        self.config = config
        self.run = run
        self.model = model
        self.dataset = dataset
        self.tracker = tracker
        self.seed = seed
        self.deterministic = deterministic
        self.attempt = attempt

    @property
    def planned_steps(self) -> int:
        """Optimizer steps of the whole run."""
        return self.config.max_steps

    @property
    def store(self) -> CheckpointStore:
        """The run's checkpoints. The one before the decay of wsd stays: a longer run goes on from it."""
        keep = {self._last_before_decay()} - {self.planned_steps}
        return CheckpointStore(
            self.run.checkpoints, keep_last=self.config.keep_last, keep_best=None, keep_steps=frozenset(keep)
        )

    def train(self, *, resume: bool = True) -> PretrainResult:
        """Trains from the newest checkpoint, or from the beginning, to the planned step; writes the trained model.

        Every process calls it.

        Args:
            resume: go on from the newest complete checkpoint where there is one.

        Raises:
            ConfigError: what can't be trained as configured.
            DataError: faulty data; in the middle of a run with where the weights so far are.
            LaunchError: another process of the run has ended.
            CheckpointError: a checkpoint can't be written or read.
            SupertrainerError: too many updates in a row were not finite, or spikes.
            KeyboardInterrupt: a second Ctrl-C.
        """
        distributed.initialize()
        raise_all(ConfigError, division_problems(self.config, processes=distributed.world_size()))
        seed_everything(self.seed, deterministic=self.deterministic)
        latest = distributed.on_main_then_broadcast(lambda: self._prepare(resume=resume))
        with lone_process_is_meant():
            session = open_session(self, latest)
            with errors_told(self.store), contextlib.closing(session), _collecting_at_set_steps():
                stop = self._run(session) if session.step < self.planned_steps else None
                session.writer.wait()
                if stop is None:
                    session.export()
                return session.result(stopped_by=stop)

    def _prepare(self, *, resume: bool) -> Checkpoint | None:
        """The checkpoint to go on from. Later ones go where their learning rates aren't those of this length."""
        store = self.store
        store.prepare()
        latest = store.find_latest() if resume else None
        if latest is None:
            return None
        before = int(saving.read_facts(latest.path)["max_steps"])
        if latest.step > self.planned_steps:
            raise ConfigError(
                f"{latest.path} is beyond the {self.planned_steps} steps that are planned.",
                why="a run can be made longer, not shorter.",
                fix="give a greater length, or run.fresh=true.",
            )
        common = common_steps(self.config.schedule, before, self.planned_steps)
        if before == self.planned_steps or latest.step <= common:
            return latest
        earlier = store.find_latest(up_to=common)
        if earlier is None:
            raise ConfigError(
                f"{latest.path} was trained for {before} steps: its learning rates from step {common + 1} on aren't "
                f"those of {self.planned_steps} steps, and no checkpoint before is left.",
                why="going on would not equal the longer run.",
                fix="run.fresh=true trains the longer run from the start; schedule.name=constant can be extended.",
            )
        log.warning(
            "step %d has begun to decay: going on from step %d instead; later rows are in *.abandoned.jsonl",
            latest.step,
            earlier.step,
        )
        for path in (self.run.metrics_jsonl, self.run.path / SAMPLES_FILE):
            abandon_after(path, earlier.step)
        store.abandon_after(earlier.step)
        return earlier

    def _run(self, session: PretrainSession) -> str | None:
        """Makes the steps that are left; returns the signal's name where one stopped it before the last."""
        config, request = self.config, StopRequest()
        log.info("steps %d to %d; %s", session.step + 1, self.planned_steps, session.described())
        if distributed.is_main():
            self.tracker.open(self.run.path, first_step=session.step + 1)
        session.start()
        try:
            with request.listening():
                while session.step < self.planned_steps:
                    update = session.make_step(request=request)
                    step, last = session.step, session.step == self.planned_steps
                    if last or step % config.log_every == 0:
                        session.log(update)
                    session.require_hope()
                    if config.eval_every and (last or step % config.eval_every == 0):
                        session.evaluate()
                    if last or update.stop or step % config.save_every == 0 or step == self._last_before_decay():
                        session.save()
                    if update.stop and (has_waiting_script() or not last):
                        session.writer.wait()
                        return request.reason
                    if step % config.gc_every == 0:
                        gc.collect()
        finally:
            self.tracker.close()
        return None

    def _last_before_decay(self) -> int:
        if self.config.schedule.name != "wsd":
            return self.planned_steps
        return decay_span(self.config.schedule, max_steps=self.planned_steps)[0]


@contextlib.contextmanager
def _collecting_at_set_steps() -> Iterator[None]:
    """Inside, garbage is collected only when asked: else one process after the other keeps all of them waiting."""
    was_on = gc.isenabled()
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()
