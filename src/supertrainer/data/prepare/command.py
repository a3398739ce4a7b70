"""The command line of scripts/prepare_dataset.py."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from supertrainer.config.option_parser import OptionParser
from supertrainer.core.errors import ConfigError, SupertrainerError
from supertrainer.core.files import is_disk_full
from supertrainer.data.prepare.containers import ReadingOptions
from supertrainer.data.prepare.next_step import next_step
from supertrainer.data.prepare.options import LAYOUTS, PrepareOptions
from supertrainer.data.prepare.pipeline import PreparationError, prepare
from supertrainer.data.prepare.report import PrepareReport, report_lines
from supertrainer.data.prepare.rules import DEFAULT, parse_rules, read_rules, rules_help
from supertrainer.data.prepare.shapes import TASKS
from supertrainer.data.prepare.tag_schemes import SCHEMES

_MARKS = {"tab": "\t", "\\t": "\t", "comma": ",", "semicolon": ";", "bar": "|", "pipe": "|"}
_EPILOG = f"""rules of --clean, in the order in which they are given (those that look at all rows come last):
{rules_help()}

exit codes: 0 done; 2 the command or the data is refused, and nothing was written.
docs/datasets.md has an example of every layout and task."""


def main(argv: Sequence[str]) -> int:
    """Prepares a data set.

    Args:
        argv: the words after the program's name.

    Returns:
        The exit code.
    """
    try:
        options = parse(argv)
        report = prepare(options)
    except SupertrainerError as error:
        if isinstance(error, PreparationError):
            _print(error.report)
        print(error, file=sys.stderr)
        return error.exit_code
    except OSError as error:
        if not is_disk_full(error):
            raise
        print(f"The disk is full: {error}. Nothing was written.", file=sys.stderr)
        return 1
    _print(report)
    print()
    print("\n".join(next_step(report, options)))
    return 0


def parse(argv: Sequence[str]) -> PrepareOptions:
    """The settings of a command.

    Raises:
        ConfigError: the command can't be read.
    """
    said = _parser().parse_args(argv)
    rules = DEFAULT if said.clean is None else parse_rules(said.clean)
    if said.rules is not None:
        if said.clean is not None:
            raise ConfigError("--clean and --rules are both given.", fix="one of them.")
        rules = read_rules(said.rules)
    return PrepareOptions(
        source=said.source,
        out=said.out,
        layout=said.layout,
        task=said.task,
        files=_pairs(said.files, "--files"),
        reading=ReadingOptions(
            encoding=_encoding(said.encoding),
            container=said.read_as,
            delimiter=_mark(said.delimiter, "--delimiter"),
            quote=said.quote if said.quote in (None, "none") else _mark(said.quote, "--quote"),
            header=None if said.header is None else said.header == "yes",
        ),
        columns=_pairs(said.columns, "--columns"),
        label_columns=tuple(said.label_columns or ()),
        label_separator=_MARKS.get(said.label_separator, said.label_separator),
        decimal=said.decimal,
        keep=tuple(said.keep or ()),
        group=said.group,
        word_column=said.word_column,
        tag_column=said.tag_column,
        tag_names=None if said.tag_names is None else tuple(said.tag_names),
        scheme=said.scheme,
        words=said.words,
        misaligned=said.misaligned,
        turns=said.turns,
        text_unit=said.text_unit,
        images=said.images,
        absolute_images=said.image_paths == "absolute",
        question=said.question,
        rules=rules,
        splits=None if said.splits is None else _shares(said.splits),
        stratify=said.stratify == "yes",
        seed=said.seed,
        across_splits=said.across_splits,
        max_dropped=_share(said.max_dropped, "--max-dropped", most=1.0),
        format=said.format,
        dry_run=said.dry_run,
        overwrite=said.overwrite,
    )


def _parser() -> argparse.ArgumentParser:
    parser = OptionParser(
        prog="prepare_dataset.py",
        description="Turns common layouts of data into the columns that a task needs; cleans, splits and reports.",
        epilog=_EPILOG,
    )
    add = parser.add_argument
    add("source", help="a file, a directory, or package://MODULE/PATH (inside an installed Python package)")
    add("--out", type=Path, required=True, metavar="DIR", help="train.jsonl, …, report.md, report.json, dropped.jsonl")
    add("--from", dest="layout", choices=LAYOUTS, metavar="LAYOUT", help=f"not detected but said: {', '.join(LAYOUTS)}")
    add("--task", choices=list(TASKS), metavar="TASK", help=f"what the rows are for: {', '.join(TASKS)}")
    add("--dry-run", action="store_true", help="report only; nothing is written")
    add("--overwrite", action="store_true", help="replace what an earlier preparation wrote to --out")
    add("--format", choices=["jsonl", "parquet"], default="jsonl", help="of what is written; default jsonl")
    _add_reading(parser.add_argument_group("reading"))
    _add_layouts(parser.add_argument_group("layouts"))
    _add_splitting(parser.add_argument_group("cleaning and splitting"))
    return parser


def _add_reading(group: Any) -> None:
    add = group.add_argument
    add(
        "--files",
        nargs="+",
        action="extend",
        metavar="SPLIT=FILE",
        help="train=a.csv test=b.csv, where names don't tell the splits",
    )
    add(
        "--read-as", choices=["table", "jsonl", "json", "parquet", "yaml", "text"], help="where the suffix doesn't tell"
    )
    add("--encoding", help="of text files; else by byte order mark, UTF-8, cp1252")
    add("--delimiter", metavar="MARK", help="between cells: a character, tab, comma, semicolon, bar; else detected")
    add("--quote", metavar="MARK", help="around cells: a character, or none; else detected")
    add("--header", choices=["yes", "no"], help="whether line 1 names the columns; else detected")
    add(
        "--columns",
        nargs="+",
        action="extend",
        metavar="OURS=THEIRS",
        help="text=review label=stars; column_1, … without a header",
    )
    add(
        "--keep",
        nargs="+",
        action="extend",
        metavar="COLUMN",
        help="columns of the source that are written too, as they are",
    )


def _add_layouts(group: Any) -> None:
    add = group.add_argument
    add("--label-columns", nargs="+", action="extend", metavar="COLUMN", help="multi-label: columns that hold 1 or 0")
    add("--label-separator", metavar="MARK", help="multi-label: between labels in a cell; else detected of | ; ,")
    add("--decimal", choices=["point", "comma"], help="regression: of the numbers; else detected")
    add("--text-unit", choices=["line", "paragraph", "file"], help="text: what a row is; default line")
    add("--word-column", type=int, metavar="N", help="conll: from 1; default 1 (2 in CoNLL-U)")
    add("--tag-column", type=int, metavar="N", help="conll: from 1, or -1 the last; default the last (4 in CoNLL-U)")
    add("--scheme", choices=SCHEMES, help="of the tags; else detected. IOB2 is written (none: tags as they are)")
    add("--tag-names", nargs="+", action="extend", metavar="TAG", help="tokens: what the numbers 0, 1, … stand for")
    add("--words", choices=["punctuation", "space", "character"], default="punctuation", help="spans: what words are")
    add("--misaligned", choices=["drop_row", "drop_span", "expand"], default="drop_row", help="spans that cut a word")
    add("--turns", choices=["strict", "as_is"], default="strict", help="conversations: user and assistant take turns")
    add("--images", type=Path, metavar="DIR", help="pictures: where names are looked up; default beside their file")
    add("--image-paths", choices=["relative", "absolute"], default="relative", help="pictures: relative to --out")
    add("--question", metavar="TEXT", help="pictures: asked of captions and class folders")


def _add_splitting(group: Any) -> None:
    add = group.add_argument
    add(
        "--clean",
        nargs="+",
        action="extend",
        metavar="RULE",
        help=f"default: {' '.join(map(str, DEFAULT))}; none: nothing",
    )
    add("--rules", type=Path, metavar="FILE", help="the same as a YAML list")
    add(
        "--splits",
        nargs="+",
        action="extend",
        metavar="SPLIT=SHARE",
        help="default validation=0.1 test=0.1, unless the source has any",
    )
    add("--stratify", choices=["yes", "no"], default="yes", help="made splits have the labels' proportions")
    add("--group", metavar="COLUMN", help="rows with the same value stay in one split; document (conll), file")
    add("--seed", type=int, default=42, help="of made splits; default 42")
    add("--across-splits", choices=["drop", "error", "keep"], default="drop", help="texts in two given splits")
    add("--max-dropped", default="10%", metavar="SHARE", help="more dropped rows are an error; default 10%%")


def _pairs(words: Sequence[str] | None, option: str) -> dict[str, str]:
    pairs: dict[str, str] = {}
    for word in words or ():
        name, equals, value = word.partition("=")
        if not (name and equals and value) or name in pairs:
            raise ConfigError(f"{option} {word}: no pair of a new name and a value.", fix=f"{option} NAME=VALUE …")
        if option == "--files" and name not in ("train", "validation", "test"):
            raise ConfigError(f"--files {word}: {name!r} is no split.", fix="train=…, validation=… or test=….")
        pairs[name] = value
    return pairs


def _shares(words: Sequence[str]) -> dict[str, float]:
    if list(words) == ["none"]:
        return {}
    shares: dict[str, float] = {}
    for word in words:
        name, _, value = word.partition("=")
        if name not in ("validation", "test") or name in shares:
            raise ConfigError(f"--splits {word}: no split to be made.", fix="validation=0.1 test=0.1, or none.")
        shares[name] = _share(value, f"--splits {name}=")
    if sum(shares.values()) >= 1:
        raise ConfigError(f"--splits {' '.join(words)} leave no train rows.", fix="shares that sum to less than 1.")
    return shares


def _share(text: str, option: str, *, most: float = 0.999) -> float:
    try:
        share = float(text.removesuffix("%")) / (100 if text.endswith("%") else 1)
    except ValueError:
        share = -1.0
    if not 0 <= share <= most or (share == 0 and most < 1):
        raise ConfigError(f"{option}{text if option.endswith('=') else f' {text}'} is no share.", fix="10% or 0.1.")
    return share


def _mark(text: str | None, option: str) -> str | None:
    mark = _MARKS.get(text or "", text)
    if mark is not None and len(mark) != 1:
        raise ConfigError(f"{option} {text} is no single character.", fix=f"one, or {', '.join(_MARKS)}.")
    return mark


def _encoding(name: str | None) -> str | None:
    try:
        "".encode(name or "utf-8")
    except LookupError:
        raise ConfigError(
            f"--encoding {name}: Python knows no such encoding.", fix="cp1252, latin-1, utf-16."
        ) from None
    return name


def _print(report: PrepareReport) -> None:
    print("\n".join(report_lines(report)))
