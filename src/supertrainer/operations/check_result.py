"""What a check gathers: facts and tables in the order of the way of a run, and everything that is wrong."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from supertrainer.core.errors import Problem, SupertrainerError
from supertrainer.data.preview import RowView, TextView
from supertrainer.trainers.memory import MemoryEstimate, size_text

T = TypeVar("T")
Table = Sequence[Sequence[str]]
"""Rows of cells, the header first."""


@dataclass
class CheckResult:
    """What was found.

    Attributes:
        facts: name -> one line.
        tables: title -> table.
        views: split -> a few of its rows as the model sees them.
        estimate: memory of a process; None where it couldn't be made.
        problems: everything that is wrong.
        commits: node -> the commit that was taken from the Hub.
    """

    facts: dict[str, str] = field(default_factory=dict)
    tables: dict[str, Table] = field(default_factory=dict)
    views: dict[str, Sequence[RowView | TextView]] = field(default_factory=dict)
    estimate: MemoryEstimate | None = None
    problems: list[Problem] = field(default_factory=list)
    commits: dict[str, str] = field(default_factory=dict)

    def take_memory(self, estimate: MemoryEstimate) -> None:
        """Keeps an estimate, and makes a table of it."""
        self.estimate = estimate
        what = "GPU memory" if estimate.device == "gpu" else "memory beyond that at its start"
        whose = f"each of {estimate.processes} processes" if estimate.processes > 1 else "the process"
        at_once = f"{estimate.micro_batch_size} rows of {estimate.length} tokens at once"
        rows = [(name, size_text(size)) for name, size in estimate.parts.items()]
        rows.append((f"at once, in the {estimate.at}", size_text(estimate.peak)))
        if estimate.overhead is not None:
            rows.append(("CUDA's context and fragments", size_text(estimate.overhead)))
        self.tables[f"{what} of {whose}, estimated for {at_once}"] = [("part", "size"), *rows]

    def attempt(self, step: Callable[[], T]) -> T | None:
        """A step's value; None, and its problems kept, where it can't be done."""
        try:
            return step()
        except SupertrainerError as error:
            self.problems += error.problems
            return None
