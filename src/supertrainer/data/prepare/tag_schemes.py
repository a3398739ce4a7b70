"""Ways to write which words form an entity, and their translation into IOB2.

    IOB2    B- begins every entity, I- goes on            B-PER I-PER O
    IOB1    B- only right after an entity of its type      I-PER I-PER O
    BIOES   E- ends, S- is alone (BILOU: L- and U-)        B-PER E-PER O
    IO      a type without prefix                          PER PER O
    none    a tag a word, no entities (parts of speech)    NOUN VERB

Source: Ramshaw and Marcus 1995 (IOB1), Tjong Kim Sang and Veenstra 1999 (IOB2), Ratinov and Roth 2009 (BILOU).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Literal, get_args

from supertrainer.core.iob2 import OUTSIDE
from supertrainer.data.prepare.record import RowFault

Scheme = Literal["IOB2", "IOB1", "BIOES", "IO", "none"]
SCHEMES: tuple[str, ...] = get_args(Scheme)
_ENDS = {"E": "E", "L": "E", "S": "S", "U": "S"}


def detect_scheme(sentences: Iterable[Sequence[str]]) -> tuple[Scheme, str]:
    """The scheme of tagged sentences, and why."""
    prefixes: set[str] = set()
    plain: set[str] = set()
    stray = free = 0  # I- that begins an entity; B- that needn't be there in IOB1
    for tags in sentences:
        before = ("O", "")
        for tag in tags:
            prefix, kind = split_tag(tag)
            if prefix == "":
                plain.add(tag)
            prefixes.add(prefix)
            same = before[0] in ("B", "I") and before[1] == kind
            stray += prefix == "I" and not same
            free += prefix == "B" and not same
            before = (prefix, kind)
    if prefixes & set(_ENDS):
        return "BIOES", f"tags begin with {', '.join(sorted(prefixes & set(_ENDS)))}- too"
    if not prefixes & {"B", "I"}:
        if OUTSIDE in prefixes and plain:
            return "IO", "tags are types without prefix, and O"
        return ("none", "no tag has a prefix and none is O") if plain else ("IOB2", "there are no entities")
    if not stray:
        return "IOB2", "every entity begins with B-"
    if not free:
        return "IOB1", f"{stray} entities begin with I-, and B- stands only after an entity of the same type"
    return (
        "IOB2",
        f"{free} entities begin with B-, though {stray} begin with I- (--scheme IOB1 takes those as they are)",
    )


def split_tag(tag: str) -> tuple[str, str]:
    """`B-PER` is ("B", "PER"), `O` is ("O", ""), `NOUN` is ("", "NOUN")."""
    if tag == OUTSIDE:
        return OUTSIDE, ""
    if len(tag) > 2 and tag[1] in "-_" and tag[0] in "BIELSU":
        return tag[0], tag[2:]
    return "", tag


def to_iob2(tags: Sequence[str], scheme: Scheme) -> list[str]:
    """Tags of one sentence in IOB2.

    >>> to_iob2(["I-PER", "B-PER", "O"], "IOB1")
    ['B-PER', 'B-PER', 'O']

    Raises:
        RowFault: a tag isn't of the scheme, or can't stand where it does; names the word.
    """
    if scheme == "none":
        return list(tags)
    result: list[str] = []
    before = (OUTSIDE, "")
    for number, tag in enumerate(tags, start=1):
        prefix, kind = split_tag(tag)
        if prefix == OUTSIDE:
            now = (OUTSIDE, "")
        elif scheme == "IO":
            kind = kind if prefix == "" else tag
            now = ("I" if before == ("I", kind) or before == ("B", kind) else "B", kind)
        elif prefix == "":
            raise RowFault("tags", f"word {number} has the tag {tag!r}, which is none of {scheme}")
        else:
            now = (_next(prefix, kind, before, scheme, number), kind)
        result.append(OUTSIDE if now[0] == OUTSIDE else f"{'I' if now[0] in 'IE' else 'B'}-{now[1]}")
        before = now
        if scheme == "BIOES" and prefix in _ENDS:
            before = (_ENDS[prefix], kind)
            if before[0] == "S":
                result[-1] = f"B-{kind}"
        _check_closed(result, before, tags, number, scheme)
    return result


def _next(prefix: str, kind: str, before: tuple[str, str], scheme: Scheme, number: int) -> str:
    """B, I or E: what a tag is after the one before it."""
    open_ = before[0] in ("B", "I") and before[1] == kind
    if scheme == "IOB1":
        if prefix not in "BI":
            raise RowFault("tags", f"word {number} has the tag {prefix}-{kind}, which is none of IOB1")
        return "I" if prefix == "I" and open_ else "B"
    ends = _ENDS.get(prefix)
    if ends and scheme != "BIOES":
        raise RowFault("tags", f"word {number} has the tag {prefix}-{kind}, which is none of {scheme}")
    if (prefix == "I" or ends == "E") and not open_:
        raise RowFault("tags", f"word {number} has the tag {prefix}-{kind}, but no {kind} is open there")
    return "B" if prefix == "B" or ends == "S" else "I" if prefix == "I" else "E"


def _check_closed(result: list[str], now: tuple[str, str], tags: Sequence[str], number: int, scheme: Scheme) -> None:
    """In BIOES an entity that is open has to go on at the next word."""
    if scheme != "BIOES" or now[0] not in ("B", "I"):
        return
    following = split_tag(tags[number]) if number < len(tags) else (OUTSIDE, "")
    if following[1] != now[1] or following[0] not in "IEL":
        raise RowFault("tags", f"word {number} has the tag {tags[number - 1]}, but the entity doesn't end")
