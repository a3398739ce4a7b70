"""Which rows a model got most wrong, told from predictions.jsonl in one reading, for every kind of record.

A kind says how wrong a record is and what to show of it; `KINDS` lists them, and the first record decides.
"""

from __future__ import annotations

import heapq
import math
from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

MOST = 20  # rows
MOST_TEXT = 4_000  # characters that are kept of a row's text
MOST_TOLD = 600  # characters of its labels

Record = Mapping[str, Any]


class Told(NamedTuple):
    """What is shown of a row beside its text: `value` under the name `what`, with a number or without."""

    what: str
    value: str
    number: float | None = None


@dataclass(frozen=True)
class Mistake:
    """A row that was predicted wrong.

    Attributes:
        row: its number in the split.
        texts: its text, or both of a pair; cut to `MOST_TEXT` characters.
        characters: how many each text really has.
        told: what was true and what was predicted.
    """

    row: int
    texts: tuple[str, ...]
    characters: tuple[int, ...]
    told: tuple[Told, ...]


@dataclass(frozen=True)
class Kind:
    """A kind of records.

    Attributes:
        title: of its worst rows.
        fits: whether a record is of this kind.
        badness: how wrong it is; 0 is right.
        told: what to show of it.
    """

    title: str
    fits: Callable[[Record], bool]
    badness: Callable[[Record], float]
    told: Callable[[Record], tuple[Told, ...]]


class Pair(NamedTuple):
    """A true and a predicted number."""

    row: int
    true: float
    predicted: float


class Worst(NamedTuple):
    """What a reading found: the worst rows first, what is worst about them, and every pair of numbers."""

    title: str = ""
    mistakes: tuple[Mistake, ...] = ()
    pairs: tuple[Pair, ...] = ()


NOTHING = Worst()


def read_worst(records: Iterable[Record], *, most: int = MOST) -> Worst:
    """Reads all records once; only `most` of them are kept, and of predicted numbers the numbers.

    Args:
        records: lines of predictions.jsonl, in any order.
        most: how many rows.
    """
    numbers = array("d")
    found: list[Kind] = []
    worst = heapq.nsmallest(most, _wrong(records, found, numbers), key=lambda one: (-one[0], one[1]["row"]))
    if not found:
        return NOTHING
    pairs = tuple(Pair(int(numbers[at]), numbers[at + 1], numbers[at + 2]) for at in range(0, len(numbers), 3))
    return Worst(found[0].title, tuple(_mistake(record, kind=found[0]) for _, record in worst), pairs)


def _wrong(records: Iterable[Record], found: list[Kind], numbers: array[float]) -> Iterator[tuple[float, Record]]:
    """Wrong records with their badness; says their kind in `found`, and adds row, truth and prediction of numbers."""
    for record in records:
        if not found:
            found += [kind for kind in KINDS if kind.fits(record)][:1]
        if not found or not found[0].fits(record):
            continue
        if found[0] is NUMBERS:
            numbers.extend((record["row"], record["true"], record["predicted"]))
        badness = found[0].badness(record)
        if badness > 0:
            yield badness, record


def _mistake(record: Record, *, kind: Kind) -> Mistake:
    text = record.get("text", record.get("prompt"))
    texts = [text] if isinstance(text, str) else [str(part) for part in text or ()]
    told = tuple(one._replace(value=one.value[:MOST_TOLD]) for one in kind.told(record))
    return Mistake(record["row"], tuple(part[:MOST_TEXT] for part in texts), tuple(map(len, texts)), told)


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _are(kind: type, value: object) -> bool:
    return isinstance(value, list) and all(isinstance(one, kind) for one in value)


def _probability(record: Record, name: str) -> float:
    value = record["probabilities"].get(name)
    return float(value) if _is_number(value) else 0.0


def _told_class(record: Record) -> tuple[Told, ...]:
    return tuple(Told(what, record[what], _probability(record, record[what])) for what in ("true", "predicted"))


def _distances(record: Record) -> dict[str, float]:
    """Of each label that is wrong: how far its probability is from the truth."""
    wrong = set(record["true"]) ^ set(record["predicted"])
    return {name: abs((name in record["true"]) - _probability(record, name)) for name in sorted(wrong)}


def _told_labels(record: Record) -> tuple[Told, ...]:
    distances = _distances(record)
    name = max(distances, key=lambda name: distances[name])
    shown = [Told(what, ", ".join(record[what]) or "none") for what in ("true", "predicted")]
    how = "surely missed" if name in record["true"] else "surely wrong"
    return (*shown, Told(how, name, _probability(record, name)))


def _told_numbers(record: Record) -> tuple[Told, ...]:
    shown = [Told(what, f"{record[what]:.6g}") for what in ("true", "predicted")]
    return (*shown, Told("off by", f"{abs(record['true'] - record['predicted']):.4g}"))


def _spans(record: Record, what: str) -> dict[tuple[str, int, int], str]:
    return {(span["type"], span["start"], span["end"]): f"{span['type']} {span['text']}" for span in record[what]}


def _told_spans(record: Record) -> tuple[Told, ...]:
    true, found = _spans(record, "true"), _spans(record, "predicted")
    missed, invented = (
        [true[key] for key in true.keys() - found.keys()],
        [found[key] for key in found.keys() - true.keys()],
    )
    named = (("missed", missed), ("not there", invented), ("right", [true[key] for key in true.keys() & found.keys()]))
    return tuple(Told(what, "; ".join(sorted(spans))) for what, spans in named if spans)


def _told_tags(record: Record) -> tuple[Told, ...]:
    rows = zip(record["words"], record["true"], record["predicted"], strict=True)
    wrong = [f"{word} {true} → {predicted}" for word, true, predicted in rows if true != predicted]
    return (Told("wrong tags", "; ".join(wrong)),)


def _told_answers(record: Record) -> tuple[Told, ...]:
    shown = [Told(what, record[what] or "nothing") for what in ("true", "before", "predicted") if what in record]
    return (*shown, Told("chrF", "", record["chrf"]))


def _told_questions(record: Record) -> tuple[Told, ...]:
    shown = [Told(what, record[what] or "nothing") for what in ("true", "predicted")]
    kind = [Told("type", record["question_type"])] if record["question_type"] else []
    return (*shown, *kind, *(Told("picture", path) for path in record["pictures"] if path))


CLASS = Kind(
    "wrong predictions of greatest probability",
    lambda record: isinstance(record.get("true"), str) and "probabilities" in record,
    lambda record: _probability(record, record["predicted"]) if record["true"] != record["predicted"] else 0.0,
    _told_class,
)
LABELS = Kind(
    "rows with the surest wrong label",
    lambda record: _are(str, record.get("true")) and "probabilities" in record,
    lambda record: max(_distances(record).values(), default=0.0),
    _told_labels,
)
NUMBERS = Kind(
    "rows whose prediction is farthest off",
    lambda record: _is_number(record.get("true")) and _is_number(record.get("predicted")),
    lambda record: abs(record["true"] - record["predicted"]),
    _told_numbers,
)
SPANS = Kind(
    "rows with the most spans missed or not there",
    lambda record: "words" in record and _are(dict, record.get("true")) and _are(dict, record.get("predicted")),
    lambda record: len(_spans(record, "true").keys() ^ _spans(record, "predicted").keys()),
    _told_spans,
)
TAGS = Kind(
    "rows with the most wrong tags",
    lambda record: "words" in record and _are(str, record.get("true")) and _are(str, record.get("predicted")),
    lambda record: sum(true != got for true, got in zip(record["true"], record["predicted"], strict=True)),
    _told_tags,
)
ANSWERS = Kind(
    "answers that were farthest from the reference",
    lambda record: "prompt" in record and "tokens" in record,
    lambda record: 1.0 - record["chrf"] if _is_number(record.get("chrf")) and not record["exact_match"] else 0.0,
    _told_answers,
)
QUESTIONS = Kind(
    "answers that were farthest from the reference",
    lambda record: "pictures" in record and "vqa_accuracy" in record,
    lambda record: 2.0 - record["vqa_accuracy"] - record["chrf"] if not record["accuracy"] else 0.0,
    _told_questions,
)
KINDS = (CLASS, LABELS, NUMBERS, SPANS, TAGS, QUESTIONS, ANSWERS)
"""Masked tokens have none: a wrong guess of a hidden word is no mistake that tells much."""
