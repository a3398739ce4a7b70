"""Which columns hold text and label where nobody says: by their names, else by what is in them."""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from supertrainer.core.errors import ConfigError, DataError
from supertrainer.data.prepare.record import shown

# The first name that a source has is taken.
NAMES: Mapping[str, tuple[str, ...]] = {
    "text": (
        "text", "sentence", "content", "review", "review_text", "review_body", "comment", "comment_text", "body",
        "document", "article", "tweet", "utterance", "query", "message", "sentence1", "premise", "text_a",
        "description", "abstract",
    ),
    "text_pair": ("text_pair", "sentence2", "hypothesis", "text_b"),
    "label": (
        "label", "labels", "class", "category", "categories", "target", "sentiment", "topic", "intent", "genre",
        "stars", "rating", "score", "polarity", "emotion", "gold_label",
    ),
}  # fmt: skip


@dataclass(frozen=True)
class Choice:
    """Columns of the source by our names, and why these."""

    columns: Mapping[str, str]
    why: str


def rename_columns(values: Any, said: Mapping[str, str]) -> Any:
    """A raw row with the columns that `--columns` names under our names; anything but an object stays as it is."""
    if not said or not isinstance(values, dict):
        return values
    theirs = {name: ours for ours, name in said.items()}
    kept = {name: value for name, value in values.items() if name not in said or name in theirs}
    return {theirs.get(name, name): value for name, value in kept.items()}


def check_columns(said: Mapping[str, str], available: Sequence[str], *, option: str = "--columns") -> None:
    """Checks that the columns which were named are there (our name -> theirs).

    Raises:
        ConfigError: one isn't; names the nearest.
    """
    for ours, name in said.items():
        if name not in available:
            near = difflib.get_close_matches(name, available, n=1, cutoff=0.5)
            raise ConfigError(
                f"{option} {ours}={name}: the source has no column {name!r}. It has: {', '.join(available)}.",
                fix=f"{option} {ours}={near[0] if near else '<one of these>'}",
            )


def choose_text(sample: Sequence[Mapping[str, Any]], *, labelled: bool | None) -> Choice:
    """The text and label columns of a table or of JSON objects.

    Args:
        sample: the first rows.
        labelled: whether there has to be a label; None where it isn't known.

    Raises:
        DataError: it can't be told which columns they are.
    """
    available = list(dict.fromkeys(name for row in sample for name in row))
    lower = {name.lower(): name for name in reversed(available)}
    named = {
        ours: next((lower[name] for name in names if name in lower), None)
        for ours, names in NAMES.items()
        if ours != "label" or labelled is not False
    }
    columns = {ours: name for ours, name in named.items() if name is not None}
    if "text" not in columns:
        columns.pop("text_pair", None)
    why = "by their names: " + ", ".join(f"{ours} is {name!r}" for ours, name in columns.items())
    if "text" not in columns:
        columns["text"], why = _longest(sample, [n for n in available if n not in columns.values()])
        if label := columns.get("label"):
            why += f"; label is {label!r}, by its name"
    if labelled is not False and "label" not in columns and "text" in columns:
        others = [name for name in available if name not in columns.values()]
        if label := _fewest(sample, others):
            columns["label"] = label
            why += f"; label is {label!r}, since it has the fewest different values"
        elif labelled:
            raise _unclear("label", sample, available)
    return Choice(columns, why)


def _longest(sample: Sequence[Mapping[str, Any]], names: Sequence[str]) -> tuple[str, str]:
    lengths = {
        name: sum(len(value) for row in sample if isinstance(value := row.get(name), str)) / len(sample)
        for name in names
    }
    best = sorted(lengths, key=lambda name: -lengths[name])[:2]
    if not best or not lengths[best[0]] or (len(best) == 2 and lengths[best[0]] < 1.5 * lengths[best[1]]):
        raise _unclear("text", sample, names)
    return best[0], f"text is {best[0]!r}, since it holds the longest texts ({lengths[best[0]]:.0f} characters)"


def _fewest(sample: Sequence[Mapping[str, Any]], names: Sequence[str]) -> str | None:
    different = {name: len({str(row.get(name)) for row in sample}) for name in names}
    likely = [name for name in names if 2 <= different[name] <= max(2, len(sample) // 2)]
    return min(likely, key=lambda name: different[name]) if len(likely) == 1 else None


def _unclear(what: str, sample: Sequence[Mapping[str, Any]], names: Sequence[str]) -> DataError:
    first = ", ".join(f"{name} ({shown(sample[0].get(name), length=30)})" for name in names)
    return DataError(
        f"it can't be told which column holds the {what}. There are: {first}.",
        fix=f"--columns {what}=NAME" + (", or --task text where there are no labels." if what == "label" else ""),
    )
