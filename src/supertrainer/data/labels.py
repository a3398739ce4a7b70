"""The names of labels: mapped, declared or learnt from the train rows, and what is wrong with them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from supertrainer.core import iob2
from supertrainer.data.findings import Findings, Kind
from supertrainer.data.rows import Rows
from supertrainer.data.schema import BertDatasetConfig
from supertrainer.data.validation import RowChecks
from supertrainer.data.values import names_in

MAPPED = (
    "mend the labels, or list all of them in dataset.labels (or map them to names: dataset.labels={0: bad, 1: good})."
)
GREATEST = 1e18  # number whose squared errors float32 can add up
UNEQUAL = Kind(
    "rows with another number of tags than of words",
    fix="one tag for every word; dataset.columns says which columns they are.",
)
BROKEN = Kind(
    "rows with an I- tag that goes on from no B- or I- of its type",
    why="in IOB2 a span begins with B-.",
    fix="mend the tags, or dataset.on_broken_tags=repair makes a B- of it (as for IOB1 files).",
)


def renamed(split: str, rows: Rows, config: BertDatasetConfig, checks: RowChecks) -> Rows:
    """The rows with the names that `dataset.labels` maps their labels to, where it maps any."""
    names = config.labels
    if not isinstance(names, dict):
        return rows
    what = f"rows with a label that dataset.labels doesn't map (it has {listed(list(names))})"
    rows = checks.with_labels_of(split, rows, list(names), what=what, fix="map it too, or mend the labels.")
    labels = [
        [names[item] for item in label] if isinstance(label, list) else names[label] for label in rows.columns["label"]
    ]
    return Rows({**rows.columns, "label": labels}, rows.places)


def declared_names(config: BertDatasetConfig, splits: Mapping[str, Rows]) -> tuple[str, ...]:
    """The label names that the config or the data itself lists; empty where neither does."""
    given = config.labels
    if given is not None:
        return tuple(dict.fromkeys(given.values() if isinstance(given, dict) else given))
    return next((rows.class_names for rows in splits.values() if rows.class_names is not None), ())


def known_labels(splits: Mapping[str, Rows], names: Sequence[str], checks: RowChecks) -> dict[str, Rows]:
    """The rows whose labels are declared."""
    what = f"rows with a label that is none of {listed(names)}"
    return {s: checks.with_labels_of(s, rows, names, what=what, fix=MAPPED) for s, rows in splits.items()}


def learnt_names(
    splits: dict[str, Rows], declared: tuple[str, ...], checks: RowChecks, *, column: str, several: bool = False
) -> tuple[tuple[str, ...], dict[str, Rows]]:
    """The label names of a model to be trained, and the rows whose labels its train rows can teach it.

    Args:
        several: a row has any number of labels, so that one label alone can be told from none.
    """
    if "train" not in splits:
        if not declared:
            why = "a label's id is its place among the train rows' labels."
            checks.findings.add_problem("there are no train rows.", why=why, fix="list the labels in dataset.labels.")
        return declared, splits
    counts = count_labels(splits["train"])
    spans = iob2.is_iob2(declared or counts) and any(label != iob2.OUTSIDE for label in counts)
    trained = iob2.full_scheme(counts) if spans else tuple(sorted(counts, key=_order))
    names = declared or trained
    learnt = [name for name in names if name in trained]
    if several:
        _check_sets(splits["train"], column=column, findings=checks.findings)
    if not several or len(learnt) != 1:
        _check_choice(learnt, rows=sum(counts.values()), column=column, findings=checks.findings)
    what, fix = "rows with a label that no train row has", "add train rows of it, or take these rows out."
    return names, {s: checks.with_labels_of(s, rows, learnt, what=what, fix=fix) for s, rows in splits.items()}


def count_labels(rows: Rows) -> Counter[str]:
    """How often every label stands in the rows; tags are counted by words."""
    return Counter(label for value in rows.columns["label"] for label in names_in(value))


def aligned_tags(split: str, rows: Rows, config: BertDatasetConfig, checks: RowChecks) -> Rows:
    """The rows that have a tag for every word, their tags in IOB2 where they are of that kind."""
    faulty: set[int] = set()
    tags = list(rows.columns["label"])
    of_spans = iob2.is_iob2(tag for row in tags for tag in names_in(row))
    mended = 0
    for index, (words, row) in enumerate(zip(rows.columns["text"], tags, strict=True)):
        if words is None or row is None:
            continue
        if len(words) != len(row):
            faulty.add(index)
            place = f"{rows.places[index]} ({len(words)} words, {len(row)} tags)"
            checks.findings.add(UNEQUAL, where=split, place=place)
        elif of_spans and (wrong := iob2.broken(row)):
            if config.on_broken_tags == "error":
                faulty.add(index)
                place = f"{rows.places[index]} (word {wrong[0] + 1}: {row[wrong[0]]})"
                checks.findings.add(BROKEN, where=split, place=place)
            mended += len(wrong)
            tags[index] = iob2.repaired(row)
    if mended and config.on_broken_tags == "repair":
        checks.findings.remark("An I- tag that began a span became a B-", place=f"{split}, {mended:,} of them")
    return Rows({**rows.columns, "label": tags}, rows.places, rows.class_names).without(faulty)


def learnable_numbers(rows: Rows, *, column: str, findings: Findings) -> None:
    """Notes numbers that are all the same, from which nothing can be learnt, or too great for the loss."""
    values = rows.columns["label"]
    if (greatest := max(values, key=abs, default=0.0)) and abs(greatest) > GREATEST:
        findings.add_problem(
            f"the column {column!r} holds the number {greatest:g}.",
            why="the loss is a squared error in 32 bits, and would be infinite at the first step.",
            fix="numbers of a moderate size: divided by their greatest, or their logarithms.",
        )
    if values and len(set(values)) < 2:
        findings.add_problem(
            f"all {len(values)} train rows have the number {values[0]:g}.",
            why="there is nothing to tell apart.",
            fix=f"dataset.columns.label: another column than {column!r}.",
        )


def _order(label: str) -> tuple[int, int, str]:
    """Whole numbers by value and before all else, the rest by letters."""
    digits = label.removeprefix("-")
    few = len(digits) <= 18  # Python reads no number of thousands of digits
    whole = few and digits.isascii() and digits.isdigit() and str(int(label)) == label
    return (0, int(label), "") if whole else (1, 0, label)


def _check_choice(learnt: Sequence[str], *, rows: int, column: str, findings: Findings) -> None:
    if rows and len(learnt) < 2:
        findings.add_problem(
            f"all {rows} train rows have the label {learnt[0]!r}." if learnt else "no train row has a known label.",
            why="there is nothing to tell apart.",
            fix=f"rows of other labels, or dataset.columns.label: another column than {column!r}.",
        )
    elif len(learnt) > max(20, rows // 2):
        findings.add_problem(
            f"the column {column!r} holds {len(learnt)} different labels in {rows} train rows.",
            why="most labels stand on one row, as an id or a measurement would.",
            fix="dataset.columns.label: the column with the classes.",
        )


def _check_sets(rows: Rows, *, column: str, findings: Findings) -> None:
    sets = {frozenset(value) for value in rows.columns["label"]}
    if len(sets) == 1:
        names = sorted(next(iter(sets)))
        same = f"the label{'s' * (len(names) > 1)} {', '.join(map(repr, names[:5]))}" if names else "no label"
        findings.add_problem(
            f"all {len(rows)} train rows have {same}.",
            why="there is nothing to tell apart.",
            fix=f"rows of other labels or of none, or dataset.columns.label: another column than {column!r}.",
        )


def listed(names: Sequence[str]) -> str:
    """The first ten names, and how many more there are."""
    return ", ".join(names[:10]) + (f" and {len(names) - 10} more" if len(names) > 10 else "")
