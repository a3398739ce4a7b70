"""What loading a dataset did to its rows: part of a run's data.json and report."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import datasets


@dataclass
class LoadReport:
    """Counts by split. `read` and `dropped` are of the source's splits, `rows` and `labels` of the result."""

    read: dict[str, int] = field(default_factory=dict)
    dropped: dict[str, dict[str, int]] = field(default_factory=dict)
    repeated: dict[str, int] = field(default_factory=dict)  # kept rows whose text stood in the split before
    conflicting: dict[str, int] = field(default_factory=dict)  # kept texts that stand there with several labels
    made: dict[str, float] = field(default_factory=dict)  # shares of the train rows
    stratified: bool = False  # whether made splits keep the shares of the labels
    limited: dict[str, int] = field(default_factory=dict)  # rows left out by dataset.limits
    rows: dict[str, int] = field(default_factory=dict)
    labels: dict[str, dict[str, int]] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)

    def drop(self, split: str, reason: str, count: int) -> None:
        """Counts rows that a policy left out."""
        if count:
            reasons = self.dropped.setdefault(split, {})
            reasons[reason] = reasons.get(reason, 0) + count

    def as_dict(self) -> dict[str, Any]:
        """The report as JSON holds it."""
        return dict(vars(self))

    def lines(self) -> list[str]:
        """The report in plain words, a line a fact."""
        lines = [f"{split}: {count:,} rows read" for split, count in self.read.items()]
        lines += [
            f"{s}: {n:,} rows dropped: {why}" for s, reasons in self.dropped.items() for why, n in reasons.items()
        ]
        lines += [f"{split}: {count:,} rows repeat a text of the split" for split, count in self.repeated.items()]
        lines += [f"{split}: {count:,} texts stand with several labels" for split, count in self.conflicting.items()]
        how = ", stratified" if self.stratified else ""
        lines += [f"{split}: {share:.0%} of the train rows{how}" for split, share in self.made.items()]
        lines += [f"{split}: {count:,} rows left out by dataset.limits" for split, count in self.limited.items()]
        for split, count in self.rows.items():
            labels = ", ".join(f"{name} {rows:,}" for name, rows in self.labels.get(split, {}).items())
            lines.append(f"{split}: {count:,} rows" + (f" ({labels})" if labels else ""))
        return lines + self.notes


@dataclass(frozen=True)
class Splits(Mapping[str, "datasets.Dataset"]):
    """Split name -> rows, in the order train, validation, test; `report` says what was read, dropped and kept."""

    rows: Mapping[str, datasets.Dataset]
    report: LoadReport

    def __getitem__(self, split: str) -> datasets.Dataset:
        return self.rows[split]

    def __iter__(self) -> Iterator[str]:
        return iter(self.rows)

    def __len__(self) -> int:
        return len(self.rows)
