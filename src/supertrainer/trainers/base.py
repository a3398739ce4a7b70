"""What the fine-tuning trainers of all tasks share: plan, resume, train, evaluate, select, save."""

from __future__ import annotations

import functools
import logging
from abc import ABC, abstractmethod
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from torch import Tensor, nn
from torch.optim import Optimizer
from transformers import PreTrainedTokenizerBase, ProcessorMixin, TrainingArguments

from supertrainer.checkpoint.manifest import Checkpoint
from supertrainer.checkpoint.store import CheckpointStore
from supertrainer.core import distributed
from supertrainer.core.errors import ConfigError
from supertrainer.core.run_directory import RunDirectory
from supertrainer.core.seeds import seed_everything
from supertrainer.data.base import TaskDataset
from supertrainer.data.batching import BatchPlan
from supertrainer.inference.allocator import keep_freed_memory
from supertrainer.inference.logits import predict_logits
from supertrainer.metrics.base import Metric
from supertrainer.models.architecture import OWN_KEY
from supertrainer.models.base import TaskModel
from supertrainer.models.initial import restore_start
from supertrainer.models.saving import save_trained, write_model
from supertrainer.trainers.arguments import training_arguments
from supertrainer.trainers.cadence import require_validation_rows
from supertrainer.trainers.checkpointing import (
    CheckpointCallback,
    checkpoint_bytes,
    full_disk_is_told,
    load_weights,
    selected_of,
)
from supertrainer.trainers.devices import training_device
from supertrainer.trainers.losses import Objective
from supertrainer.trainers.results import TrainResult, result_of
from supertrainer.trainers.schema import TrainerConfig
from supertrainer.trainers.session import Session, build_session, rows_of_a_step
from supertrainer.trainers.steps import planned_steps
from supertrainer.trainers.trackers import Tracker

log = logging.getLogger(__name__)


class TaskTrainer(ABC):
    """Fine-tunes a model on a dataset's train rows. A task says what its loss and its metric are.

    Everything but the number of rows in memory at once is a function of config, data and seed: micro-batch, processes,
    and where a run was interrupted don't show in the weights.
    """

    def __init__(
        self,
        config: TrainerConfig,
        *,
        run: RunDirectory,
        model: TaskModel,
        dataset: TaskDataset[Any],
        metric: Metric[Any, Any],
        tracker: Tracker,
        seed: int,
        deterministic: bool = True,
        attempt: int = 1,
    ) -> None:
        """
        Args:
            config: recipe, batches, what is kept.
            run: where checkpoints, metrics and the trained model go; its lock is held by the caller.
            model: builds what is trained.
            dataset: its `train` rows are trained on, its `validation` rows evaluated.
            metric: of the validation rows; its main scalar ranks checkpoints.
            tracker: takes the curves.
            seed: of new weights, order and dropout.
            deterministic: deterministic kernels.
            attempt: number of this start of the run, for metrics.jsonl.
        """
        self.config = config
        self.run = run
        self.model = model
        self.dataset = dataset
        self.metric = metric
        self.tracker = tracker
        self.seed = seed
        self.deterministic = deterministic
        self.attempt = attempt
        self.module: nn.Module | None = None  # with the selected weights, once `train` has come to its end

    @abstractmethod
    def objective(self) -> Objective:
        """What a step's loss is."""

    @abstractmethod
    def update_metric(self, logits: Tensor, rows: Any, numbers: Sequence[int]) -> None:
        """Adds a batch of evaluated rows to the metric.

        Args:
            logits: of these rows.
            rows: the split.
            numbers: which of its rows.
        """

    def regroup(self, optimizer: Optimizer, module: nn.Module) -> None:
        """Gives parts of the model learning rates of their own; a new optimizer has one for all."""
        return

    def noted(self) -> dict[str, Any]:
        """What the model's readers have to know of how it was trained: config.json keeps it."""
        return {}

    def max_length(self) -> int | None:
        """The longest row in tokens that the config allows; None for the model's own limit."""
        return None

    @functools.cached_property
    def tokenizer(self) -> PreTrainedTokenizerBase:
        """The model's tokenizer. Its limit is what is trained on, and is saved: later texts are cut as these were."""
        tokenizer, limit = self.model.tokenizer(), self.max_length()
        if limit is not None:
            self.model.check_length(limit)
            tokenizer.model_max_length = limit
        return tokenizer

    @property
    def reader(self) -> PreTrainedTokenizerBase | ProcessorMixin:
        """What the model's inputs go through, which is saved with it."""
        return self.tokenizer

    @functools.cached_property
    def store(self) -> CheckpointStore:
        """The run's checkpoints."""
        best = (self.metric.main, self.metric.greater_is_better)
        return CheckpointStore(self.run.checkpoints, keep_last=self.config.keep_last, keep_best=best)

    @property
    def train_rows(self) -> int:
        """How many rows an epoch has."""
        return len(self.dataset.load()["train"])

    @functools.cached_property
    def planned_steps(self) -> int:
        """Optimizer steps of the whole run."""
        return planned_steps(
            self.train_rows,
            global_batch_size=self.config.global_batch_size,
            training_kwargs=self.config.training_kwargs,
            packed=self.config.packs,
        )

    def rows(self, split: str) -> Any:
        """A split's rows as token ids; None where the dataset has no such split."""
        return self.dataset.model_rows(split, self.reader) if split in self.dataset.load() else None

    def build_module(self) -> nn.Module:
        """The model as training starts with it: the same weights at every call."""
        module = self.model.build(
            label_names=self.dataset.label_names,
            seed=self.seed,
            model_kwargs=self.config.model_kwargs,
            peft_kwargs=self.config.peft_kwargs,
            bitsandbytes_kwargs=self.config.bitsandbytes_kwargs,
            device=training_device(),
        )
        if noted := self.noted():
            module.config.update({OWN_KEY: noted})
        return module

    def train(self, *, resume: bool = True) -> TrainResult:
        """Trains from the newest checkpoint, or from the beginning, to the planned step; writes the trained model.

        A run that has come to its planned step already isn't trained again. Every process calls it.

        Args:
            resume: go on from the newest complete checkpoint where there is one.

        Raises:
            ConfigError: what can't be trained as configured.
            DataError: too few rows, or faulty ones.
            CheckpointError: a checkpoint can't be written or read.
            SupertrainerError: the loss isn't finite.
            KeyboardInterrupt: a second Ctrl-C.
        """
        distributed.initialize()
        seed_everything(self.seed, deterministic=self.deterministic)
        latest = distributed.on_main_then_broadcast(lambda: self._prepare(resume=resume))
        module = self.module = self.build_module()
        if latest is not None:
            restore_start(module, latest.path)
        if latest is not None and latest.step >= self.planned_steps:
            log.info("step %d of %d is done already: nothing is left to train", latest.step, self.planned_steps)
            return self._finish(module, None)
        return self._train(module, latest)

    def evaluate(self, module: nn.Module, rows: Any, *, batch_size: int) -> dict[str, float]:
        """The metric's scalars over all rows: the same for any batch size and number of processes."""
        self.metric.reset()
        batches = predict_logits(
            module,
            rows,
            pad_token_id=self.tokenizer.pad_token_id,
            batch_size=batch_size,
            rank=distributed.rank(),
            world_size=distributed.world_size(),
        )
        for logits, numbers in batches:
            self.update_metric(logits, rows, numbers)
        self.metric.gather()
        return self.metric.compute()

    def _prepare(self, *, resume: bool) -> Checkpoint | None:
        self.store.prepare()
        latest = self.store.find_latest() if resume else None
        if latest is not None and latest.step > self.planned_steps:
            raise ConfigError(
                f"{latest.path} is beyond the {self.planned_steps} steps that are planned.",
                why="a run can be made longer, not shorter.",
                fix="give a greater length, or run.fresh=true.",
            )
        return latest

    def _train(self, module: nn.Module, latest: Checkpoint | None) -> TrainResult:
        args = training_arguments(
            self.config,
            output_dir=self.store.incoming,
            seed=self.seed,
            num_processes=distributed.world_size(),
            deterministic=self.deterministic,
        )
        if args.device.type == "cpu":
            keep_freed_memory()
        needed = checkpoint_bytes(module)
        distributed.on_main_then_broadcast(lambda: self.store.check_free_space(needed))
        session = self._session(module, args)
        step = 0 if latest is None else latest.step
        rows = self.config.global_batch_size
        log.info("steps %d to %d; %s", step + 1, self.planned_steps, rows_of_a_step(args, rows=rows))
        if distributed.is_main():
            self.tracker.open(self.run.path, first_step=step + 1)
        try:
            with full_disk_is_told(self.store, session.trainer), session.stop.request.listening():
                session.trainer.train(resume_from_checkpoint=None if latest is None else str(latest.path))
        finally:
            self.tracker.close()
        if session.stop.stopped:
            return result_of(module, session, step=session.trainer.state.global_step, planned_steps=self.planned_steps)
        return self._finish(module, session)

    def _session(self, module: nn.Module, args: TrainingArguments) -> Session:
        train_rows, validation_rows = self.rows("train"), self._validation_rows(args)
        assert train_rows is not None, "the planned steps were counted on them"
        self.model.check_length(
            max(int(rows.lengths.max()) for rows in (train_rows, validation_rows) if rows is not None)
        )
        plan = BatchPlan(
            train_rows.lengths,
            global_batch_size=self.config.global_batch_size,
            seed=self.seed,
            batching=self.config.batching,
        )
        checkpoints = CheckpointCallback(
            self.store, metric=self.metric, keeps_best=self.config.select == "best", attempt=self.attempt
        )
        evaluation = None
        if validation_rows is not None:
            evaluation = functools.partial(
                self.evaluate, rows=validation_rows, batch_size=args.per_device_eval_batch_size
            )
        return build_session(
            module,
            args=args,
            rows=train_rows,
            plan=plan,
            planned_steps=self.planned_steps,
            pad_token_id=self.tokenizer.pad_token_id,
            objective=self.objective(),
            evaluation=evaluation,
            write_model=self._write_checkpoint,
            checkpoints=checkpoints,
            tracker=self.tracker,
            metrics_path=self.run.metrics_jsonl,
            main_metric=self.metric.main,
            attempt=self.attempt,
            regroup=self.regroup,
        )

    def _validation_rows(self, args: TrainingArguments) -> Any:
        if args.eval_strategy == "no":
            return None
        require_validation_rows(self.config.training_kwargs, self.dataset.load())
        return self.rows("validation")

    def _write_checkpoint(self, module: nn.Module, directory: Path) -> None:
        write_model(module, self.reader, directory, base=self.model.base_reference())

    def _finish(self, module: nn.Module, session: Session | None) -> TrainResult:
        """Writes the selected weights as the trained model."""
        selected = distributed.on_main_then_broadcast(lambda: selected_of(self.store, self.config.select))
        load_weights(module, selected.path)
        base, weights = self.model.base_reference(), self.model.unquantized
        distributed.on_main_then_broadcast(
            lambda: save_trained(module, self.reader, self.run.model, base=base, unquantized=weights)
        )
        log.info("the weights of step %d are in %s", selected.step, self.run.model)
        planned = self.planned_steps
        return result_of(module, session, step=planned, planned_steps=planned, selected=selected)
