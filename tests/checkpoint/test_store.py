"""Stage, commit, find: only whole checkpoints are ever found."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from supertrainer.checkpoint import store as store_module
from supertrainer.checkpoint.manifest import Checkpoint
from supertrainer.checkpoint.store import CheckpointStore
from supertrainer.core.errors import CheckpointError

Save = Callable[..., Path]


@pytest.fixture
def store(tmp_path: Path) -> CheckpointStore:
    return CheckpointStore(tmp_path / "checkpoints", keep_last=None, keep_best=None)


@pytest.fixture
def save(store: CheckpointStore) -> Save:
    """Commits a step whose model is its number in text."""

    def commit(step: int, text: str | None = None) -> Path:
        staged = store.incoming / f"checkpoint-{step}"
        staged.mkdir(parents=True)
        (staged / "model.safetensors").write_text(text or f"weights of {step}")
        (staged / "training_args.bin").write_bytes(b"pickle")
        (staged / "dcp").mkdir()
        (staged / "dcp" / ".metadata").write_text("shards")
        return store.commit(staged, step=step, extra={"epoch": step / 10})

    return commit


def found(store: CheckpointStore) -> Checkpoint:
    checkpoint = store.find_latest()
    assert checkpoint is not None
    return checkpoint


def test_a_store_that_is_only_looked_at_makes_nothing(store: CheckpointStore, tmp_path: Path) -> None:
    assert store.find_latest() is None
    assert store.find_best() is None
    assert store.steps() == []
    store.prune()
    assert os.listdir(tmp_path) == []


def test_a_commit_moves_the_staged_files_to_their_step(store: CheckpointStore, save: Save) -> None:
    store.prepare()
    path = save(400)
    assert path == store.directory / "step-00000400"
    assert sorted(os.listdir(path)) == ["dcp", "manifest.json", "model.safetensors"]
    assert os.listdir(store.incoming) == []
    assert sorted(os.listdir(store.directory)) == [".incoming", "step-00000400"]
    latest = found(store)
    assert (latest.path, latest.step, latest.extra, latest.skipped) == (path, 400, {"epoch": 40.0}, ())


def test_the_whole_staging_directory_can_be_committed(store: CheckpointStore) -> None:
    staged = store.prepare()
    (staged / "model.safetensors").write_text("weights")
    store.commit(staged, step=1, extra={})
    assert os.listdir(store.incoming) == []
    assert found(store).step == 1


def test_the_start_removes_what_a_killed_process_left(store: CheckpointStore, save: Save) -> None:
    save(1)
    for leftover in (store.incoming / "checkpoint-2", store.directory / ".trash" / "step-00000000.1"):
        leftover.mkdir(parents=True)
        (leftover / "model.safetensors").write_text("half")
    assert os.listdir(store.prepare()) == []
    assert sorted(os.listdir(store.directory)) == [".incoming", "step-00000001"]


def test_looking_for_the_latest_leaves_the_staged_files_of_a_running_process(
    store: CheckpointStore, save: Save
) -> None:
    save(1)
    (store.incoming / "checkpoint-2").mkdir()
    assert found(store).step == 1
    assert os.listdir(store.incoming) == ["checkpoint-2"]


def test_only_unfinished_staging_means_a_start_from_nothing(store: CheckpointStore) -> None:
    staged = store.prepare() / "checkpoint-2"
    staged.mkdir()
    (staged / "model.safetensors").write_text("half")
    assert store.find_latest() is None


def test_the_newest_whole_one_is_taken_and_each_broken_one_named(
    store: CheckpointStore, save: Save, caplog: pytest.LogCaptureFixture
) -> None:
    for step in (100, 200, 300, 400):
        save(step)
    (store.directory / "step-00000400" / "manifest.json").unlink()
    (store.directory / "step-00000300" / "model.safetensors").write_text("weights of 3O0")
    with caplog.at_level(logging.WARNING):
        latest = found(store)
    assert latest.step == 200
    paths = [store.directory / "step-00000400", store.directory / "step-00000300"]
    assert latest.skipped == (
        f"Skipped the broken checkpoint {paths[0]}: it has no manifest.json.",
        f"Skipped the broken checkpoint {paths[1]}: the content of model.safetensors has changed since it was written.",
    )
    assert [record.getMessage() for record in caplog.records] == list(latest.skipped)


def test_steps_are_numbers_not_text(store: CheckpointStore, save: Save) -> None:
    save(99_999_999)
    save(100_000_000)
    assert found(store).step == 100_000_000


def test_strange_names_are_no_checkpoints(store: CheckpointStore, save: Save) -> None:
    save(1)
    for name in ("step-foo", "step-00000010.tmp", "step-10", "checkpoint-99"):
        (store.directory / name).mkdir()
    (store.directory / "step-00000099").write_text("a file")
    assert store.steps() == [1]
    assert found(store).skipped == ()


def test_where_none_is_whole_the_user_decides(store: CheckpointStore, save: Save) -> None:
    save(100)
    (save(200) / "model.safetensors").unlink()
    (store.directory / "step-00000100" / "manifest.json").unlink()
    with pytest.raises(CheckpointError) as caught:
        store.find_latest()
    problem = caught.value.problems[0]
    assert problem.what == f"none of the 2 checkpoint(s) in {store.directory} is complete."
    assert "step-00000200: model.safetensors is missing" in problem.why
    assert "run.fresh=true" in problem.fix


def test_a_reader_looks_again_when_a_writer_deletes_what_it_was_to_read(
    store: CheckpointStore, save: Save, monkeypatch: pytest.MonkeyPatch
) -> None:
    save(2)
    listings = iter([[1], [2]])  # step 1 went between the listing and the reading
    monkeypatch.setattr(store, "steps", lambda: next(listings))
    assert found(store).step == 2


def test_a_replayed_step_keeps_the_whole_checkpoint(store: CheckpointStore, save: Save) -> None:
    path = save(100, "first")
    save(100, "again")
    assert (path / "model.safetensors").read_text() == "first"
    assert os.listdir(store.incoming) == []


def test_a_replayed_step_replaces_a_broken_checkpoint(store: CheckpointStore, save: Save) -> None:
    (save(100, "first") / "model.safetensors").write_text("rotten")
    path = save(100, "again")
    assert (path / "model.safetensors").read_text() == "again"
    assert found(store).step == 100
    assert sorted(os.listdir(store.directory)) == [".incoming", "step-00000100"]


def test_nothing_staged_is_no_checkpoint(store: CheckpointStore) -> None:
    staged = store.prepare() / "checkpoint-1"
    staged.mkdir()
    with pytest.raises(CheckpointError, match="the checkpoint of step 1 is empty"):
        store.commit(staged, step=1, extra={})
    assert store.steps() == []


def test_a_step_has_its_name_only_once_everything_is_on_the_disk(
    store: CheckpointStore, save: Save, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[str] = []
    fsync, rename = os.fsync, os.rename

    def note_fsync(descriptor: int) -> None:
        synced.append(Path(os.readlink(f"/proc/self/fd/{descriptor}")).name)
        fsync(descriptor)

    def note_rename(source: Path, target: Path) -> None:
        synced.append("renamed")
        rename(source, target)

    monkeypatch.setattr(os, "fsync", note_fsync)
    monkeypatch.setattr(os, "rename", note_rename)
    save(5)
    when = synced.index("renamed")
    assert {"model.safetensors", ".metadata", "dcp", "checkpoint-5"} <= set(synced[:when])
    assert any(name.startswith(".manifest.json.") for name in synced[:when])
    assert synced[when + 1 :] == [".incoming", "checkpoints"]


def test_too_little_space_is_said_before_it_is_needed(store: CheckpointStore, monkeypatch: pytest.MonkeyPatch) -> None:
    usage = store_module.shutil.disk_usage("/")
    monkeypatch.setattr(store_module.shutil, "disk_usage", lambda path: usage._replace(free=3 * 2**20))
    store.check_free_space(3 * 2**20)
    with pytest.raises(CheckpointError, match=r"has 3\.0 MiB free, a checkpoint needs 4\.0 MiB"):
        store.check_free_space(4 * 2**20)


def test_a_place_that_cannot_be_written_is_an_error_with_a_fix(tmp_path: Path) -> None:
    (tmp_path / "checkpoints").write_text("a file")
    store = CheckpointStore(tmp_path / "checkpoints", keep_last=1, keep_best=None)
    with pytest.raises(CheckpointError, match=r"can't be read: [\s\S]*Fix: make it a directory"):
        store.prepare()


def test_other_exceptions_pass_through_what_guards_a_write(store: CheckpointStore) -> None:
    store.prepare()
    with pytest.raises(RuntimeError, match="no kernel"), store.writing(step=1):
        raise RuntimeError("no kernel")
