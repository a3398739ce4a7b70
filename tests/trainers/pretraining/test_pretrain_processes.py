"""Real processes over gloo: the update of one process, the same bits after a resume, other numbers of them, kills."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import killed_pretraining
import tiny_pretraining
from killed_pretraining import rows_noted, rows_of_steps
from tiny_pretraining import (
    apart,
    checkpoint,
    cut,
    facts,
    pretrainer,
    same_bits,
    signals,
    state,
)
from tiny_training import launch

# Far from zero, AdamW's update is nearly proportional to the gradient: it would blow up the rounding of tiny ones.
PLAIN: dict[str, Any] = {
    "eps": 1.0,
    "learning_rate": 1.0,
    "weight_decay": 0.0,
    "max_steps": 3,
    "save_every": 1,
    "eval_every": 3,
    "z_loss": 1e-3,
}
RUN: dict[str, Any] = {"texts": 20, "save_every": 1}
FSDP, DDP = {"parallel": {"strategy": "fsdp"}}, {"parallel": {"strategy": "ddp"}}
SHARED = {
    "ddp": {**PLAIN, **DDP, "micro_batch_size": 1, "buckets": [4000]},
    "fsdp": {**PLAIN, **FSDP, "micro_batch_size": 2},
    "fsdp-full": {**PLAIN, **FSDP, "micro_batch_size": 4, "activation_checkpointing": "full"},
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Every run of two processes in one start: importing takes them longer than training."""
    folder = tmp_path_factory.mktemp("two-processes")
    pretrainer(folder / "one", **RUN).train()
    specs = [{"directory": str(folder / name), **keys} for name, keys in SHARED.items()]
    for name, keys in (("ddp", DDP), ("fsdp", FSDP)):
        whole, resumed = folder / f"whole-{name}", folder / f"resumed-{name}"
        specs.append({"directory": str(whole), **RUN, **keys})
        specs.append({"directory": str(resumed), "cut": [str(whole), 3], "attempt": 2, **RUN, **keys})
    other = {"directory": str(folder / "two-from-one"), "cut": [str(folder / "one"), 2], **FSDP, **RUN}
    untied = {"tie_embeddings": False}
    specs += [
        other,
        {"directory": str(folder / "signalled"), "signalled": [1, 2], **RUN, **FSDP},
        {"directory": str(folder / "poisoned"), "poisoned": {"steps": [3], "rank": 1}, "max_steps": 3, **RUN, **DDP},
        {"directory": str(folder / "rows"), "weight_decay": 0.0, "max_steps": 2, "save_every": 1, **FSDP},
        {
            "directory": str(folder / "untied"),
            "max_steps": 2,
            "model": untied,
            "sample_prompts": ["w1"],
            "eval_every": 2,
            **FSDP,
        },
    ]
    launch(2, specs, folder, script=tiny_pretraining.__file__)
    return folder


@pytest.mark.parametrize("name", SHARED)
def test_two_processes_make_the_update_of_one(folder: Path, tmp_path: Path, name: str) -> None:
    one = pretrainer(tmp_path / "one", **PLAIN).train()
    assert apart(tmp_path / "one", folder / name, 3, since=checkpoint(tmp_path / "one", 1)) < 1e-5
    result = json.loads((folder / name / "result.json").read_text())
    assert result["metrics"] == pytest.approx(one.metrics, rel=1e-6)
    assert facts(folder / name, 3)["data"] == facts(tmp_path / "one", 3)["data"]
    sides = [(run / "metrics.jsonl").read_text().splitlines() for run in (tmp_path / "one", folder / name)]
    for alone, together in zip(*(map(json.loads, lines) for lines in sides), strict=True):
        for key in {"loss", "grad_norm", "eval_loss", "tokens", "lr"} & alone.keys():
            assert together[key] == pytest.approx(alone[key], rel=1e-5)


def test_the_processes_have_different_numbers_of_tokens_to_predict(tmp_path: Path) -> None:
    """Else the test above would hold for a mean of means too."""
    trainer = pretrainer(tmp_path / "run")
    streams = [trainer.dataset.open(sequence_length=16, global_batch_size=8, rank=r, world_size=2) for r in (0, 1)]
    counts = [[int(np.sum(stream.next_step().targets != -100)) for _ in range(3)] for stream in streams]
    assert any(one != other for one, other in zip(*counts, strict=True))


@pytest.mark.parametrize("name", ["ddp", "fsdp"])
def test_a_resumed_run_of_two_processes_has_the_bits_of_one_never_stopped(folder: Path, name: str) -> None:
    assert json.loads((folder / f"resumed-{name}" / "result.json").read_text())["first_step"] == 3
    assert same_bits(folder / f"whole-{name}", folder / f"resumed-{name}", 6)


def test_a_run_goes_on_with_two_processes_and_with_one_again(folder: Path) -> None:
    run = cut(folder / "two-from-one", 4, folder / "one-from-two")
    assert pretrainer(run, **RUN, attempt=3).train().first_step == 4
    for name in ("two-from-one", "one-from-two"):
        assert apart(folder / "one", folder / name, 6, since=checkpoint(folder / "one", 1)) < 1e-4
        assert facts(folder / name, 6)["data"] == facts(folder / "one", 6)["data"]


def test_a_signal_to_one_process_stops_both_after_the_step(folder: Path) -> None:
    result = json.loads((folder / "signalled" / "result.json").read_text())
    assert (result["stopped_by"], result["step"]) == ("", 2)  # the first process got no signal
    assert same_bits(folder / "whole-fsdp", folder / "signalled", 2)


def test_both_processes_skip_what_is_poisoned_on_one(folder: Path) -> None:
    before, after = state(folder / "poisoned", 2), state(folder / "poisoned", 3)
    assert all(torch.equal(before[name], after[name]) for name in before)
    assert json.loads((folder / "poisoned" / "result.json").read_text())["skipped_steps"] == 1


def test_every_row_of_a_tied_and_uneven_vocabulary_moves(folder: Path) -> None:
    one, two = (state(folder / "rows", step)["model.embedding.weight"] for step in (1, 2))
    assert one.shape == (105, 32)
    assert bool((one != two).any(dim=1).all())


def test_divided_weights_write_a_whole_model_and_samples(folder: Path) -> None:
    from safetensors.torch import load_file

    written = load_file(folder / "untied" / "model" / "model.safetensors")
    found = state(folder / "untied", 2)
    assert torch.equal(written["lm_head.weight"], found["model.head.weight"])
    assert (folder / "untied" / "samples.jsonl").read_text().count("\n") == 1


KILLED: dict[str, Any] = {"texts": 20, "max_steps": 40, "save_every": 2, "keep_last": 2}
OTHERS: dict[str, Any] = {
    **PLAIN,
    "texts": 20,
    "global_batch_size": 6,
    "max_steps": 24,
    "eval_every": 0,
    "keep_last": 99,
}


@pytest.fixture(scope="module")
def killed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two runs whose processes were killed again and again: always one, and then more of them."""
    folder = tmp_path_factory.mktemp("killed")
    specs = [
        {"directory": str(folder / "killed"), "processes": [1, 1, 1, 1, 1], **KILLED},
        {"directory": str(folder / "other-numbers"), "processes": [1, 2, 3, 2], **OTHERS},
        {"directory": str(folder / "survivor"), **KILLED, "max_steps": 2000},
    ]
    (folder / "specs.json").write_text(json.dumps(specs))
    command = [sys.executable, killed_pretraining.__file__, str(folder / "specs.json")]
    done = subprocess.run(command, timeout=280, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-9000:]
    return folder


def test_a_run_that_is_killed_again_and_again_has_the_bits_of_one_that_is_not(killed: Path) -> None:
    assert json.loads((killed / "killed" / "exits.json").read_text()) == [-9, -9, -9, -9, 0]
    pretrainer(killed / "whole", **KILLED).train()
    assert same_bits(killed / "whole", killed / "killed", 40)
    rows = (killed / "killed" / "metrics.jsonl").read_text().splitlines()
    repeated = len(rows) - 40  # each kill costs at most the steps since a save, and those of one that was on its way
    assert repeated <= 4 * 4
    assert (killed / "killed" / "model" / "model.safetensors").is_file()


def test_a_run_that_is_killed_and_goes_on_with_other_numbers_of_processes_has_the_same_rows(killed: Path) -> None:
    run, whole = killed / "other-numbers", killed / "whole-of-others"
    assert json.loads((run / "exits.json").read_text()) == [-9, *2 * [-9], *3 * [-9], 0, 0]
    with rows_noted(whole.with_suffix(".rows-0.jsonl")):
        pretrainer(whole, **OTHERS).train()
    rows = rows_of_steps(whole)
    assert {step: len(slots) for step, slots in rows.items()} == dict.fromkeys(range(1, 25), 6)
    assert rows_of_steps(run) == rows
    assert all(run.with_suffix(f".rows-{rank}.jsonl").is_file() for rank in range(3))
    assert facts(run, 24)["data"] == facts(whole, 24)["data"]
    assert apart(whole, run, 24, since=checkpoint(whole, 1)) < 1e-5


def test_a_process_whose_neighbour_is_killed_says_so_and_leaves_a_run_that_goes_on(killed: Path) -> None:
    told = json.loads((killed / "survivor.error.json").read_text())["error"]
    assert told.startswith("LaunchError: another process of the run has ended: ")
    assert "Fix: its own error stands with its rank; where it has none it was killed" in told
    run = killed / "survivor"
    newest = max(int(folder.name[5:]) for folder in (run / "checkpoints").glob("step-*"))
    resumed = pretrainer(run, **{**KILLED, "max_steps": 2000}, attempt=2)
    with signals(0, newest + 1):
        assert resumed.train().first_step == newest


@pytest.mark.slow
def test_four_processes_in_two_groups_make_the_update_of_one(tmp_path: Path) -> None:
    groups = {"parallel": {"strategy": "fsdp", "replicas": 2}}
    specs = [{"directory": str(tmp_path / "four"), **PLAIN, **groups}]
    launch(4, specs, tmp_path, script=tiny_pretraining.__file__)
    pretrainer(tmp_path / "one", **PLAIN).train()
    assert apart(tmp_path / "one", tmp_path / "four", 3, since=checkpoint(tmp_path / "one", 1)) < 1e-5


@pytest.mark.slow
def test_three_processes_add_in_the_same_order_after_a_resume(tmp_path: Path) -> None:
    """Of three terms the order of addition shows, which for two it can't."""
    keys = {**RUN, **DDP, "global_batch_size": 6, "buckets": [4000]}
    whole, resumed = tmp_path / "whole", tmp_path / "resumed"
    specs = [
        {"directory": str(whole), **keys},
        {"directory": str(resumed), "cut": [str(whole), 3], "attempt": 2, **keys},
    ]
    launch(3, specs, tmp_path, script=tiny_pretraining.__file__)
    assert same_bits(whole, resumed, 6)
