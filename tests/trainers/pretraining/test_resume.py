"""Resumed = uninterrupted, to the last bit: weights, moments, data, counters; and longer = extended."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.optim import AdamW

from supertrainer.core.errors import ConfigError
from tiny_pretraining import checkpoint, cut, facts, pretrainer, same_bits, state

STEPS = 8
# 20 short texts: less than two steps an epoch. A row of the log takes three steps, so that resumes fall inside one.
RUN: dict[str, Any] = {
    "texts": 20,
    "max_steps": STEPS,
    "save_every": 1,
    "log_every": 3,
    "eval_every": 4,
    "schedule": {"name": "cosine", "warmup_steps": 2},
    "model": {
        "tie_embeddings": False,
        "parametrization": {"name": "mup", "base": {"hidden_size": 16}},
    },
}
WSD: dict[str, Any] = {"schedule": {"name": "wsd", "warmup_steps": 1, "decay_steps": 2, "final_share": 0.0}}


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that nothing interrupted."""
    run = tmp_path_factory.mktemp("pretraining") / "whole"
    pretrainer(run, **RUN).train()
    return run


def rows(run: Path) -> dict[tuple[int, bool], dict[str, Any]]:
    """The last row of every step, without what is measured."""
    measured = ("attempt", "tokens_per_second", "mfu", "peak_memory_gib")
    found = {}
    for line in (run / "metrics.jsonl").read_text().splitlines():
        if line.endswith("}"):
            row = json.loads(line)
            kept = {key: value for key, value in row.items() if key not in measured}
            found[row["step"], "eval_loss" in row] = kept
    return found


@pytest.mark.parametrize("step", [1, 3, 4, 7])  # warming up, in the middle of a row of the log, evaluated, the last
def test_a_run_goes_on_from_any_step_to_the_same_bits(whole: Path, step: int) -> None:
    run = cut(whole, step, whole.parent / f"from-{step}")
    result = pretrainer(run, **RUN, attempt=2).train()
    assert (result.first_step, result.step) == (step, STEPS)
    assert same_bits(whole, run, STEPS)
    assert rows(run) == rows(whole)


def test_the_run_reads_its_texts_several_times(whole: Path) -> None:
    assert rows(whole)[STEPS, False]["epoch"] > 2


def test_a_second_resume_goes_on_from_the_first(whole: Path) -> None:
    first = cut(whole, 2, whole.parent / "first")
    pretrainer(first, **RUN, attempt=2).train()
    second = cut(first, 5, whole.parent / "second")
    assert pretrainer(second, **RUN, attempt=3).train().first_step == 5
    assert same_bits(whole, second, STEPS)


def test_every_group_has_its_own_rate_on_the_first_step_after_a_resume(
    whole: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[list[float]] = []
    step = AdamW.step

    def watched(self: AdamW, closure: Any = None) -> Any:
        seen.append([group["lr"] for group in self.param_groups])
        return step(self, closure)

    monkeypatch.setattr(AdamW, "step", watched)
    pretrainer(whole.parent / "watched", **RUN).train()
    uninterrupted, seen = seen, []
    pretrainer(cut(whole, 5, whole.parent / "watched-5"), **RUN, attempt=2).train()
    assert seen == uninterrupted[5:]
    assert seen[0][0] != uninterrupted[4][0]  # not that of the step before, which a checkpoint might have held
    assert len(set(seen[0])) == 2  # hidden matrices of twice the base's width have half the rate


def test_the_newest_checkpoint_is_skipped_where_it_is_broken(whole: Path, caplog: pytest.LogCaptureFixture) -> None:
    run = cut(whole, 4, whole.parent / "broken")
    file = checkpoint(run, 4) / "__0_0.distcp"
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 1
    file.write_bytes(content)
    assert pretrainer(run, **RUN, attempt=2).train().first_step == 3
    assert "Skipped the broken checkpoint" in caplog.text
    assert same_bits(whole, run, STEPS)


def test_a_finished_run_is_not_trained_again(whole: Path) -> None:
    before = (whole / "metrics.jsonl").read_bytes()
    result = pretrainer(whole, **RUN, attempt=2).train()
    assert (result.first_step, result.step, result.tokens_per_second) == (STEPS, STEPS, None)
    assert result.metrics["loss"] == rows(whole)[STEPS, True]["eval_loss"]
    assert (whole / "metrics.jsonl").read_bytes() == before


@pytest.mark.parametrize("schedule", [{"name": "constant", "warmup_steps": 3}, WSD["schedule"]])
def test_an_extended_run_is_the_longer_run(tmp_path: Path, schedule: dict[str, Any]) -> None:
    """One with a decay goes on from the checkpoint before it, which stays although only the last is asked for."""
    keys = {"schedule": schedule, "keep_last": 1}
    pretrainer(tmp_path / "short", **keys, max_steps=5).train()
    extended = pretrainer(tmp_path / "short", **keys, max_steps=9, attempt=2).train()
    assert extended.first_step == (5 if schedule["name"] == "constant" else 3)
    pretrainer(tmp_path / "long", **keys, max_steps=9).train()
    assert same_bits(tmp_path / "long", tmp_path / "short", 9)


def test_a_decayed_run_that_is_extended_leaves_its_old_end_behind(tmp_path: Path) -> None:
    """A kill after the old end's step must not bring it back."""
    run = tmp_path / "short"
    shown: dict[str, Any] = {"sample_prompts": ["w1"], "sample_tokens": 1, "eval_every": 1}
    pretrainer(run, **WSD, max_steps=5, **shown).train()
    pretrainer(run, **WSD, max_steps=9, save_every=1, log_every=3, attempt=2).train()
    assert facts(run, 5)["max_steps"] == 9
    steps = {
        name: [json.loads(line)["step"] for line in (run / f"{name}.jsonl").read_text().splitlines()]
        for name in ("metrics", "metrics.abandoned", "samples", "samples.abandoned")
    }
    assert steps["metrics"] == [1, 1, 2, 2, 3, 3, 6, 9]  # no row of the old decay among those of the new course
    assert steps["metrics.abandoned"] == [4, 4, 5, 5]
    assert (steps["samples"], steps["samples.abandoned"]) == ([1, 2, 3], [4, 5])


def test_a_decayed_run_cannot_be_extended_without_a_checkpoint_before(tmp_path: Path) -> None:
    keys: dict[str, Any] = {"schedule": {"name": "cosine"}, "keep_last": 1}
    pretrainer(tmp_path / "run", **keys, max_steps=4).train()
    with pytest.raises(ConfigError, match="no checkpoint before is left"):
        pretrainer(tmp_path / "run", **keys, max_steps=6).train()
    with pytest.raises(ConfigError, match="beyond the 3 steps"):
        pretrainer(tmp_path / "run", **keys, max_steps=3).train()


def test_the_last_checkpoint_has_the_whole_state(whole: Path) -> None:
    found = state(whole, STEPS)
    names = {name.removeprefix("model.") for name in found if name.startswith("model.")}
    assert {f"optimizer.state.{name}.{kind}" for name in names for kind in ("step", "exp_avg", "exp_avg_sq")} | {
        f"model.{name}" for name in names
    } == found.keys()
    assert torch.equal(found["optimizer.state.norm.weight.step"], torch.tensor(float(STEPS)))
