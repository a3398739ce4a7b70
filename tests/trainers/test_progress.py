"""How far training is: a bar on a terminal only."""

from __future__ import annotations

import logging
import sys
from types import SimpleNamespace
from typing import Any

import pytest

from supertrainer.trainers import progress_bar
from supertrainer.trainers.progress import Progress

ARGS: Any = SimpleNamespace(disable_tqdm=False)


def play(shown: Progress, *, steps: int) -> None:
    """Training of so many steps, whose loss is logged after the first."""
    control: Any = None
    for step in range(steps + 1):
        state: Any = SimpleNamespace(is_world_process_zero=True, max_steps=steps, global_step=step)
        if step == 0:
            shown.on_train_begin(ARGS, state, control)
            continue
        shown.on_step_end(ARGS, state, control)
        if step == 1:
            shown.on_log(ARGS, state, control, logs={"loss": 0.5, "eval_macro_f1": 0.25, "epoch": 1.0})
    shown.on_train_end(ARGS, state, control)


def test_a_log_gets_a_line_now_and_then(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    clock = iter([0.0, 10.0, 31.0, 31.0, 40.0, 62.0, 62.0])
    monkeypatch.setattr(progress_bar.time, "monotonic", lambda: next(clock))
    monkeypatch.setattr(sys.stderr, "isatty", lambda: False)
    with caplog.at_level(logging.INFO):
        play(Progress(main_metric="macro_f1"), steps=4)
    assert caplog.messages == [
        "step 2 of 4, loss 0.5000, macro_f1 0.2500",
        "step 4 of 4, loss 0.5000, macro_f1 0.2500",
    ]


def test_a_terminal_gets_a_bar(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    play(Progress(main_metric="macro_f1"), steps=4)
    drawn = capsys.readouterr().err
    assert "4/4" in drawn
    assert "macro_f1=0.2500" in drawn
