"""The rules that look at all rows: repeats, contradictions, rare labels, rows in two splits."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from supertrainer.data.prepare.ledger import Ledger
from supertrainer.data.prepare.rules import KINDS, Rule
from supertrainer.data.schema import SPLITS

Mask = npt.NDArray[np.bool_]
Indices = npt.NDArray[np.int64]
ACROSS = "stands in a later split"


@dataclass(frozen=True)
class Removal:
    """Rows that a rule takes out: their indices, and why each one goes."""

    rule: str
    indices: Indices
    field: str
    why: Callable[[int], str]


def apply_set_rules(rules: Sequence[Rule], ledger: Ledger, kept: Mask) -> list[Removal]:
    """Applies the rules in their order; `kept` (N,) is changed in place."""
    removals: list[Removal] = []
    for rule in rules:
        if KINDS[rule.name].looks_at_all:
            removal = _RULES[rule.name](rule, ledger, kept)
            kept[removal.indices] = False
            removals.append(removal)
    return removals


def remove_across(ledger: Ledger, kept: Mask) -> Removal:
    """Rows of a split whose text stands in a later one: train rows go first, then validation rows."""
    units, splits = ledger.units(), ledger.splits()
    last = np.full(len(ledger), -1, dtype=np.int8)
    np.maximum.at(last, units[kept], splits[kept])
    indices = np.flatnonzero(kept & (splits < last[units]))
    return Removal(
        ACROSS, indices, _unit_field(ledger), lambda index: f"its text stands in {SPLITS[last[units[index]]]}"
    )


def count_across(ledger: Ledger, kept: Mask, splits: npt.NDArray[np.int8]) -> dict[str, int]:
    """Texts that stand in two splits: `train/test` -> count."""
    units = ledger.units()
    found: dict[str, int] = {}
    for second in range(1, len(SPLITS)):
        for first in range(second):
            both = np.intersect1d(units[kept & (splits == first)], units[kept & (splits == second)])
            found |= {f"{SPLITS[first]}/{SPLITS[second]}": len(both)} if len(both) else {}
    return found


def conflicting(ledger: Ledger, kept: Mask) -> Mask:
    """(N,) whether a row's text stands with different labels among the rows that are kept."""
    units, targets = ledger.units(), ledger.targets()
    first = np.full(len(ledger), -1, dtype=np.int64)
    where = np.flatnonzero(kept)
    first[units[where[::-1]]] = targets[where[::-1]]  # the earliest row is written last
    differs = np.zeros(len(ledger), dtype=bool)
    differs[units[where[targets[where] != first[units[where]]]]] = True
    return kept & differs[units]


def _duplicates(rule: Rule, ledger: Ledger, kept: Mask) -> Removal:
    contents, splits = ledger.contents(), ledger.splits()
    where = np.flatnonzero(kept)
    pairs = np.stack([contents[where], splits[where].astype(np.int64)], axis=1)
    _, firsts, inverse = np.unique(pairs, axis=0, return_index=True, return_inverse=True)
    first = where[firsts][inverse.reshape(-1)]
    again = where != first
    before = dict(zip(where[again].tolist(), first[again].tolist(), strict=True))
    return Removal(str(rule), where[again], _unit_field(ledger), lambda index: f"repeats {ledger.place(before[index])}")


def _conflicts(rule: Rule, ledger: Ledger, kept: Mask) -> Removal:
    found = np.flatnonzero(conflicting(ledger, kept))
    field = next((name for name in ledger.shape.columns if name not in ledger.shape.unit), "label")
    return Removal(str(rule), found, field, lambda index: "its text stands with different labels")


def _rare(rule: Rule, ledger: Ledger, kept: Mask) -> Removal:
    strata = ledger.strata()
    rows = np.bincount(strata[kept], minlength=len(ledger.stratum_labels)).tolist()
    counts: Counter[str] = Counter()
    for names, count in zip(ledger.stratum_labels, rows, strict=True):
        counts.update(dict.fromkeys(names, count))
    rare = {
        number: next(name for name in names if counts[name] < rule.value)
        for number, names in enumerate(ledger.stratum_labels)
        if any(counts[name] < rule.value for name in names)
    }
    indices = np.flatnonzero(kept & np.isin(strata, list(rare)))
    field = next((n for n, kind in ledger.shape.columns.items() if kind in ("label", "labels", "tags")), "label")

    def why(index: int) -> str:
        name = rare[int(strata[index])]
        return f"is {name!r}, which {counts[name]} rows have"

    return Removal(str(rule), indices, field, why)


def _unit_field(ledger: Ledger) -> str:
    return ", ".join(ledger.shape.unit)


_RULES: dict[str, Callable[[Rule, Ledger, Mask], Removal]] = {
    "drop_duplicates": _duplicates,
    "drop_conflicts": _conflicts,
    "drop_rare_labels": _rare,
}
