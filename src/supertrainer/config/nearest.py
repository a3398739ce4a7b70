"""The nearest valid name for a misspelt one."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


def nearest(name: str, names: Iterable[str]) -> str | None:
    """The name most like `name`; None where nothing is near.

    Order of preference: equal but for case and `-_/` signs, then spelling distance over the whole name, then over its
    last part (`minilm` finds `bert/minilm`), then a common run such as `training_bert` and `train_bert`.
    """
    candidates = sorted(set(names))
    folded = {candidate: _fold(candidate) for candidate in candidates}
    wanted = _fold(name)
    for candidate, plain in folded.items():
        if plain == wanted:
            return candidate
    close = difflib.get_close_matches(wanted, list(folded.values()), n=1, cutoff=0.6)
    if close:
        return next(candidate for candidate, plain in folded.items() if plain == close[0])
    tails = {candidate: _fold(candidate.rsplit("/", 1)[-1].rsplit(".", 1)[-1]) for candidate in candidates}
    close = difflib.get_close_matches(wanted, list(tails.values()), n=1, cutoff=0.75)
    return next((candidate for candidate, tail in tails.items() if close and tail == close[0]), None)


def did_you_mean(name: str, names: Iterable[str], *, most: int = 12) -> str:
    """The `Fix:` text for a name that isn't there: the nearest one, else those there are."""
    known = sorted(set(names))
    found = nearest(name, known)
    if found is not None:
        return f"did you mean {found}?"
    if not known:
        return "there is none to choose."
    shown = ", ".join(known[:most]) + (f", … ({len(known)} in all)" if len(known) > most else "")
    return f"one of: {shown}."


def _fold(name: str) -> str:
    return "".join(sign for sign in name.lower() if sign not in "-_/ ")
