"""A finished run that is only to be shown: neither its data nor its base model need be there. No torch."""

from __future__ import annotations

import sys

from supertrainer.benchmark.console import print_report
from supertrainer.benchmark.report import add_missing_page, read_report
from supertrainer.config.command import Command
from supertrainer.core.run_directory import RunDirectory
from supertrainer.operations.paths import relative


def print_if_finished(command: Command) -> bool:
    """Prints the report of the run directory that `config=` names and nothing changes; False where there is none.

    Raises:
        DataError: report.json can't be read; `is_finished` in the way of a run takes it as not written.
    """
    if command.source is None or command.overrides or not command.source.is_dir():
        return False
    directory = RunDirectory(command.source)
    if not (directory.report_json.is_file() and directory.report_md.is_file() and directory.model.is_dir()):
        return False
    report = read_report(directory)
    if report.operation != "train":
        return False
    add_missing_page(directory, report=report)
    here = relative(directory.path)  # the run may have been moved since
    commands = {purpose: text.replace(report.directory, here) for purpose, text in report.commands.items()}
    print_report(report.model_copy(update={"directory": here, "commands": commands}), stream=sys.stdout)
    return True
