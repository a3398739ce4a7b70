"""Whole files or none, strict JSON, and every face of a full disk on the installed libraries."""

from __future__ import annotations

import errno
import json
import math
import os
import subprocess
import sys
from fractions import Fraction
from pathlib import Path

import numpy
import pytest

from supertrainer.core import files

FULL_DISK = Path(__file__).parent / "full_disk.py"


def test_write_atomic_replaces_the_content_and_leaves_nothing_beside_it(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_text("old")
    assert files.write_atomic(path, "new") is True
    assert path.read_text() == "new"
    assert os.listdir(tmp_path) == ["a.txt"]


def test_write_atomic_keeps_the_old_content_when_the_rename_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "a.txt"
    path.write_text("old")

    def full(source: object, target: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "replace", full)
    with pytest.raises(OSError, match="No space left"):
        files.write_atomic(path, "new")
    assert path.read_text() == "old"
    assert os.listdir(tmp_path) == ["a.txt"]


def test_write_atomic_changes_nothing_when_told_not_to(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_text("old")
    assert files.write_atomic(path, "new", only_if=lambda: False) is False
    assert path.read_text() == "old"


def test_written_files_follow_the_umask_so_that_a_group_can_read_them(tmp_path: Path) -> None:
    mask = os.umask(0o027)
    try:
        files.write_atomic(tmp_path / "a.txt", "x")
    finally:
        os.umask(mask)
    assert (tmp_path / "a.txt").stat().st_mode & 0o777 == 0o640


def test_create_exclusive_makes_a_file_once(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    assert files.create_exclusive(path, "first") is True
    assert files.create_exclusive(path, "second") is False
    assert path.read_text() == "first"
    assert os.listdir(tmp_path) == ["a.txt"]


def test_create_exclusive_works_where_hard_links_do_not(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(source: object, target: object) -> None:
        raise OSError(errno.EPERM, "Operation not permitted")

    monkeypatch.setattr(os, "link", refuse)
    path = tmp_path / "a.txt"
    assert files.create_exclusive(path, "first") is True
    assert files.create_exclusive(path, "second") is False
    assert path.read_text() == "first"


def test_create_exclusive_believes_the_link_count_over_a_repeated_request(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """NFS: the server made the link, its answer got lost, and the repeated request says that the file exists."""
    link = os.link

    def link_twice(source: Path, target: Path) -> None:
        link(source, target)
        link(source, target)

    monkeypatch.setattr(os, "link", link_twice)
    assert files.create_exclusive(tmp_path / "a.txt", "mine") is True


def test_json_is_strict_and_comes_back_as_it_was(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    value = {
        "nan": math.nan,
        "rows": [math.inf, -math.inf, 1.5],
        "text": "µ 日本",
        "path": Path("a/b"),
        "pair": (1, None),
    }
    files.write_json(path, value)

    def refuse(constant: str) -> float:
        raise AssertionError(f"{constant} is no JSON")

    strict = json.loads(path.read_text(encoding="utf-8"), parse_constant=refuse)
    assert strict["nan"] == "NaN"
    assert strict["rows"] == ["Infinity", "-Infinity", 1.5]
    again = files.read_json(path)
    assert math.isnan(again.pop("nan"))
    assert again == {"rows": [math.inf, -math.inf, 1.5], "text": "µ 日本", "path": "a/b", "pair": [1, None]}


def test_json_takes_numpy_numbers_and_half_surrogates() -> None:
    numbers = {"loss": numpy.float32(0.5), "step": numpy.int64(3), "flag": True, "share": Fraction(1, 4)}
    assert files.json_text(numbers) == '{"loss": 0.5, "step": 3, "flag": true, "share": 0.25}'
    assert files.json_text("\ud83d").encode() == b'"\\ud83d"'


def test_json_refuses_what_it_cannot_hold() -> None:
    with pytest.raises(TypeError, match="of type object can't be written as JSON"):
        files.json_text({"a": object()})


def test_sha256_of_a_file(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"abc")
    assert files.sha256_file(tmp_path / "a") == "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT, errno.EFBIG])
def test_a_full_disk_is_seen_by_its_number_anywhere_in_the_chain(number: int) -> None:
    cause = ValueError("saving failed")
    cause.__context__ = OSError(number, "no")
    outer = RuntimeError("the trainer stopped")
    outer.__cause__ = cause
    assert files.is_disk_full(outer)


@pytest.mark.parametrize(
    "other",
    [
        OSError(errno.EACCES, "Permission denied"),
        RuntimeError("CUDA out of memory"),
        ValueError("unexpected pos 576 vs 534"),
        RuntimeError("os error 281"),
    ],
)
def test_other_errors_are_no_full_disk(other: Exception) -> None:
    assert not files.is_disk_full(other)


def test_a_full_disk_is_seen_through_the_installed_libraries(tmp_path: Path) -> None:
    """safetensors, torch's two formats and plain writes, past a file size limit and on a 1 MiB file system."""
    done = subprocess.run([sys.executable, FULL_DISK, tmp_path], capture_output=True, text=True, check=True)
    answers = json.loads(done.stdout)
    expected = dict.fromkeys(["safetensors", "torch zip", "torch zip to a file", "torch legacy", "plain write"], True)
    assert answers["limit"] == expected
    if answers["small disk"] == "not permitted":
        pytest.skip("this machine doesn't let a user mount a tmpfs; the file size limit was tested")
    assert answers["small disk"] == expected
