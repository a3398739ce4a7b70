"""The one subclass of `transformers.Trainer`: our batches, evaluation and model files, the rest its own."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer
from torch.utils.data import DataLoader, Dataset
from transformers import (
    DefaultFlowCallback,
    PrinterCallback,
    ProgressCallback,
    Trainer,
    TrainerCallback,
    TrainerControl,
    TrainingArguments,
)

from supertrainer.inference.allocator import give_back_freed_memory
from supertrainer.trainers.losses import StepLoss

EVAL_PREFIX = "eval_"


class ExactTrainer(Trainer):
    """Trains on given micro-batches, with a loss that is exact over the whole optimizer step.

    Attributes:
        gives_back_memory: what a part of a micro-batch has freed goes back to the system before the next, on a CPU.
    """

    control: TrainerControl
    gives_back_memory = False

    def __init__(
        self,
        *,
        model: nn.Module,
        args: TrainingArguments,
        loader: DataLoader[Any],
        loss: StepLoss,
        evaluation: Callable[[nn.Module], Mapping[str, float]] | None,
        write_model: Callable[[nn.Module, Path], None],
        callbacks: Sequence[TrainerCallback],
        regroup: Callable[[Optimizer, nn.Module], None] | None = None,
    ) -> None:
        """
        Args:
            model: to be trained.
            args: arguments of the Trainer.
            loader: the micro-batches of this process; its batch sampler is told of a new epoch by a callback.
            loss: the loss function, and the record of what it gave.
            evaluation: computes the scalars of the validation rows; None where nothing is evaluated.
            write_model: writes a model directory.
            callbacks: in the order in which they are called.
            regroup: changes the groups of a new optimizer, before the schedule reads their rates.
        """
        # The library asks for a dataset where it is to evaluate; `evaluate` below never looks at it.
        evaluated: Dataset[Any] | None = None if evaluation is None else loader.dataset
        super().__init__(
            model=model,
            args=args,
            train_dataset=loader.dataset,
            eval_dataset=evaluated,
            data_collator=loader.collate_fn,
            compute_loss_func=self._loss_of,
            callbacks=list(callbacks),
        )
        self._loader = loader
        self._loss = loss
        self._evaluation = evaluation
        self._write_model = write_model
        self._regroup = regroup
        self.model_accepts_loss_kwargs = False  # the loss is made outside the model, so its count has no use in there
        for replaced in (DefaultFlowCallback, ProgressCallback, PrinterCallback):
            self.remove_callback(replaced)

    def create_optimizer(self, model: nn.Module | None = None) -> Optimizer:
        """The library's optimizer, with rates of our own where there are any."""
        made = self.optimizer is None
        optimizer: Optimizer = super().create_optimizer(model)
        if made and self._regroup is not None:
            self._regroup(optimizer, self.model if model is None else model)
        return optimizer

    def get_train_dataloader(self) -> DataLoader[Any]:
        """The micro-batches of this process: they are dealt already, so accelerate has nothing to shard."""
        return self._loader

    def get_batch_samples(
        self, epoch_iterator: Iterator[Any], num_batches: int, device: torch.device
    ) -> tuple[list[Any], Tensor | None]:
        """The micro-batches of a step, and what the sum of their losses is divided by."""
        batches = list(itertools.islice(epoch_iterator, num_batches))
        return batches, self._loss.step_weight(batches, device=device) if batches else None

    def training_step(
        self, model: nn.Module, inputs: dict[str, Any], num_items_in_batch: Tensor | int | None = None
    ) -> Tensor:
        """Forward and backward of a micro-batch."""
        self._give_back()
        return super().training_step(model, inputs, num_items_in_batch)

    def _loss_of(self, outputs: Any, labels: Tensor, *, num_items_in_batch: Tensor | float) -> Tensor:
        self._give_back()
        loss = self._loss(outputs, labels, num_items_in_batch=num_items_in_batch)
        self._give_back()
        return loss

    def _give_back(self) -> None:
        if self.gives_back_memory:
            give_back_freed_memory()

    def evaluate(
        self, eval_dataset: Any = None, ignore_keys: list[str] | None = None, metric_key_prefix: str = "eval"
    ) -> dict[str, float]:
        """The scalars of the validation rows, over all processes; logged as the library's own are."""
        assert self._evaluation is not None, "nothing is evaluated, so nobody asks"
        metrics = {f"{EVAL_PREFIX}{name}": value for name, value in self._evaluation(self.model).items()}
        self.log(dict(metrics))
        self.control = self.callback_handler.on_evaluate(self.args, self.state, self.control, metrics)
        return metrics

    def save_model(self, output_dir: str | None = None, _internal_call: bool = False) -> None:
        """A model directory without training_args.bin, on the first process."""
        if self.args.should_save:
            directory = Path(output_dir or self.args.output_dir)
            directory.mkdir(parents=True, exist_ok=True)
            self._write_model(self.model, directory)

    def floating_point_ops(self, inputs: dict[str, Any]) -> int:
        """Not counted here: the library walks over all parameters for it, after every micro-batch."""
        return 0
