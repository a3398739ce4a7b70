"""What became of every row, for programs (report.json) and for people (report.md, and the terminal)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from supertrainer.data.prepare.ledger import Ledger
from supertrainer.data.prepare.record import SHOWN
from supertrainer.data.schema import SPLITS

MALFORMED = "malformed"
_LABELS_SHOWN = 30


@dataclass
class DropTally:
    """Rows that one rule dropped: how many, and the first of them."""

    count: int = 0
    examples: list[dict[str, Any]] = field(default_factory=list)

    def add(self, *, file: str, row: int, field: str, why: str) -> None:
        """Counts a row."""
        self.count += 1
        if len(self.examples) < SHOWN:
            self.examples.append({"file": file, "row": row, "field": field, "why": why})


@dataclass
class PrepareReport:
    """The report of one preparation; everything in it follows from source and settings alone."""

    source: str
    layout: str = ""
    task: str = ""
    columns: list[str] = field(default_factory=list)
    why: list[str] = field(default_factory=list)
    settings: dict[str, Any] = field(default_factory=dict)
    rules: list[str] = field(default_factory=list)
    files: dict[str, Any] = field(default_factory=dict)
    ignored: list[str] = field(default_factory=list)
    read: int = 0
    kept: int = 0
    changed: Counter[str] = field(default_factory=Counter)
    dropped: dict[str, DropTally] = field(default_factory=dict)
    notes: dict[str, Any] = field(default_factory=dict)
    splits: dict[str, Any] = field(default_factory=dict)
    across_splits: dict[str, int] = field(default_factory=dict)
    conflicts: dict[str, Any] = field(default_factory=dict)

    @property
    def dropped_rows(self) -> int:
        """Rows that are in no split."""
        return sum(tally.count for tally in self.dropped.values())

    def drop(self, rule: str, *, file: str, row: int, field: str, why: str) -> None:
        """Counts a dropped row."""
        self.dropped.setdefault(rule, DropTally()).add(file=file, row=row, field=field, why=why)

    def as_dict(self) -> dict[str, Any]:
        """The report as JSON holds it."""
        dropped = {rule: {"rows": tally.count, "examples": tally.examples} for rule, tally in self.dropped.items()}
        return {**vars(self), "changed": dict(self.changed), "dropped": dropped, "dropped_rows": self.dropped_rows}


def describe_splits(ledger: Ledger, kept: npt.NDArray[np.bool_], splits: npt.NDArray[np.int8]) -> dict[str, Any]:
    """Rows, labels and lengths of every split that has rows."""
    strata = ledger.strata()
    characters, words = ledger.lengths()
    described: dict[str, Any] = {}
    for number, split in enumerate(SPLITS):
        rows = kept & (splits == number)
        if not rows.any():
            continue
        labels: Counter[str] = Counter()
        counts = np.bincount(strata[rows], minlength=len(ledger.stratum_labels)).tolist()
        for names, count in zip(ledger.stratum_labels, counts, strict=True):
            labels.update(dict.fromkeys(names, count))
        described[split] = {
            "rows": int(rows.sum()),
            "labels": {name: labels[name] for name in sorted(labels) if labels[name]},
            "characters": _spread(characters[rows]),
            "words": _spread(words[rows]),
        }
    return described


def unlearnt_labels(splits: Mapping[str, Any]) -> Iterator[str]:
    """A note for every split with labels that no train row has: no dataset takes them."""
    known = splits.get("train", {}).get("labels", {})
    for split, described in splits.items():
        if known and (strange := [label for label in described["labels"] if label not in known]):
            yield f"labels of {split} that no train row has (rules rename_labels, drop_labels): {', '.join(strange)}"


def _spread(values: npt.NDArray[np.int64]) -> dict[str, int]:
    ordered = np.sort(values)
    at = {"min": 0.0, "median": 0.5, "p95": 0.95, "max": 1.0}
    return {name: int(ordered[round(share * (len(ordered) - 1))]) for name, share in at.items()}


def report_lines(report: PrepareReport) -> Iterator[str]:
    """The report in Markdown, a line each; it reads well in a terminal too."""
    yield f"# {report.source}: {report.layout} → {report.task}"
    yield ""
    yield from (f"- {why}" for why in report.why)
    yield f"- columns written: {', '.join(report.columns)}"
    yield f"- rules: {', '.join(report.rules) or 'none'}"
    if report.ignored:
        more = f" and {len(report.ignored) - SHOWN} more" if len(report.ignored) > SHOWN else ""
        yield f"- files left alone: {', '.join(report.ignored[:SHOWN])}{more}"
    yield ""
    share = f" ({report.dropped_rows / report.read:.1%})" if report.read else ""
    kept = f", {report.kept:,} kept" if report.splits else ""  # not known where an error came first
    yield f"{report.read:,} rows read{kept}, {report.dropped_rows:,} dropped{share}."
    yield from _dropped(report)
    yield from _notes(report)
    yield from _splits(report.splits)


def _dropped(report: PrepareReport) -> Iterator[str]:
    if report.dropped:
        yield from ("", "## Dropped", "")
    for rule, tally in report.dropped.items():
        yield f"- {rule}: {tally.count:,} row{'s' * (tally.count != 1)}"
        for example in tally.examples:
            yield f"    - {example['file']}:{example['row']} {example['field']} {example['why']}"
        if tally.count > len(tally.examples):
            yield f"    - and {tally.count - len(tally.examples):,} more"


def _notes(report: PrepareReport) -> Iterator[str]:
    lines = [f"- {rule} changed {count:,} rows" for rule, count in report.changed.items()]
    for what, note in report.notes.items():
        lines.append(f"- {what}: {note['count']:,} ({', '.join(note['places'])})" if note else f"- {what}")
    if report.conflicts:
        lines.append(
            f"- {report.conflicts['rows']:,} rows have a text that stands with different labels "
            f"({', '.join(report.conflicts['places'])}); the rule drop_conflicts takes them out"
        )
    lines += [
        f"- {count:,} texts stand in {pair.replace('/', ' and ')}" for pair, count in report.across_splits.items()
    ]
    if lines:
        yield from ("", "## Noted", "", *lines)


def _splits(splits: Mapping[str, Any]) -> Iterator[str]:
    if not splits:
        return
    yield from ("", "## Splits", "")
    header = ["", *splits]
    rows = [["rows", *(f"{split['rows']:,}" for split in splits.values())]]
    for what in ("words", "characters"):
        cells = [f"{s[what]['median']:,} ({s[what]['min']:,} to {s[what]['max']:,})" for s in splits.values()]
        rows.append([f"{what}: median (range)", *cells])
    labels = sorted({label for split in splits.values() for label in split["labels"]})
    for label in labels[:_LABELS_SHOWN]:
        rows.append([f"label {label}", *(f"{split['labels'].get(label, 0):,}" for split in splits.values())])
    table = [header, *rows]
    widths = [max(len(row[column]) for row in table) for column in range(len(header))]
    for number, row in enumerate(table):
        cells = [cell.replace("|", "\\|").ljust(width) for cell, width in zip(row, widths, strict=True)]
        yield f"| {' | '.join(cells)} |"
        if number == 0:
            yield f"|{'|'.join('-' * (width + 2) for width in widths)}|"
    if len(labels) > _LABELS_SHOWN:
        yield f"\nand {len(labels) - _LABELS_SHOWN:,} more labels, which report.json has."
