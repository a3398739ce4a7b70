"""The output directory: written aside, then moved into place as a whole."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from supertrainer.core.errors import ConfigError
from supertrainer.core.files import write_json
from supertrainer.core.sources import local_path
from supertrainer.data.prepare.options import PrepareOptions
from supertrainer.data.prepare.report import PrepareReport, report_lines
from supertrainer.data.schema import SPLITS

_OURS = (*(f"{split}.{format}" for split in SPLITS for format in ("jsonl", "parquet")), "dropped.jsonl", "report.json")
_MADE = (*_OURS, "report.md")


class Output:
    """Where a preparation goes."""

    def __init__(self, options: PrepareOptions) -> None:
        self._options = options

    def check(self) -> None:
        """Checks that the directory is free, and no part of the source.

        Raises:
            ConfigError: it isn't.
        """
        out, source = self._options.out.absolute(), local_path(self._options.source)
        if self._options.dry_run:
            return
        if source is not None and source.is_dir() and out.resolve().is_relative_to(source.resolve()):
            raise ConfigError(
                f"--out {self._options.out} lies in the source {self._options.source}.",
                why="the next preparation would read what this one wrote.",
                fix="a directory elsewhere.",
            )
        if out.exists() and not out.is_dir():
            raise ConfigError(f"--out {self._options.out} is a file.", fix="a directory.")
        there = sorted(path.name for path in out.iterdir()) if out.is_dir() else []
        if not there:
            return
        if not self._options.overwrite:
            raise ConfigError(
                f"--out {self._options.out} holds {', '.join(there[:5])}.",
                fix="another directory, or --overwrite, which replaces what an earlier preparation wrote there.",
            )
        if source is not None and source.resolve().parent == out.resolve() and source.name in _MADE:
            raise ConfigError(f"--out {self._options.out} would overwrite the source.", fix="another directory.")

    @contextmanager
    def folder(self) -> Iterator[Path | None]:
        """A directory beside the output, gone at the end; None in a dry run."""
        if self._options.dry_run:
            yield None
            return
        out = self._options.out.absolute()
        out.parent.mkdir(parents=True, exist_ok=True)
        aside = Path(tempfile.mkdtemp(dir=out.parent, prefix=f".{out.name}-"))
        try:
            yield aside
        finally:
            shutil.rmtree(aside)

    def commit(self, folder: Path, report: PrepareReport) -> None:
        """Moves what was written into place; files of an earlier preparation go."""
        write_json(folder / "report.json", report.as_dict())
        (folder / "report.md").write_text("\n".join(report_lines(report)) + "\n", encoding="utf-8", newline="\n")
        out = self._options.out
        out.mkdir(parents=True, exist_ok=True)
        for name in _MADE:
            made = folder / name
            if made.exists():
                made.replace(out / name)
            else:
                (out / name).unlink(missing_ok=True)
