"""Which rows go to validation and test: seeded, stratified by label, groups and repeated texts kept together."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt

from supertrainer.core.errors import DataError
from supertrainer.data.prepare.ledger import Ledger
from supertrainer.data.schema import SPLITS
from supertrainer.data.splitting import quotas

Indices = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]


def divide_rows(
    ledger: Ledger, kept: Mask, *, shares: Mapping[str, float], stratify: bool
) -> tuple[npt.NDArray[np.int8], list[str]]:
    """Takes the made splits out of the kept train rows.

    Rows with one label are divided label by label, to the row. Groups, several labels and tags have no exact answer:
    there each unit goes where it brings all counts nearest to their shares, large units and rare labels first.

    Returns:
        (N,) the number of every row's split, and what there is to say about it.

    Raises:
        DataError: there are fewer units than splits.
    """
    splits = ledger.splits()
    if not shares:
        return splits, []
    rows = np.flatnonzero(kept & (splits == 0))
    groups = ledger.groups()
    units = ledger.units() if groups is None else _joined(groups, ledger.units(), kept)
    _, first, unit = np.unique(units[rows], return_index=True, return_inverse=True)
    unit = unit.reshape(-1)
    made = [split for split in SPLITS if split in shares]
    if len(first) < 1 + len(made):
        what = "groups" if groups is not None else "different texts"
        raise DataError(
            f"{len(rows)} rows are {len(first)} {what}: too few for train, {' and '.join(made)}.",
            fix="more rows, fewer splits (--splits test=0.1), or --splits none.",
        )
    draws = ledger.draws(by_group=groups is not None)[rows[first]]
    strata = ledger.strata()[rows]
    several = any(len(names) > 1 for names in ledger.stratum_labels) or ledger.shape.target_kind in ("labels", "tags")
    if groups is None and not (stratify and several):
        strata = strata if stratify else np.zeros_like(strata)
        chosen, alone = _by_stratum(unit, strata[first], draws, [shares[split] for split in made])
    else:
        counts = _counts(unit, strata, ledger.stratum_labels if stratify else [()] * len(ledger.stratum_labels))
        chosen, alone = _greedy(counts, draws, [shares[split] for split in made]), []
    numbers = np.array([0, *(SPLITS.index(split) for split in made)], dtype=np.int8)
    splits[rows] = numbers[chosen[unit]]
    missing = [split for split, number in zip(made, numbers[1:], strict=True) if not (splits[rows] == number).any()]
    if missing:
        raise DataError(
            f"no row went to {' or '.join(missing)}.",
            why=f"the {len(first)} units that stay together are too large for these shares.",
            fix="larger shares, smaller groups, or --splits none.",
        )
    labels = sorted({", ".join(ledger.stratum_labels[number]) for number in alone})
    notes = [f"labels with too few different texts for every split, all of them in train: {'; '.join(labels)}"]
    return splits, notes if alone else []


def _by_stratum(
    unit: Indices, strata: Indices, draws: npt.NDArray[np.uint64], shares: Sequence[float]
) -> tuple[Indices, list[int]]:
    """The split of every unit (0: train), and the strata that are too small to be divided."""
    sizes = np.bincount(unit)
    chosen = np.zeros(len(sizes), dtype=np.int64)
    order = np.lexsort((draws, strata))
    ordered = strata[order]
    borders = np.flatnonzero(np.diff(ordered)) + 1
    members = {int(strata[part[0]]): part for part in np.split(order, borders)}
    counts = {str(number): int(sizes[part].sum()) for number, part in members.items()}
    wanted = [quotas(counts, round(share * int(sizes.sum()))) for share in shares]
    alone: list[int] = []
    for number, part in members.items():
        if len(part) < 1 + len(shares):
            alone.append(number)
            continue
        start = 0
        for position, quota in enumerate(wanted, start=1):
            filled = np.cumsum(sizes[part[start:]])
            taken = int(np.searchsorted(filled, max(quota[str(number)], 1))) + 1
            taken = max(1, min(taken, len(part) - start - (1 + len(shares) - position)))  # the others need one each
            chosen[part[start : start + taken]] = position
            start += taken
    return chosen, alone


def _counts(unit: Indices, strata: Indices, labels: Sequence[tuple[str, ...]]) -> npt.NDArray[np.float64]:
    """(units, 1 + labels): rows of each unit, and how many of them have each label."""
    names = sorted({name for several in labels for name in several})
    has = np.zeros((len(labels), 1 + len(names)))
    has[:, 0] = 1
    for number, several in enumerate(labels):
        has[number, [1 + names.index(name) for name in several]] = 1
    counts = np.zeros((int(unit.max()) + 1, 1 + len(names)))
    np.add.at(counts, unit, has[strata])
    return counts


def _greedy(counts: npt.NDArray[np.float64], draws: npt.NDArray[np.uint64], shares: Sequence[float]) -> Indices:
    """The split of every unit: where the squared distance to the wanted counts, relative to them, grows least."""
    totals = counts.sum(axis=0)
    wanted = np.outer([1 - sum(shares), *shares], totals)  # (splits, labels)
    scale = np.where(wanted > 0, wanted, 1)
    have = np.zeros_like(wanted)
    rarest = np.where(counts > 0, totals, np.inf).min(axis=1)
    chosen = np.zeros(len(counts), dtype=np.int64)
    for number in np.lexsort((draws, rarest, -counts[:, 0])):
        added = counts[number]
        cost = ((2 * (have - wanted) + added) * added / scale).sum(axis=1)
        best = int(cost.argmin())
        chosen[number] = best
        have[best] += added
    return chosen


def _joined(groups: Indices, units: Indices, kept: Mask) -> Indices:
    """Groups that share a text are one: a number a row, the same for rows that have to stay together."""
    parent = np.arange(len(groups))

    def root(number: int) -> int:
        while parent[number] != number:
            parent[number] = parent[parent[number]]
            number = int(parent[number])
        return number

    for row in np.flatnonzero(kept & (groups != groups[units])):
        one, other = sorted((root(int(groups[row])), root(int(groups[units[row]]))))
        parent[other] = one
    return np.array([root(int(number)) for number in groups])
