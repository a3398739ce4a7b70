"""Short lines on the console, full ones in the file, none broken by a bar, none with a secret."""

from __future__ import annotations

import logging
import re
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path

import pytest

from supertrainer.core.logging import setup_logging, tame_libraries

log = logging.getLogger("supertrainer.trainers.bert")


@pytest.fixture(autouse=True)
def root_logger(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Gives the root logger back as it was."""
    for name in ("RANK", "WORLD_SIZE"):
        monkeypatch.delenv(name, raising=False)
    root = logging.getLogger()
    handlers, level = list(root.handlers), root.level
    yield
    for handler in [handler for handler in root.handlers if handler not in handlers]:
        root.removeHandler(handler)
        handler.close()
    root.setLevel(level)
    logging.captureWarnings(False)


def test_the_console_is_short_and_the_file_is_full(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    setup_logging(tmp_path / "logs" / "run.log")
    log.info("step %d", 3)
    log.warning("slow")
    log.debug("not this")
    console = capsys.readouterr()
    assert re.fullmatch(r"\d\d:\d\d:\d\d step 3\n\d\d:\d\d:\d\d WARNING slow\n", console.err)
    assert console.out == ""
    first, second = (tmp_path / "logs" / "run.log").read_text().splitlines()
    assert re.fullmatch(
        r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d{3} INFO rank=0 supertrainer\.trainers\.bert:\d+ step 3", first
    )
    assert second.endswith("slow")


def test_setting_up_twice_says_everything_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    setup_logging(tmp_path / "a.log")
    setup_logging(tmp_path / "b.log", level="DEBUG")
    log.debug("hello")
    assert capsys.readouterr().err.count("hello") == 1
    assert (tmp_path / "a.log").read_text() == ""
    assert (tmp_path / "b.log").read_text().count("hello") == 1


def test_other_ranks_show_only_errors_and_have_a_file_of_their_own(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setenv("WORLD_SIZE", "2")
    setup_logging(tmp_path / "run.log")
    log.warning("quiet")
    log.error("broken")
    assert re.fullmatch(r"\[rank 1\] \d\d:\d\d:\d\d ERROR broken\n", capsys.readouterr().err)
    assert (tmp_path / "run-rank1.log").read_text().count("rank=1") == 2
    assert not (tmp_path / "run.log").exists()


def test_a_secret_is_taken_out_of_messages_and_tracebacks(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    setup_logging(tmp_path / "run.log", redact=lambda line: line.replace("hf_secret", "***"))
    try:
        raise ValueError("token hf_secret")
    except ValueError:
        log.exception("with %s", "hf_secret")
    for text in (capsys.readouterr().err, (tmp_path / "run.log").read_text()):
        assert "hf_secret" not in text
        assert text.count("***") == 3  # message, quoted source line, exception


def test_a_progress_bar_stays_whole_and_so_does_the_line(capsys: pytest.CaptureFixture[str]) -> None:
    from tqdm import tqdm

    setup_logging()
    with tqdm(total=2, file=sys.stderr, ncols=60, mininterval=0) as bar:
        bar.update(1)
        log.info("hello")
    lines = re.split(r"[\r\n]", capsys.readouterr().err)
    assert [line for line in lines if "hello" in line] == [
        line for line in lines if re.fullmatch(r"[\d:]{8} hello", line)
    ]
    assert any("1/2" in line for line in lines[-3:])  # drawn again below the message


def test_warnings_reach_the_log(capsys: pytest.CaptureFixture[str]) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        setup_logging()
        warnings.warn("old", FutureWarning, stacklevel=1)
        logging.captureWarnings(False)  # before the filters and the hook of the test run come back
    assert re.match(r"\d\d:\d\d:\d\d WARNING .*FutureWarning: old", capsys.readouterr().err)


def test_libraries_speak_through_our_handlers_and_only_to_warn(capsys: pytest.CaptureFixture[str]) -> None:
    library = logging.getLogger("transformers")
    before = (list(library.handlers), library.level, library.propagate)
    try:
        setup_logging()
        library.addHandler(logging.StreamHandler())  # as its first import does
        library.propagate = False
        tame_libraries()
        logging.getLogger("transformers.trainer").info("chatter")
        logging.getLogger("transformers.trainer").warning("careful")
        logging.getLogger("httpx").info("HTTP Request: GET")
        assert re.fullmatch(r"\d\d:\d\d:\d\d WARNING careful\n", capsys.readouterr().err)
    finally:
        library.handlers[:], library.level, library.propagate = before


def test_a_library_that_names_its_logger_by_a_file_says_only_what_matters(capfd: pytest.CaptureFixture[str]) -> None:
    setup_logging()
    logging.getLogger("/site-packages/hub/saving.py").info("saved, as was asked for")
    logging.getLogger("/site-packages/hub/saving.py").warning("half of it is lost")
    shown = capfd.readouterr().err
    assert "as was asked for" not in shown
    assert "half of it is lost" in shown
