"""JSON lines through kills and full disks."""

from __future__ import annotations

import errno
import json
import logging
import math
import os
from pathlib import Path

import pytest

from supertrainer.core.records import append_record, last_per_step, read_records


def test_records_are_one_strict_line_each(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    append_record(path, {"step": 1, "loss": 0.5})
    append_record(path, {"step": 2, "loss": math.nan, "note": "a\nb µ"}, sync=True)
    assert path.read_text(encoding="utf-8") == (
        '{"step": 1, "loss": 0.5}\n{"step": 2, "loss": "NaN", "note": "a\\nb µ"}\n'
    )
    rows, unreadable = read_records(path)
    assert unreadable == 0
    assert rows[0] == {"step": 1, "loss": 0.5}
    assert math.isnan(rows[1]["loss"])


def test_each_record_is_one_write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    written: list[int] = []
    write = os.write

    def counting(descriptor: int, data: bytes) -> int:
        written.append(len(data))
        return write(descriptor, data)

    monkeypatch.setattr(os, "write", counting)
    append_record(tmp_path / "a.jsonl", {"text": "x" * 100_000})
    assert written == [100_000 + len('{"text": ""}\n')]


@pytest.mark.parametrize("torn", [b'{"step": 2, "lo', b'{"step": 2, "text": "\xe6\x97', b"\0\0\0\0", b"{", b"3"])
def test_a_torn_last_line_is_skipped_counted_and_said(
    tmp_path: Path, torn: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "a.jsonl"
    path.write_bytes(b'{"step": 1}\n' + torn)
    with caplog.at_level(logging.WARNING):
        assert read_records(path) == ([{"step": 1}], 1)
    assert "Skipped 1 unreadable line(s)" in caplog.text


def test_after_a_torn_line_the_next_record_has_its_own(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_bytes(b'{"step": 1}\n{"step": 2, "lo')
    append_record(path, {"step": 2})
    append_record(path, {"step": 3})
    assert read_records(path) == ([{"step": 1}, {"step": 2}, {"step": 3}], 1)


def test_a_record_that_lost_only_its_line_end_counts(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_bytes(b'{"step": 1}')
    append_record(path, {"step": 2})
    assert read_records(path) == ([{"step": 1}, {"step": 2}], 0)


def test_a_missing_file_has_no_records(tmp_path: Path) -> None:
    assert read_records(tmp_path / "a.jsonl") == ([], 0)


def test_a_disk_that_fills_up_within_a_line_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "a.jsonl"
    append_record(path, {"step": 1})
    write = os.write
    calls: list[int] = []

    def half_then_full(descriptor: int, data: bytes) -> int:
        calls.append(len(data))
        if len(calls) == 1:
            return write(descriptor, bytes(data[:5]))
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as full:
        full.setattr(os, "write", half_then_full)
        with pytest.raises(OSError, match="No space left"):
            append_record(path, {"step": 2})
    append_record(path, {"step": 2})
    assert read_records(path) == ([{"step": 1}, {"step": 2}], 1)


def test_the_last_value_of_each_step_stays() -> None:
    rows = [
        {"step": 1, "loss": 5.0, "attempt": 1},
        {"step": 2, "loss": 4.0, "attempt": 1},
        {"step": 2, "eval_loss": 4.5, "attempt": 1},
        {"step": 3, "loss": 3.0, "attempt": 1},
        {"note": "no step"},
        {"step": 2, "loss": 4.25, "attempt": 2},
        {"step": True},
    ]
    assert last_per_step(rows) == [
        {"step": 1, "loss": 5.0, "attempt": 1},
        {"step": 2, "loss": 4.25, "eval_loss": 4.5, "attempt": 2},
        {"step": 3, "loss": 3.0, "attempt": 1},
    ]
    assert json.dumps(rows[1]) == '{"step": 2, "loss": 4.0, "attempt": 1}'  # what was given is as it was
