"""What the page is made from: the report and the files of its run directory, fit to be handed on."""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from supertrainer.benchmark.page.worst import NOTHING, Worst, read_worst
from supertrainer.benchmark.results import Report
from supertrainer.config.secrets import redact
from supertrainer.core.files import json_text
from supertrainer.core.records import last_per_step, read_records
from supertrainer.core.run_directory import RunDirectory

MOST_CONFIG = 60_000  # characters
HOMES = re.compile(
    r"(?<![\w.~-])(?:/home/|/Users/|/users/|[A-Za-z]:\\Users\\)[^/\\\s'\",:]+|(?<![\w.~/-])/root(?=/|\s|$)"
)


@dataclass(frozen=True)
class Findings:
    """All that a section may tell, without secrets and home directories.

    Attributes:
        report: the report.
        records: one row of metrics.jsonl a step, by rising step; the last one of a resumed run counts.
        worst: the rows of the scored split that the model got most wrong, and its predicted numbers.
        environment: what environment.json holds.
        command: the words that the last start was made with.
        config: config.yaml.
        files: of the run directory, to link to.
    """

    report: Report
    records: Sequence[Mapping[str, Any]] = ()
    worst: Worst = NOTHING
    environment: Mapping[str, Any] = field(default_factory=dict)
    command: Sequence[str] = ()
    config: str = ""
    files: Sequence[str] = ()


def gather(
    run: RunDirectory, *, report: Report, records: Iterable[Mapping[str, Any]], files: Sequence[str] = ()
) -> Findings:
    """What a run directory holds for its page. Parts that aren't there, or can't be read, are left out.

    Args:
        run: where they lie.
        report: of this run.
        records: the rows of its metrics.jsonl.
        files: names of files to link to.
    """
    starts = [row for row in read_records(run.attempts_jsonl).rows if row.get("event") == "start"]
    command = starts[-1].get("command") if starts else None
    return Findings(
        report=Report.model_validate_json(json_text(presentable(json.loads(json_text(report.model_dump()))))),
        records=last_per_step(records),
        worst=_presentable(read_worst(_predictions(run, split=report.scored_split))),
        environment=presentable(_json(run.environment_json)),
        command=tuple(presentable([str(word) for word in command])) if isinstance(command, list) else (),
        config=presentable(_text(run.config_yaml)[:MOST_CONFIG]),
        files=tuple(files),
    )


def presentable(value: Any) -> Any:
    """A value of JSON's kinds whose texts have no secret, and `~` for anybody's home directory."""
    match value:
        case str():
            return _without_homes(redact(value)).encode(errors="replace").decode()  # halves of a character
        case Mapping():
            return {key: presentable(item) for key, item in value.items()}
        case list() | tuple():
            return type(value)(presentable(item) for item in value)
    return value


def _without_homes(text: str) -> str:
    home = str(Path.home())
    if len(home) > 1 and home in text:
        text = re.sub(rf"(?<![\w.~/-]){re.escape(home)}(?=[/\\\s'\",:]|$)", "~", text)
    return HOMES.sub("~", text)


def _presentable(worst: Worst) -> Worst:
    """Texts without secrets; they are a reader's data, so what looks like a home directory stays."""
    rows = [
        dataclasses.replace(
            one,
            texts=tuple(redact(text) for text in one.texts),
            told=tuple(told._replace(value=presentable(told.value)) for told in one.told),
        )
        for one in worst.mistakes
    ]
    return worst._replace(mistakes=tuple(rows))


def _predictions(run: RunDirectory, *, split: str | None) -> Iterator[Mapping[str, Any]]:
    """The records of predictions.jsonl, if they are those of the scored split: a later benchmark replaces them."""
    scored = _json(run.path / "benchmark.json").get("split")
    if split is None or scored != split or not run.predictions_jsonl.is_file():
        return
    with run.predictions_jsonl.open(encoding="utf-8", errors="replace") as file:
        for line in file:
            try:
                record = json.loads(line)
            except ValueError:
                continue
            if isinstance(record, dict) and isinstance(record.get("row"), int):
                yield record


def _json(path: Path) -> dict[str, Any]:
    try:
        value = json.loads(_text(path))
    except ValueError:
        return {}
    return value if isinstance(value, dict) else {}


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
