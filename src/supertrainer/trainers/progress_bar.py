"""How far training is, for people, on the first process: a bar on a terminal, a line now and then in a log."""

from __future__ import annotations

import logging
import sys
import time
from typing import Any

from tqdm.auto import tqdm

from supertrainer.core.distributed import is_main

log = logging.getLogger(__name__)

SECONDS_PER_LINE = 30.0  # a bar would write a line per step into the log of a job


class StepBar:
    """Steps done, and the last values beside them."""

    def __init__(self) -> None:
        self._bar: Any = None
        self._next_line: float | None = None  # where there is no terminal: when the next line is due
        self._total = 0
        self._shown: dict[str, str] = {}

    def open(self, *, total: int, done: int) -> None:
        """Begins to show, on the first process.

        Args:
            total: steps of the whole run.
            done: of them, before this start.
        """
        self._total = total
        if not is_main():
            return
        if sys.stderr.isatty():
            self._bar = tqdm(total=total, initial=done, desc="training", unit="step")
        else:
            self._next_line = time.monotonic() + SECONDS_PER_LINE

    def update(self, step: int) -> None:
        """A step is done."""
        if self._bar is not None:
            self._bar.update(step - self._bar.n)
        elif self._next_line is not None and time.monotonic() >= self._next_line:
            self._next_line = time.monotonic() + SECONDS_PER_LINE
            values = "".join(f", {name} {value}" for name, value in self._shown.items())
            log.info("step %d of %d%s", step, self._total, values)

    def show(self, name: str, value: float) -> None:
        """A value that stands beside the steps from now on."""
        self._shown[name] = f"{value:.4f}"
        if self._bar is not None:
            self._bar.set_postfix(self._shown)

    def close(self) -> None:
        """Ends it."""
        if self._bar is not None:
            self._bar.close()
            self._bar = None
