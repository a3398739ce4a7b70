"""A progress bar for people, on the first process."""

from __future__ import annotations

from typing import Any

from tqdm.auto import tqdm
from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments


class ProgressBar(TrainerCallback):
    """Steps done, and the last loss and metric beside them."""

    def __init__(self, *, main_metric: str) -> None:
        self._main = f"eval_{main_metric}"
        self._bar: Any = None
        self._shown: dict[str, str] = {}

    def on_train_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        if state.is_world_process_zero and not args.disable_tqdm:
            self._bar = tqdm(total=state.max_steps, initial=state.global_step, desc="training", unit="step")

    def on_step_end(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        if self._bar is not None:
            self._bar.update(state.global_step - self._bar.n)

    def on_log(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        logs: dict[str, Any] | None = None,
        **kwargs: Any,
    ) -> None:
        logs = logs if logs is not None else {}
        shown = {name.removeprefix("eval_"): logs[name] for name in ("loss", self._main) if name in logs}
        self._shown |= {name: f"{value:.4f}" for name, value in shown.items()}
        if self._bar is not None:
            self._bar.set_postfix(self._shown)

    def on_train_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        if self._bar is not None:
            self._bar.close()
            self._bar = None
