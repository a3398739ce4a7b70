"""The error tree. Every error says what is wrong, why it matters and how to mend it.

    SupertrainerError
    ├── ConfigError (ValueError)              exit code 2: the command or its config
    ├── DataError (ValueError)                exit code 2: rows, columns, labels, files
    ├── MissingDependencyError (ImportError)  exit code 2: a package that this choice needs
    ├── CheckpointError                       exit code 1: a step directory that can't be written or read
    └── LaunchError                           exit code 1: a lock, a job, a process

One error may carry several problems: a command is refused once, with everything that is wrong with it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

# Exit codes that no error has: of a run that was stopped at a checkpoint.
SAVED_NOT_REQUEUED = 75
INTERRUPTED = 130


@dataclass(frozen=True)
class Problem:
    """One thing that is wrong: `what` with the real values, `why` it is refused, `fix` that mends it."""

    what: str
    why: str = ""
    fix: str = ""

    def __str__(self) -> str:
        lines = [self.what]
        lines += [f"  Why: {self.why}"] if self.why else []
        lines += [f"  Fix: {self.fix}"] if self.fix else []
        return "\n".join(lines)


class SupertrainerError(Exception):
    """Base of every error that a user can reach."""

    exit_code = 1

    def __init__(self, what: str | Sequence[Problem], *, why: str = "", fix: str = "") -> None:
        self.problems = (Problem(what, why, fix),) if isinstance(what, str) else tuple(what)
        super().__init__(str(self))

    def __str__(self) -> str:
        return "\n".join(f"{type(self).__name__}: {problem}" for problem in self.problems)

    def __reduce__(self) -> tuple[type, tuple[tuple[Problem, ...]]]:
        return type(self), (self.problems,)  # errors cross process boundaries


class ConfigError(SupertrainerError, ValueError):
    """The command line or the config can't be run as given."""

    exit_code = 2


class DataError(SupertrainerError, ValueError):
    """Rows, columns, labels or files of a dataset are not what the config says."""

    exit_code = 2


class MissingDependencyError(SupertrainerError, ImportError):
    """A chosen option needs a package that isn't installed."""

    exit_code = 2


class CheckpointError(SupertrainerError):
    """A step directory can't be written, or none can be read."""


class LaunchError(SupertrainerError):
    """A run, process or job can't be started or went away."""


def raise_all(error: type[SupertrainerError], problems: Iterable[Problem]) -> None:
    """Raises `error` with every problem at once; returns where there is none."""
    found = tuple(problems)
    if found:
        raise error(found)
