"""How far fine-tuning is, for people."""

from __future__ import annotations

from typing import Any

from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments

from supertrainer.trainers.progress_bar import StepBar


class Progress(TrainerCallback):
    """Steps done, and the last loss and metric beside them."""

    def __init__(self, *, main_metric: str) -> None:
        self._main = f"eval_{main_metric}"
        self._bar = StepBar()

    def on_train_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        if state.is_world_process_zero and not args.disable_tqdm:
            self._bar.open(total=state.max_steps, done=state.global_step)

    def on_step_end(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        self._bar.update(state.global_step)

    def on_log(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        logs: dict[str, Any] | None = None,
        **kwargs: Any,
    ) -> None:
        logs = logs if logs is not None else {}
        for name in ("loss", self._main):
            if name in logs:
                self._bar.show(name.removeprefix("eval_"), logs[name])

    def on_train_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        self._bar.close()
