"""The whole preparation: rows stream through rules into a spool on disk, and from there into their splits."""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import numpy as np
import numpy.typing as npt

from supertrainer.core.errors import ConfigError, DataError, Problem
from supertrainer.data.prepare.detection import detect
from supertrainer.data.prepare.dividing import divide_rows
from supertrainer.data.prepare.inputs import describe_files, find_inputs
from supertrainer.data.prepare.layouts import Plan, make_reader, plan_layout
from supertrainer.data.prepare.ledger import Ledger
from supertrainer.data.prepare.options import PrepareOptions
from supertrainer.data.prepare.output import Output
from supertrainer.data.prepare.record import SHOWN, Notes, Raw, Row, RowFault
from supertrainer.data.prepare.report import MALFORMED, PrepareReport, describe_splits, unlearnt_labels
from supertrainer.data.prepare.row_rules import Dropped, row_rules
from supertrainer.data.prepare.rules import Rule
from supertrainer.data.prepare.set_rules import Removal, apply_set_rules, conflicting, count_across, remove_across
from supertrainer.data.prepare.shapes import Shape
from supertrainer.data.prepare.writing import json_line, open_writers
from supertrainer.data.schema import SPLITS

DEFAULT_SHARES = {"validation": 0.1, "test": 0.1}
_LABEL_RULES = {"rename_labels", "map_labels", "keep_labels", "drop_labels", "drop_rare_labels", "drop_conflicts"}


class PreparationError(DataError):
    """The rows can't be prepared as they are; `report` says what became of them up to there."""

    def __init__(self, what: str | Sequence[Problem], report: PrepareReport, *, why: str = "", fix: str = "") -> None:
        super().__init__(what, why=why, fix=fix)
        self.report = report

    def __reduce__(self) -> Any:
        return type(self), (self.problems, self.report)


@dataclass(frozen=True)
class _Stage:
    """What one run works with."""

    options: PrepareOptions
    plan: Plan
    ledger: Ledger
    report: PrepareReport
    notes: Notes


def prepare(options: PrepareOptions) -> PrepareReport:
    """Reads, cleans, divides and writes a source.

    Nothing is written where `options.dry_run`, or where an error ends it.

    Raises:
        ConfigError: source, settings or output directory.
        DataError: files that can't be read.
        PreparationError: too many rows are dropped, or splits can't be made; it carries the report.
    """
    output = Output(options)
    output.check()
    inputs = find_inputs(options.source, files=options.files)
    detected = detect(inputs, options)
    reader, notes = make_reader(detected, options), Notes()
    plan = plan_layout(detected, options, reader, notes)
    _check_rules(options.rules, plan.shape)
    report = PrepareReport(options.source, layout=detected.layout, task=plan.shape.task)
    report.columns = [*plan.shape.columns, *plan.shape.extra]
    report.why = [f"layout {detected.layout}: {detected.why}", *plan.why]
    report.settings = {"seed": options.seed, "stratify": options.stratify, "group": options.group}
    report.rules = [str(rule) for rule in options.rules]
    report.ignored = list(detected.ignored)
    report.files = describe_files(detected.files)
    normalised = any(rule == Rule("drop_duplicates", "normalised") for rule in options.rules)
    stage = _Stage(options, plan, Ledger(plan.shape, normalised, options.seed), report, notes)
    with output.folder() as folder, _spool(folder) as spool:
        dropped = None if folder is None else (folder / "dropped.jsonl").open("w", encoding="utf-8", newline="\n")
        try:
            _read(stage, spool, dropped)
            report.why += reader.remarks()
            kept, splits = _decide(stage, dropped)
        finally:
            if dropped is not None:
                dropped.close()
        _check_share(stage)
        if folder is not None and spool is not None:
            _write(stage, spool, folder, kept, splits)
            output.commit(folder, report)
    return report


def _read(stage: _Stage, spool: IO[str] | None, dropped: IO[str] | None) -> None:
    """Reads every row, applies the rules that look at single rows, remembers what is left."""
    options, report, shape = stage.options, stage.report, stage.plan.shape
    rules = row_rules(options.rules)
    for raw in stage.plan.rows():
        try:
            rows = _converted(raw, stage.plan)
        except RowFault as fault:
            report.read += 1
            _drop(report, dropped, MALFORMED, raw.file, raw.row, fault.field, fault.what)
            continue
        for row in rows:
            report.read += 1
            try:
                group = _group(raw, options.group)
                kept = _extended(row, raw, shape)
                gone: tuple[str, Dropped] | None = None
                for rule, apply in rules:
                    changed = apply(kept, shape)
                    if isinstance(changed, Dropped):
                        gone = str(rule), changed
                        break
                    if changed is not kept and changed != kept:
                        report.changed[str(rule)] += 1
                    kept = changed
            except RowFault as fault:
                gone = MALFORMED, Dropped(fault.field, fault.what)
            if gone is not None:
                _drop(report, dropped, gone[0], raw.file, raw.row, gone[1].field, gone[1].why)
                continue
            stage.ledger.add(raw, kept, group=group)
            if spool is not None:
                spool.write(json_line(kept))


def _decide(stage: _Stage, dropped: IO[str] | None) -> tuple[npt.NDArray[np.bool_], npt.NDArray[np.int8]]:
    """Which of the remembered rows are kept, and in which split."""
    options, ledger, report = stage.options, stage.ledger, stage.report
    if not len(ledger):
        _check_share(stage)
        raise PreparationError(f"{options.source}: no row is left of {report.read} that were read.", report)
    kept = np.ones(len(ledger), dtype=bool)
    removals = apply_set_rules(options.rules, ledger, kept)
    across = remove_across(ledger, kept)
    if options.across_splits == "drop" and len(across.indices):
        kept[across.indices] = False
        removals.append(across)
    for removal in removals:
        for index in removal.indices.tolist():
            file, row = ledger.source(index)
            _drop(report, dropped, removal.rule, file, row, removal.field, removal.why(index))
    if options.across_splits == "error" and len(across.indices):
        raise _across_error(across, ledger, report)
    _note(stage, kept)
    _check_share(stage)
    try:
        splits, notes = divide_rows(ledger, kept, shares=_shares(options, ledger), stratify=options.stratify)
    except DataError as error:
        raise PreparationError(error.problems, report) from None
    report.notes |= dict.fromkeys(notes)
    report.kept = int(kept.sum())
    report.splits = describe_splits(ledger, kept, splits)
    report.across_splits = count_across(ledger, kept, splits)
    report.notes |= dict.fromkeys(unlearnt_labels(report.splits))
    return kept, splits


def _write(
    stage: _Stage, spool: IO[str], folder: Path, kept: npt.NDArray[np.bool_], splits: npt.NDArray[np.int8]
) -> None:
    """Puts the rows of the spool into the files of their splits."""
    names = tuple(stage.report.splits)
    spool.seek(0)
    with open_writers(folder, names, shape=stage.plan.shape, format=stage.options.format) as writers:
        for line, keep, split in zip(spool, kept, splits, strict=True):
            if keep:
                writers[SPLITS[split]].write(json.loads(line))


def _converted(raw: Raw, plan: Plan) -> list[Row]:
    if isinstance(raw.values, RowFault):
        raise raw.values
    return plan.convert(raw)


def _extended(row: Row, raw: Raw, shape: Shape) -> Row:
    """The row with the columns of the source that are kept as they are."""
    if not shape.extra:
        return row
    if not isinstance(raw.values, dict):
        raise RowFault(shape.extra[0], "can't be kept: the row has no columns")
    return {**row, **{name: raw.values.get(name) for name in shape.extra if name not in row}}


def _group(raw: Raw, name: str | None) -> Any:
    if name is None:
        return None
    value = raw.values.get(name) if isinstance(raw.values, dict) else None
    if value is None and name == "file":
        return raw.file
    if value is None or value == "":
        raise RowFault(name, "is missing, and --group needs it")
    return value


def _drop(report: PrepareReport, out: IO[str] | None, rule: str, file: str, row: int, field: str, why: str) -> None:
    report.drop(rule, file=file, row=row, field=field, why=why)
    if out is not None:
        out.write(json_line({"file": file, "row": row, "rule": rule, "field": field, "why": why}))


def _note(stage: _Stage, kept: npt.NDArray[np.bool_]) -> None:
    report, ledger = stage.report, stage.ledger
    for what, count in stage.notes.counts.items():
        report.notes[what] = {"count": count, "places": stage.notes.places[what]}
    if ledger.shape.can_conflict and len(found := np.flatnonzero(conflicting(ledger, kept))):
        report.conflicts = {"rows": len(found), "places": [ledger.place(index) for index in found[:SHOWN].tolist()]}


def _shares(options: PrepareOptions, ledger: Ledger) -> Mapping[str, float]:
    """The splits to be made: as said; else validation and test where the source names no split at all."""
    if options.splits is not None:
        given = {SPLITS[number] for number in np.unique(ledger.splits()).tolist()} - {"train"}
        if both := sorted(given & set(options.splits)):
            raise ConfigError(
                f"--splits {both[0]}={options.splits[both[0]]:g}: the source has a {both[0]} split already.",
                fix="leave it out, or give the files of train alone: --files train=…",
            )
        return options.splits
    return DEFAULT_SHARES if not ledger.splits().any() else {}


def _check_rules(rules: Sequence[Rule], shape: Shape) -> None:
    for rule in rules:
        needs = rule.name in _LABEL_RULES and shape.target_kind in (None, "number", "flag")
        if needs and not (rule.name == "drop_conflicts" and shape.can_conflict):
            raise ConfigError(f"rule {rule}: the task {shape.task} has no labels.", fix="leave the rule out.")


def _check_share(stage: _Stage) -> None:
    report, most = stage.report, stage.options.max_dropped
    if report.read and report.dropped_rows > most * report.read:
        worst = max(report.dropped, key=lambda rule: report.dropped[rule].count)
        raise PreparationError(
            f"{report.dropped_rows:,} of {report.read:,} rows are dropped "
            f"({report.dropped_rows / report.read:.1%}), more than --max-dropped {most:.0%}.",
            report,
            why=f"most of them by: {worst} ({report.dropped[worst].count:,}).",
            fix="mend the source or the rules, or --max-dropped with a larger share. Nothing was written.",
        )


def _across_error(across: Removal, ledger: Ledger, report: PrepareReport) -> PreparationError:
    shown = [f"{ledger.place(index)} {across.why(index)}" for index in across.indices[:SHOWN].tolist()]
    return PreparationError(
        f"{len(across.indices):,} rows stand in two splits: {'; '.join(shown)}.",
        report,
        why="a model that was trained on a row is not tested by it.",
        fix="mend the files, or --across-splits drop (out of train first).",
    )


@contextmanager
def _spool(folder: Path | None) -> Iterator[IO[str] | None]:
    if folder is None:
        yield None
        return
    directory = Path(tempfile.mkdtemp(dir=folder, prefix=".spool-"))
    try:
        with (directory / "rows.jsonl").open("w+", encoding="utf-8", newline="\n") as file:
            yield file
    finally:
        shutil.rmtree(directory)
