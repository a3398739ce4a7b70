"""Which updates are left out: those that aren't finite, and those far above the ones before."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any

from supertrainer.trainers.pretrain_schema import GuardConfig


class Guard:
    """Judges every update by its loss and its gradient norm, which are the same numbers on every process.

    Attributes:
        skipped: updates left out in the whole run.
        in_a_row: updates left out since the last one that was made.
        reason: why the last of those was; empty where the last update was made.
    """

    def __init__(self, config: GuardConfig) -> None:
        self._config = config
        self._losses: deque[float] = deque(maxlen=config.window)
        self._norms: deque[float] = deque(maxlen=config.window)
        self.skipped = 0
        self.in_a_row = 0
        self.reason = ""

    def judge(self, *, loss: float, grad_norm: float) -> str:
        """Why this update must be left out; empty where it may be made. The update is counted either way."""
        reason = self.reason = self._reason(loss, grad_norm)
        if reason:
            self.skipped += 1
            self.in_a_row += 1
        else:
            self.in_a_row = 0
            self._losses.append(loss)
            self._norms.append(grad_norm)
        return reason

    @property
    def spiked(self) -> bool:
        """Whether the last update was left out although it was finite."""
        return "deviations" in self.reason

    @property
    def has_given_up(self) -> bool:
        """Whether so many updates in a row were left out that more won't help."""
        return self.in_a_row >= self._config.stop_after

    def state(self) -> dict[str, Any]:
        """As JSON can hold it."""
        return {
            "skipped": self.skipped,
            "in_a_row": self.in_a_row,
            "losses": list(self._losses),
            "norms": list(self._norms),
        }

    def load(self, state: Mapping[str, Any]) -> None:
        """Goes on from a state."""
        self.skipped, self.in_a_row = int(state["skipped"]), int(state["in_a_row"])
        self._losses.extend(state["losses"])
        self._norms.extend(state["norms"])

    def _reason(self, loss: float, grad_norm: float) -> str:
        if not math.isfinite(loss):
            return f"its loss is {loss}"
        if not math.isfinite(grad_norm):
            return f"its gradient norm is {grad_norm}"
        sigmas = self._config.spike_sigmas
        if sigmas is None or len(self._losses) < self._config.window:
            return ""
        for name, value, before in (("loss", loss, self._losses), ("gradient norm", grad_norm, self._norms)):
            mean, deviation = _moments(before)
            if value - mean > sigmas * deviation > 0:
                return (
                    f"its {name} {value:.4g} is {(value - mean) / deviation:.1f} deviations above the mean {mean:.4g}"
                )
        return ""


def _moments(values: Sequence[float]) -> tuple[float, float]:
    mean = math.fsum(values) / len(values)
    return mean, math.sqrt(math.fsum((value - mean) ** 2 for value in values) / len(values))
