"""Ctrl-C, SIGTERM and SIGUSR1 ask for an end after the step that is being made; all processes agree on it."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
import time
from collections.abc import Iterator
from types import FrameType

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1)
# torchrun hands a Ctrl-C on to processes that the terminal has told already: so soon after, it is the same one.
SAME_REQUEST_SECONDS = 2.0


class StopRequest:
    """What a process was asked by a signal.

    Attributes:
        reason: the signal that this process got; empty where it got none.
    """

    def __init__(self) -> None:
        self.reason = ""
        self._received: float | None = None

    @property
    def received(self) -> bool:
        """Whether this process got a signal."""
        return self._received is not None

    @contextlib.contextmanager
    def listening(self) -> Iterator[None]:
        """Takes the signals while it is open; the handlers before come back at the end."""
        if threading.current_thread() is not threading.main_thread():  # Python allows handlers only there
            yield
            return
        before = {number: signal.signal(number, self._handle) for number in SIGNALS}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler if handler is not None else signal.SIG_DFL)

    def _handle(self, number: int, frame: FrameType | None) -> None:
        now = time.monotonic()
        if self._received is None:
            self._received, self.reason = now, signal.Signals(number).name
            # A handler may run in the middle of a write to the log, which must not be entered twice.
            text = f"\n{signal.Signals(number).name}: saving after this step, then stopping; again to stop at once.\n"
            os.write(2, text.encode())
        elif number == signal.SIGINT and now - self._received > SAME_REQUEST_SECONDS:
            raise KeyboardInterrupt
