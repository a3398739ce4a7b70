"""What stays: the newest, the best, and always a whole one."""

from __future__ import annotations

import math
import os
import shutil
from pathlib import Path

import pytest

from supertrainer.checkpoint import manifest as manifest_module
from supertrainer.checkpoint.store import CheckpointStore
from supertrainer.core.errors import CheckpointError


def make_store(directory: Path, *, keep_last: int | None, keep_best: tuple[str, bool] | None = None) -> CheckpointStore:
    return CheckpointStore(directory / "checkpoints", keep_last=keep_last, keep_best=keep_best)


def save(store: CheckpointStore, step: int, **metrics: float) -> Path:
    staged = store.prepare() / f"checkpoint-{step}"
    staged.mkdir()
    (staged / "model.safetensors").write_text(f"weights of {step}")
    return store.commit(staged, step=step, extra={"metrics": metrics})


def test_the_newest_stay(tmp_path: Path) -> None:
    store = make_store(tmp_path, keep_last=2)
    left = []
    for step in (1, 2, 3, 4):
        save(store, step)
        store.prune()
        left.append(store.steps())
    assert left == [[1], [1, 2], [2, 3], [3, 4]]
    assert sorted(os.listdir(store.directory)) == [".incoming", "step-00000003", "step-00000004"]


def test_all_stay_where_no_number_is_given(tmp_path: Path) -> None:
    store = make_store(tmp_path, keep_last=None)
    for step in (1, 2, 3):
        save(store, step)
    store.prune()
    assert store.steps() == [1, 2, 3]


@pytest.mark.parametrize(("greater_is_better", "best"), [(True, 2), (False, 1)])
def test_the_best_stays_too_also_in_a_later_process(tmp_path: Path, greater_is_better: bool, best: int) -> None:
    for step, value in {1: 0.25, 2: 0.75, 3: 0.5, 4: 0.75, 5: 0.5}.items():
        store = make_store(tmp_path, keep_last=1, keep_best=("f1", greater_is_better))
        save(store, step, f1=value)
        store.prune()
    assert store.steps() == [best, 5]
    found = store.find_best()
    assert found is not None
    assert found.step == best


def test_a_metric_that_is_no_number_is_never_the_best(tmp_path: Path) -> None:
    store = make_store(tmp_path, keep_last=1, keep_best=("loss", False))
    save(store, 1, loss=math.nan)
    save(store, 2, accuracy=1.0)
    assert store.find_best() is None
    save(store, 3, loss=5.0)
    save(store, 4, loss=-math.inf)
    best = store.find_best()
    assert best is not None
    assert best.step == 3


def test_a_best_one_that_has_rotted_gives_way_to_the_next(tmp_path: Path) -> None:
    store = make_store(tmp_path, keep_last=None, keep_best=("f1", True))
    save(store, 1, f1=0.5)
    (save(store, 2, f1=0.75) / "model.safetensors").write_text("weights of Z")
    best = store.find_best()
    assert best is not None
    assert best.step == 1


def test_broken_ones_do_not_count_as_kept_and_go_once_they_are_older(tmp_path: Path) -> None:
    store = make_store(tmp_path, keep_last=2)
    for step in (1, 2, 3, 4):
        save(store, step)
    (store.directory / "step-00000003" / "manifest.json").unlink()
    store.prune()
    assert store.steps() == [2, 4]


def test_a_broken_newest_one_costs_no_good_one(tmp_path: Path) -> None:
    store = make_store(tmp_path, keep_last=1)
    save(store, 1)
    (save(store, 2) / "manifest.json").unlink()
    store.prune()
    assert store.steps() == [1, 2]


def test_the_last_good_one_stays_while_the_newest_has_rotted_in_place(tmp_path: Path) -> None:
    """Sizes can't show it, so the newest is read in full before anything goes."""
    store = make_store(tmp_path, keep_last=1)
    save(store, 1)
    (save(store, 2) / "model.safetensors").write_text("weights of Z")
    later = make_store(tmp_path, keep_last=1)
    later.prune()
    assert later.steps() == [1, 2]
    latest = later.find_latest()
    assert latest is not None
    assert latest.step == 1


def test_what_was_just_committed_is_not_read_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = make_store(tmp_path, keep_last=1)
    save(store, 1)
    save(store, 2)
    read: list[Path] = []
    monkeypatch.setattr(manifest_module, "sha256_file", lambda path, sync=False: read.append(path))
    store.prune()
    assert store.steps() == [2]
    assert read == []


def test_one_that_cannot_be_deleted_or_vanishes_stops_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = make_store(tmp_path, keep_last=1)
    for step in (1, 2, 3, 4):
        save(store, step)
    rename = os.rename

    def rename_some(source: Path, target: Path) -> None:
        if source.name == "step-00000001":
            raise PermissionError(13, "Permission denied")
        if source.name == "step-00000002":
            shutil.rmtree(source)
        rename(source, target)

    monkeypatch.setattr(os, "rename", rename_some)
    store.prune()
    assert store.steps() == [1, 4]


def test_a_kill_within_a_deletion_leaves_no_half_checkpoint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = make_store(tmp_path, keep_last=1)
    save(store, 1)
    save(store, 2)

    def killed(path: Path, ignore_errors: bool) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as kill:
        kill.setattr(shutil, "rmtree", killed)
        with pytest.raises(KeyboardInterrupt):
            store.prune()
    assert store.steps() == [2] or store.steps() == [1, 2]
    store.prune()
    assert store.steps() == [2]
    assert sorted(os.listdir(store.directory)) == [".incoming", "step-00000002"]


def test_keeping_none_is_refused(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="keep_last=0 would delete the last good checkpoint"):
        make_store(tmp_path, keep_last=0)
