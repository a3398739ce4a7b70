"""What is wrong with rows, gathered one by one and told as one problem of each kind."""

from __future__ import annotations

from dataclasses import dataclass, field

from supertrainer.core.errors import DataError, Problem, raise_all

SHOWN = 5


@dataclass(frozen=True)
class Kind:
    """A kind of faulty rows: `rows without text` is told as `train: rows without text (3): train.csv:4, …`.

    `short` is what a report says of such rows that were dropped; empty for `what` without the word rows.
    """

    what: str
    why: str = ""
    fix: str = ""
    short: str = ""

    @property
    def reason(self) -> str:
        """Why rows were dropped."""
        return self.short or self.what.removeprefix("rows ")


@dataclass
class Findings:
    """Collects faulty rows and whole problems; `raise_if_any` tells them all at once."""

    problems: list[Problem] = field(default_factory=list)
    _faults: dict[tuple[str, Kind], list[str]] = field(default_factory=dict)
    _remarks: dict[str, list[str]] = field(default_factory=dict)

    def add(self, kind: Kind, *, where: str, place: str) -> None:
        """Notes one row: `where` is the split or file that is counted together, `place` the row (`train.csv:17`)."""
        self._faults.setdefault((where, kind), []).append(place)

    def remark(self, what: str, *, place: str) -> None:
        """Notes what is no fault, but belongs into the report."""
        self._remarks.setdefault(what, []).append(place)

    def remarks(self) -> list[str]:
        """The remarks, one line of each kind."""
        return [f"{what}: {_shown(places)}." for what, places in self._remarks.items()]

    def add_problem(self, what: str, *, why: str = "", fix: str = "") -> None:
        """Notes what is wrong with a file, a column or a split as a whole."""
        self.problems.append(Problem(what, why, fix))

    def add_error(self, error: DataError) -> None:
        """Keeps the problems of an error that ended the reading of one file, so that the other files are read too."""
        self.problems.extend(error.problems)

    @property
    def is_empty(self) -> bool:
        """Whether nothing is wrong so far."""
        return not self.problems and not self._faults

    def raise_if_any(self) -> None:
        """Raises DataError with every problem; rows of one kind are counted and the first five places named."""
        told = [
            Problem(f"{where}: {kind.what} ({len(places)}): {_shown(places)}.", kind.why, kind.fix)
            for (where, kind), places in self._faults.items()
        ]
        raise_all(DataError, [*told, *self.problems])


def _shown(places: list[str]) -> str:
    rest = len(places) - SHOWN
    return ", ".join(places[:SHOWN]) + (f" and {rest} more" if rest > 0 else "")
