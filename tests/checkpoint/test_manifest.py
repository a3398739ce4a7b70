"""What makes a step directory complete, and each way in which it isn't."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from supertrainer.checkpoint.manifest import BrokenCheckpointError, read_checkpoint, seal, size_of, step_name, step_of


@pytest.fixture
def sealed(tmp_path: Path) -> Path:
    directory = tmp_path / "step-00000007"
    (directory / "dcp").mkdir(parents=True)
    (directory / "model.safetensors").write_bytes(b"abc")
    (directory / "dcp" / ".metadata").write_bytes(b"hidden")
    seal(directory, step=7, extra={"metrics": {"f1": 0.5}})
    return directory


def test_the_manifest_lists_every_file_with_size_and_hash(sealed: Path) -> None:
    manifest = json.loads((sealed / "manifest.json").read_text())
    assert (manifest["format"], manifest["step"], manifest["extra"]) == (1, 7, {"metrics": {"f1": 0.5}})
    assert [(entry["path"], entry["size"]) for entry in manifest["files"]] == [
        ("dcp/.metadata", 6),
        ("model.safetensors", 3),
    ]
    assert manifest["files"][1]["sha256"] == "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"


def test_a_sealed_directory_is_complete(sealed: Path) -> None:
    checkpoint = read_checkpoint(sealed, hashes=True)
    assert (checkpoint.path, checkpoint.step, checkpoint.size_bytes, checkpoint.skipped) == (sealed, 7, 9, ())
    assert checkpoint.extra == {"metrics": {"f1": 0.5}}


def test_pickles_that_nothing_reads_back_are_removed(tmp_path: Path) -> None:
    kept = ["model.safetensors", "optimizer.pt", "rng_state.pth", "rng_state_1.pth", "scaler.pt", "scheduler.pt"]
    kept += ["optimizer.bin", "pytorch_model_fsdp.bin"]
    for name in [*kept, "trainer_state.json", "training_args.bin", "pytorch_model.bin", "notes.pkl"]:
        (tmp_path / name).write_bytes(b"x")
    seal(tmp_path, step=7, extra={})
    assert sorted(os.listdir(tmp_path)) == sorted([*kept, "trainer_state.json", "manifest.json"])


def grow(directory: Path) -> None:
    (directory / "model.safetensors").write_bytes(b"abcd")


def rot(directory: Path) -> None:
    (directory / "model.safetensors").write_bytes(b"abd")


def lose(directory: Path) -> None:
    (directory / "dcp" / ".metadata").unlink()


def cut(directory: Path) -> None:
    path = directory / "manifest.json"
    path.write_bytes(path.read_bytes()[:-30])


def lose_manifest(directory: Path) -> None:
    (directory / "manifest.json").unlink()


def edit(**changes: object) -> Callable[[Path], None]:
    def change(directory: Path) -> None:
        path = directory / "manifest.json"
        path.write_text(json.dumps(json.loads(path.read_text()) | changes))

    return change


OUTSIDE = {"path": "../model.safetensors", "size": 3, "sha256": "0"}


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (grow, "model.safetensors has 4 bytes, the manifest.json says 3"),
        (rot, "the content of model.safetensors has changed"),
        (lose, "dcp/.metadata is missing"),
        (cut, "its manifest.json can't be read"),
        (lose_manifest, "it has no manifest.json"),
        (edit(step=8), "its manifest.json is of step 8"),
        (edit(format=2), "its format is 2, this version reads 1"),
        (edit(files=[]), "its manifest.json names no file"),
        (edit(files=[OUTSIDE]), "points out of the directory"),
        (edit(files=[OUTSIDE | {"path": "/etc/passwd"}]), "points out of the directory"),
        (edit(files=3), "its manifest.json can't be read"),
        (edit(extra=None), "its manifest.json can't be read"),
    ],
)
def test_each_damage_is_named(sealed: Path, damage: Callable[[Path], None], message: str) -> None:
    damage(sealed)
    with pytest.raises(BrokenCheckpointError, match=re.escape(message)):
        read_checkpoint(sealed, hashes=True)


def test_sizes_alone_do_not_read_the_content(sealed: Path) -> None:
    rot(sealed)
    assert read_checkpoint(sealed, hashes=False).step == 7


def test_a_directory_that_is_gone_is_not_broken(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        read_checkpoint(tmp_path / "step-00000007", hashes=True)


@pytest.mark.parametrize("step", [0, 400, 99_999_999, 123_456_789])
def test_names_and_steps_go_both_ways(step: int) -> None:
    assert step_of(step_name(step)) == step


def test_the_name_of_a_step() -> None:
    assert step_name(400) == "step-00000400"


@pytest.mark.parametrize(
    "name",
    ["step-foo", "step-10", "step-00000010.tmp", "step-000000010", "step-00000010 ", "Step-00000010", ".incoming"],
)
def test_other_names_are_no_steps(name: str) -> None:
    assert step_of(name) is None


def test_the_size_of_a_directory_counts_all_files_below_it(sealed: Path) -> None:
    (sealed / "manifest.json").unlink()
    assert size_of(sealed) == 9
    assert size_of(sealed / "missing") == 0
