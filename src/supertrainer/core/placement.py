"""Where a run will be executed: here, or by a job with processes and devices of its own."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass

from supertrainer.core.distributed import world_size
from supertrainer.core.environment import has_gpu

_planned: ContextVar[Placement | None] = ContextVar("planned_placement", default=None)


@dataclass(frozen=True)
class Placement:
    """How many processes train together, and whether they have GPUs."""

    processes: int
    has_gpu: bool


def placement() -> Placement:
    """The placement that is planned, else that of this process."""
    return _planned.get() or Placement(world_size(), has_gpu())


@contextmanager
def planned(there: Placement) -> Iterator[None]:
    """Inside, what is checked is checked for another place than this machine."""
    token = _planned.set(there)
    try:
        yield
    finally:
        _planned.reset(token)
