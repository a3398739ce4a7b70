"""From what the Trainer wrote to a committed checkpoint, and from a checkpoint to weights."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Literal

from torch import nn
from transformers import Trainer, TrainerCallback, TrainerControl, TrainerState, TrainingArguments
from transformers.trainer_utils import PREFIX_CHECKPOINT_DIR

from supertrainer.checkpoint.manifest import Checkpoint
from supertrainer.checkpoint.store import CheckpointStore
from supertrainer.core.distributed import barrier, on_main_then_broadcast
from supertrainer.core.files import is_disk_full
from supertrainer.metrics.base import Metric


class CheckpointCallback(TrainerCallback):
    """Commits every checkpoint, and asks for one where an evaluation is the best so far.

    Attributes:
        metrics: of the last evaluation, by name; empty before the first.
    """

    def __init__(
        self,
        store: CheckpointStore,
        *,
        metric: Metric[Any, Any],
        keeps_best: bool,
        attempt: int,
    ) -> None:
        """
        Args:
            store: of the run.
            metric: says which scalar ranks, and in which direction.
            keeps_best: whether a new best is saved beside the regular checkpoints.
            attempt: number of this start, written beside the metrics.
        """
        self._store = store
        self._metric = metric
        self._keeps_best = keeps_best
        self._attempt = attempt
        self._best: float | None = None
        self._evaluated_step = -1
        self.metrics: dict[str, float] = {}

    def on_train_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        best = on_main_then_broadcast(self._store.find_best) if self._keeps_best else None
        self._best = None if best is None else best.extra["metrics"][self._metric.main]

    def on_evaluate(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        metrics: Mapping[str, float] | None = None,
        **kwargs: Any,
    ) -> None:
        self.metrics = {name.removeprefix("eval_"): value for name, value in (metrics or {}).items()}
        self._evaluated_step = state.global_step
        value = self.metrics[self._metric.main]
        if self._best is None or self._metric.is_better(value, than=self._best):
            self._best = value
            control.should_save |= self._keeps_best

    def on_save(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        step = state.global_step
        barrier()  # every process has written its random states
        on_main_then_broadcast(lambda: self._commit(Path(args.output_dir), step))

    def _commit(self, incoming: Path, step: int) -> None:
        metrics = self.metrics if step == self._evaluated_step else {}
        staged = incoming / f"{PREFIX_CHECKPOINT_DIR}-{step}"
        self._store.commit(staged, step=step, extra={"attempt": self._attempt, "metrics": metrics})
        self._store.prune()


def selected_of(store: CheckpointStore, select: Literal["last", "best"]) -> Checkpoint:
    """The checkpoint whose weights become the trained model."""
    selected = (store.find_best() if select == "best" else None) or store.find_latest()
    assert selected is not None, "the last step is always saved"
    return selected


@contextlib.contextmanager
def full_disk_is_told(store: CheckpointStore, trainer: Trainer) -> Iterator[None]:
    """Whatever a full disk raises inside becomes the error that says so.

    Raises:
        CheckpointError: the disk is full.
    """
    try:
        yield
    except Exception as error:
        if is_disk_full(error):
            with store.writing(step=trainer.state.global_step):  # the library makes its state anew when it starts
                raise
        raise


def checkpoint_bytes(model: nn.Module) -> int:
    """About how large a checkpoint is: the weights that are saved, and Adam's two float32 moments of trained ones."""
    from peft import PeftModel

    sizes = [(p.numel(), p.element_size(), p.requires_grad) for p in model.parameters()]
    only_trained = isinstance(model, PeftModel)
    weights = sum(count * size for count, size, trained in sizes if trained or not only_trained)
    return weights + sum(8 * count for count, _, trained in sizes if trained)


def load_weights(model: nn.Module, checkpoint: Path) -> None:
    """Puts the weights of a checkpoint into a model that was built like the one that wrote it."""
    from peft import PeftModel, set_peft_model_state_dict
    from safetensors.torch import load_file, load_model

    if isinstance(model, PeftModel):
        set_peft_model_state_dict(model, load_file(checkpoint / "adapter_model.safetensors"))
    else:
        load_model(model, checkpoint / "model.safetensors")
