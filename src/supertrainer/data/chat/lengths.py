"""Rows of more than max_length tokens: refused, left out, cut on one side, or made into several rows."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from supertrainer.data.chat.encoding import IGNORED, TokenRows
from supertrainer.data.findings import Findings, Kind
from supertrainer.data.schema import TooLong


def fit_lengths(
    rows: TokenRows,
    *,
    max_length: int,
    policy: TooLong,
    begin: int | None,
    end: int | None,
    place: Callable[[int], str],
    where: str,
) -> tuple[TokenRows, list[str]]:
    """Brings rows to at most `max_length` tokens.

    left: the newest tokens stay, behind the token that begins a text where the row had one; a system turn goes with the
    oldest ones. right: the first tokens stay. split: consecutive rows, each with the token that begins a text where the
    first has it, so that all are read as texts; those without anything to learn are left out. Tokens of pictures always
    stay.

    Args:
        begin: the token that begins a text; None where there is none.
        end: the token that ends one, which may be the same.
        place: the place of a conversation, by its number.
        where: the split, for messages.

    Returns:
        The rows, and a line that says what became of the long ones.

    Raises:
        DataError: with the policy `error`, naming the long rows; or pictures leave no room for text.
    """
    long = [index for index, ids in enumerate(rows.ids) if len(ids) > max_length]
    if not long:
        return rows, []
    if policy == "error":
        _refuse(rows, long, max_length=max_length, place=place, where=where)
    if policy in ("left", "right"):
        _refuse_pictures(rows, max_length=max_length, place=place, where=where)
    kept = rows.emptied()
    pieces = empty = cut = touched = 0
    columns = (rows.ids, rows.labels, rows.numbers, rows.truncated, rows.fixed)
    for ids, labels, number, truncated, fixed in zip(*columns, strict=True):
        if len(ids) <= max_length:
            kept.add(ids, labels, number, truncated=truncated, fixed=fixed)
        elif policy == "split":
            for part in _parts(len(ids), max_length, has_begin=_begins(ids, begin, end=end)):
                if _learns(labels[part]):
                    kept.add(ids[part], labels[part], number)
                    pieces += 1
                else:
                    empty += 1
        elif policy != "drop":
            part = _side(
                len(ids), max_length, left=policy == "left", has_begin=_begins(ids, begin, end=end), fixed=fixed
            )
            lost = np.count_nonzero(labels != IGNORED) - np.count_nonzero(labels[part] != IGNORED)
            cut, touched = cut + int(lost), touched + bool(lost)
            kept.add(ids[part], labels[part], number, truncated=True, fixed=None if fixed is None else fixed[part])
    note = f"{len(long):,} of {len(rows):,} rows are longer than {max_length} tokens"
    if policy == "drop":
        return kept, [f"{note} and were left out (on_too_long=drop)."]
    if policy == "split":
        gone = f", {empty:,} more had nothing to learn" if empty else ""
        return kept, [f"{note} and became {pieces:,} rows{gone} (on_too_long=split)."]
    return kept, [f"{note} and were cut on the {policy}; {cut:,} tokens of the answers of {touched:,} rows were lost."]


def _refuse(rows: TokenRows, long: list[int], *, max_length: int, place: Callable[[int], str], where: str) -> None:
    findings = Findings()
    longest = max(len(rows.ids[index]) for index in long)
    kind = Kind(
        f"rows longer than dataset.max_length={max_length} tokens",
        why="a cut would take answers away.",
        fix=f"dataset.max_length={longest}, or dataset.on_too_long=drop, left"
        + (" or right." if any(fixed is not None for fixed in rows.fixed) else ", right or split."),
    )
    for index in sorted(long, key=lambda index: -len(rows.ids[index])):
        findings.add(kind, where=where, place=f"{place(rows.numbers[index])} ({len(rows.ids[index]):,})")
    findings.raise_if_any()


def _refuse_pictures(rows: TokenRows, *, max_length: int, place: Callable[[int], str], where: str) -> None:
    """Refuses rows whose pictures leave no room for text."""
    findings = Findings()
    needed = {index: int(fixed.sum()) + 2 for index, fixed in enumerate(rows.fixed) if fixed is not None}
    long = {index: count for index, count in needed.items() if count > max_length and len(rows.ids[index]) > max_length}
    kind = Kind(
        f"rows whose pictures alone fill dataset.max_length={max_length} tokens",
        why="text can be cut, a picture can't: the model expects every token of it.",
        fix=f"dataset.max_length={max(long.values(), default=0)} and more for the text, smaller pictures, or "
        "dataset.on_too_long=drop.",
    )
    for index, count in long.items():
        findings.add(kind, where=where, place=f"{place(rows.numbers[index])} ({count - 2:,})")
    findings.raise_if_any()


def _side(length: int, most: int, *, left: bool, has_begin: bool, fixed: np.ndarray | None) -> np.ndarray:
    if fixed is not None and fixed.any():
        staying = fixed.copy()
        staying[:1] |= has_begin
        free = np.flatnonzero(~staying)
        room = most - int(staying.sum())
        return np.sort(np.concatenate([np.flatnonzero(staying), free[len(free) - room :] if left else free[:room]]))
    if not left:
        return np.arange(most)
    return _with_begin(np.arange(length - most + has_begin, length), has_begin)


def _parts(length: int, most: int, *, has_begin: bool) -> list[np.ndarray]:
    step = most - has_begin
    starts = range(int(has_begin), length, step)
    return [_with_begin(np.arange(start, min(start + step, length)), has_begin) for start in starts]


def _with_begin(indices: np.ndarray, has_begin: bool) -> np.ndarray:
    return np.concatenate([[0], indices]) if has_begin else indices


def _begins(ids: np.ndarray, begin: int | None, *, end: int | None) -> bool:
    """Whether a text begins with the token that is for that alone: some models begin every turn with it. Where it ends
    texts too, further ones are ends.
    """
    return bool(ids[0] == begin) and (begin == end or not bool(np.any(ids[1:] == begin)))


def _learns(labels: np.ndarray) -> bool:
    return bool(np.any(labels[1:] != IGNORED))
