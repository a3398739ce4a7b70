"""A start that failed before it trained anything: its directory takes changed data and another config."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from supertrainer.core.records import append_record, utc_now
from supertrainer.core.run_directory import RunDirectory
from supertrainer.operations.untrained import nothing_trained, waits_for_a_job
from tiny_runs import TINY, TINY_PRETRAIN
from zygote import Zygote

QUICK = [*TINY, "trainer.training_kwargs.num_train_epochs=1"]


def run(zygote: Zygote, place: Path, *words: str) -> tuple[int, str]:
    """The exit code of a command, and what it printed."""
    code = zygote.run(words, directory=place, environment={"XDG_CACHE_HOME": str(place / "cache")})
    text = (place / "output.txt").read_text()
    (place / "output.txt").write_text("")
    return code, text


def test_a_pretraining_goes_on_with_mended_data_and_with_another_config(zygote: Zygote, tmp_path: Path) -> None:
    (tmp_path / "texts").mkdir()
    for number in range(30):
        (tmp_path / "texts" / f"{number}.txt").write_text(f"the sun and the sea and the wind, {number} times " * 20)
    (tmp_path / "texts" / "7.txt").write_bytes(b"sun \xff moon")
    words = [*TINY_PRETRAIN, "dataset.on_broken=error", "trainer.max_steps=2", "trainer.sample_prompts=[]"]
    code, text = run(zygote, tmp_path, *words)
    assert (code, "7.txt:1 of dataset.sources.text: no UTF-8: byte 0xff" in text) == (2, True), text
    (tmp_path / "texts" / "7.txt").write_text("sun and moon " * 20)
    code, text = run(zygote, tmp_path, *words, "trainer.learning_rate=1e-3", "trainer.max_steps=3")
    assert code == 0, text
    assert "nothing was trained in runs/small yet: it takes this config" in text
    stored = json.loads((tmp_path / "runs/small/config.json").read_text())["identity"]
    assert (stored["trainer.learning_rate"], stored["trainer.max_steps"]) == (1e-3, 3)
    code, text = run(zygote, tmp_path, *words)
    assert (code, "holds another run" in text) == (2, True), text


def test_a_fine_tuning_goes_on_with_mended_data_and_with_another_config(zygote: Zygote, place: Path) -> None:
    rows = (place / "rows.csv").read_text()
    (place / "rows.csv").write_text(rows + ",sports\n")
    code, text = run(zygote, place, *QUICK, "run.name=a")
    assert code == 2, text
    (place / "rows.csv").write_text(rows)
    code, text = run(zygote, place, *QUICK, "run.name=a", "run.seed=7", "operation=check")
    assert (code, "there already, nothing was trained in it yet" in text) == (0, True), text
    code, text = run(zygote, place, *QUICK, "run.name=a", "run.seed=7")
    assert (code, "nothing was trained in runs/a yet" in text) == (0, True), text
    (place / "rows.csv").write_text(rows + "a bank,business\n")
    (place / "runs/a/report.json").unlink()
    code, text = run(zygote, place, *QUICK, "run.name=a", "run.seed=7")
    assert (code, "has changed since it was started: rows.csv" in text) == (2, True), text


@pytest.mark.parametrize("trace", ["checkpoints/step-00000002", "model", "metrics.jsonl", "report.json"])
def test_what_was_trained_leaves_a_trace(tmp_path: Path, trace: str) -> None:
    directory = RunDirectory(tmp_path)
    (tmp_path / "metrics.jsonl").write_text("")
    (tmp_path / "checkpoints/.incoming/step-2").mkdir(parents=True)
    assert nothing_trained(directory)
    if trace == "metrics.jsonl":
        append_record(directory.metrics_jsonl, {"step": 1, "loss": 2.0})
    elif trace == "report.json":
        directory.report_json.write_text("{}")
    else:
        (tmp_path / trace).mkdir()  # a broken checkpoint: its owner may restore it
    assert not nothing_trained(directory)


@pytest.mark.parametrize(("state", "waits"), [("PENDING", True), ("RUNNING", True), ("FAILED", False)])
def test_a_job_in_the_queue_binds_its_directory_to_its_config(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, state: str, waits: bool
) -> None:
    directory = RunDirectory(tmp_path)
    (tmp_path / "programs").mkdir()
    squeue = tmp_path / "programs" / "squeue"
    squeue.write_text(
        f"#!/bin/sh\ncase \"$*\" in *--me*) exit 0;; *) echo '7|7|{state}|None|n1|0:00|30:00|0|0|';; esac\n"
    )
    squeue.chmod(0o755)
    monkeypatch.setenv("PATH", f"{squeue.parent}:/usr/bin:/bin")
    assert not waits_for_a_job(directory)  # it was never submitted
    directory.slurm_sh.write_text("#!/bin/sh\n")
    append_record(directory.jobs_jsonl, {"event": "submit", "job_id": "7", "chain": ["7"], "time": utc_now()})
    assert waits_for_a_job(directory) == waits
