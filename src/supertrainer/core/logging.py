"""Where log messages go: short ones to the console, full ones to a file, and around progress bars.

An entry point calls `setup_logging` once. Each other module only has `log = logging.getLogger(__name__)`.
"""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Callable
from pathlib import Path

from supertrainer.core.distributed import is_main, rank

CONSOLE_FORMAT = "%(asctime)s %(message)s"
CONSOLE_FORMAT_LOUD = "%(asctime)s %(levelname)s %(message)s"
FILE_FORMAT = "%(asctime)s.%(msecs)03d %(levelname)s rank=%(rank)d %(name)s:%(lineno)d %(message)s"
# These tell of each request, lock and cache lookup at INFO.
NOISY = [
    *("absl", "accelerate", "datasets", "filelock", "fsspec", "h5py", "httpcore", "httpx", "huggingface_hub"),
    *("matplotlib", "PIL", "peft", "transformers", "urllib3"),
]
OWN_HANDLERS = ("datasets", "huggingface_hub", "transformers")


def setup_logging(
    log_file: Path | None = None,
    *,
    level: int | str = "INFO",
    redact: Callable[[str], str] | None = None,
) -> None:
    """Sends the messages of every library to stderr and to a file. Calling it again replaces what it set before.

    Rank 0 alone speaks on the console, but for errors. Every rank has a file: `run.log`, `run-rank1.log`, …

    Args:
        log_file: appended to; its directory is made. None for no file.
        level: the least that is shown and written.
        redact: gets each finished line, its traceback too, and returns it without secrets.
    """
    root = logging.getLogger()
    for handler in [handler for handler in root.handlers if isinstance(handler, ConsoleHandler | RunFileHandler)]:
        root.removeHandler(handler)
        handler.close()
    root.setLevel(level)
    root.addHandler(ConsoleHandler(redact=redact))
    root.handlers[-1].addFilter(_is_no_chatter_of_a_file)
    if log_file is not None:
        log_file.parent.mkdir(parents=True, exist_ok=True)
        path = log_file if is_main() else log_file.with_stem(f"{log_file.stem}-rank{rank()}")
        root.addHandler(RunFileHandler(path, redact=redact))
    logging.captureWarnings(True)
    tame_libraries()


def _is_no_chatter_of_a_file(record: logging.LogRecord) -> bool:
    """huggingface_hub gives some loggers a file's path for a name, which no parent's level reaches."""
    return record.levelno >= logging.WARNING or os.sep not in record.name


def tame_libraries() -> None:
    """Takes away the libraries' own handlers and their chatter. Call again after the first import of transformers.

    transformers adds a handler to its logger when it is imported, and keeps its messages from ours.
    """
    for name in NOISY:
        logging.getLogger(name).setLevel(logging.WARNING)
    for name in OWN_HANDLERS:
        logger = logging.getLogger(name)
        logger.handlers.clear()
        logger.propagate = True


class ConsoleHandler(logging.Handler):
    """Writes to stderr, above the progress bars that tqdm draws there."""

    def __init__(self, *, redact: Callable[[str], str] | None) -> None:
        super().__init__()
        self.addFilter(_console_wants)
        self.setFormatter(_ConsoleFormatter(redact))

    def emit(self, record: logging.LogRecord) -> None:
        try:
            line = self.format(record)
            if "tqdm" in sys.modules:  # never imported for this: no bar can be there without it
                from tqdm import tqdm

                tqdm.write(line, file=sys.stderr)
            else:
                print(line, file=sys.stderr, flush=True)
        except Exception:
            self.handleError(record)


class RunFileHandler(logging.FileHandler):
    """Appends to a run's log file."""

    def __init__(self, path: Path, *, redact: Callable[[str], str] | None) -> None:
        super().__init__(path, encoding="utf-8", errors="backslashreplace")
        self.addFilter(_add_rank)
        self.setFormatter(_Redacting(FILE_FORMAT, redact))


class _Redacting(logging.Formatter):
    def __init__(self, text: str, redact: Callable[[str], str] | None, datefmt: str = "%Y-%m-%d %H:%M:%S") -> None:
        super().__init__(text, datefmt)
        self._redact = redact

    def format(self, record: logging.LogRecord) -> str:
        line = super().format(record)
        return line if self._redact is None else self._redact(line)


class _ConsoleFormatter(_Redacting):
    """Short: the level is named only where it matters, the rank where it isn't 0."""

    def __init__(self, redact: Callable[[str], str] | None) -> None:
        super().__init__(CONSOLE_FORMAT, redact, "%H:%M:%S")
        self._loud = _Redacting(CONSOLE_FORMAT_LOUD, redact, "%H:%M:%S")

    def format(self, record: logging.LogRecord) -> str:
        line = self._loud.format(record) if record.levelno >= logging.WARNING else super().format(record)
        return line if is_main() else f"[rank {rank()}] {line}"


def _console_wants(record: logging.LogRecord) -> bool:
    return record.levelno >= logging.ERROR or is_main()


def _add_rank(record: logging.LogRecord) -> bool:
    record.rank = rank()
    return True
