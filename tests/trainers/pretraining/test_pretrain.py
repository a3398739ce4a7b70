"""What a run of one process does: the split of a step, the guard, checkpoints beside the training, its end."""

from __future__ import annotations

import json
import resource
import signal
import threading
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from supertrainer.core.errors import CheckpointError, DataError, SupertrainerError
from supertrainer.trainers.pretraining import saving
from supertrainer.trainers.pretraining.session import PretrainSession
from supertrainer.trainers.pretraining.update import Update
from supertrainer.trainers.stop_request import StopRequest
from tiny_pretraining import apart, checkpoint, facts, poisoned, pretrainer, same_bits, signals, state

# Far from zero, AdamW's update is nearly proportional to the gradient: it would blow up the rounding of tiny ones.
PLAIN: dict[str, Any] = {"eps": 1.0, "learning_rate": 1.0, "weight_decay": 0.0, "max_steps": 3, "save_every": 1}


@pytest.fixture(scope="module")
def at_once(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A step's eight rows in one micro-batch."""
    run = tmp_path_factory.mktemp("split") / "at-once"
    pretrainer(run, **PLAIN, z_loss=1e-3).train()
    return run


@pytest.mark.parametrize("size", [1, 2, 4])
def test_micro_batches_make_the_update_of_the_whole_batch(at_once: Path, size: int) -> None:
    run = at_once.parent / f"by-{size}"
    pretrainer(run, **PLAIN, z_loss=1e-3, micro_batch_size=size).train()
    assert apart(at_once, run, 3, since=checkpoint(at_once, 1)) < 1e-5


@pytest.mark.parametrize("what", ["full", "selective"])
def test_recomputed_activations_give_the_same_gradients(at_once: Path, what: str) -> None:
    run = at_once.parent / what
    pretrainer(run, **PLAIN, z_loss=1e-3, activation_checkpointing=what).train()
    assert same_bits(at_once, run, 3)


@pytest.mark.slow
def test_bfloat16_multiplies_in_it_and_keeps_float32_weights(at_once: Path) -> None:
    run = at_once.parent / "bfloat16"
    pretrainer(run, **PLAIN, z_loss=1e-3, precision="bfloat16", allow_bfloat16_on_cpu=True).train()
    assert 1e-5 < apart(at_once, run, 3, since=checkpoint(at_once, 1)) < 0.05
    assert {tensor.dtype for tensor in state(run, 3).values()} == {torch.float32}


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # torch's tracing trips over several deprecations of its own
def test_compiled_blocks_make_the_same_update(at_once: Path) -> None:
    run = at_once.parent / "compiled"
    pretrainer(run, **PLAIN, z_loss=1e-3, compile=True, activation_checkpointing="selective").train()
    assert apart(at_once, run, 3, since=checkpoint(at_once, 1)) < 1e-5


def test_a_poisoned_step_leaves_everything_but_the_data_as_it_was(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with poisoned(3):
        result = pretrainer(tmp_path / "run", max_steps=4, save_every=1).train()
    before, after, later = (state(tmp_path / "run", step) for step in (2, 3, 4))
    assert all(torch.equal(before[name], after[name]) for name in before)
    assert not torch.equal(after["model.norm.weight"], later["model.norm.weight"])
    assert facts(tmp_path / "run", 3)["data"] != facts(tmp_path / "run", 2)["data"]
    assert result.skipped_steps == 1
    assert "step 3 leaves the weights as they were: its loss is nan" in caplog.text


def end_of(run: Path, *, attempt: int, **keys: Any) -> str:
    """The error that a run ends with."""
    with pytest.raises(SupertrainerError) as told:
        pretrainer(run, max_steps=40, save_every=2, attempt=attempt, **keys).train()
    return str(told.value)


def test_a_rate_that_is_too_high_comes_to_the_same_end_again_and_says_so(tmp_path: Path) -> None:
    keys: dict[str, Any] = {"learning_rate": 1e20, "max_grad_norm": None, "guard": {"stop_after": 3}}
    first = end_of(tmp_path / "run", attempt=1, **keys)
    assert "the last 3 updates up to step 5 were left out, the last of them because its loss is nan." in first
    assert "the weights are still those of step 2, and the same command comes to the same end" in first
    assert "with run.fresh=true: a lower trainer.learning_rate (5e+19, say; it is 1e+20), or a longer" in first
    assert "spike_sigmas" not in first
    assert "model.source" not in first  # the weights of step 2 are the ones that give nothing finite
    assert end_of(tmp_path / "run", attempt=2, **keys) == first
    assert pretrainer(tmp_path / "lower", **{**keys, "learning_rate": 1e-2}, max_steps=40).train().step == 40


def test_spikes_in_a_row_name_the_option_and_the_weights_before(tmp_path: Path) -> None:
    guard = {"window": 8, "spike_sigmas": 1.0, "stop_after": 2}
    keys: dict[str, Any] = {"learning_rate": 0.3, "max_grad_norm": None}
    text = end_of(tmp_path / "run", attempt=1, guard=guard, **keys)
    assert "deviations above the mean" in text
    assert "or a larger trainer.guard.spike_sigmas (it is 1; null takes whatever is finite)." in text
    saved = sorted((tmp_path / "run" / "checkpoints").glob("step-*"))[-1]
    assert f"model.source={saved} begins it with the weights of step {int(saved.name[5:])}" in text
    without = {**guard, "spike_sigmas": None}
    assert pretrainer(tmp_path / "without", max_steps=40, guard=without, **keys).train().skipped_steps == 0


def test_a_checkpoint_holds_its_own_step_though_training_went_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The writing of step 1 begins only when step 2 is done; nothing has its name before."""
    released, seen = threading.Event(), []
    write, make_step = saving.dcp.save, PretrainSession.make_step

    def held(*args: Any, **kwargs: Any) -> Any:
        assert released.wait(30)
        return write(*args, **kwargs)

    def watched(self: PretrainSession, *, request: Any) -> Any:
        made = make_step(self, request=request)
        if self.step == 2:
            seen.append(trainer.store.steps())
            released.set()
        return made

    monkeypatch.setattr(saving.dcp, "save", held)
    monkeypatch.setattr(PretrainSession, "make_step", watched)
    trainer = pretrainer(tmp_path / "beside", max_steps=3, save_every=1)
    trainer.train()
    monkeypatch.undo()
    assert seen == [[]]
    pretrainer(tmp_path / "waiting", max_steps=3, save_every=1, async_save=False).train()
    assert all(same_bits(tmp_path / "waiting", tmp_path / "beside", step) for step in (1, 2, 3))


def test_a_full_disk_ends_the_run_with_the_checkpoint_before(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make_step = PretrainSession.make_step

    def with_less_room(self: PretrainSession, *, request: StopRequest) -> Update:
        if self.step == 3:  # a real limit: the files of a checkpoint are larger
            resource.setrlimit(resource.RLIMIT_FSIZE, (50_000, before[1]))
        return make_step(self, request=request)

    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    monkeypatch.setattr(PretrainSession, "make_step", with_less_room)
    trainer = pretrainer(tmp_path / "run", max_steps=9, save_every=2, keep_last=2, async_save=False)
    try:
        with pytest.raises(CheckpointError) as told:
            trainer.train()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    monkeypatch.undo()
    assert "step 4 can't be written to" in str(told.value)
    assert "process 0: OSError: [Errno 27] File too large." in str(told.value)
    assert "at least 0.4 MiB are needed" in str(told.value)
    assert "step 2, the last good one, is intact" in str(told.value)
    assert "trainer.keep_last=2 keeps 2 checkpoints of 0.4 MiB each" in str(told.value)
    assert trainer.store.steps() == [2]
    pretrainer(tmp_path / "run", max_steps=9, save_every=2, keep_last=2, attempt=2).train()
    pretrainer(tmp_path / "whole", max_steps=9, save_every=2, keep_last=2).train()
    assert same_bits(tmp_path / "whole", tmp_path / "run", 9)


def test_a_signal_saves_the_step_and_stops(tmp_path: Path) -> None:
    with signals(0, 3, signal.SIGUSR1):
        stopped = pretrainer(tmp_path / "run").train()
    assert (stopped.stopped_by, stopped.step, stopped.metrics) == ("SIGUSR1", 3, {})
    assert not (tmp_path / "run" / "model").exists()
    assert pretrainer(tmp_path / "run", attempt=2).train().first_step == 3
    pretrainer(tmp_path / "whole").train()
    assert same_bits(tmp_path / "whole", tmp_path / "run", 6)
    with signals(0, 6):
        assert pretrainer(tmp_path / "last").train().stopped_by is None  # nothing was left to stop


def test_the_model_that_is_written_has_the_validation_loss(tmp_path: Path) -> None:
    trainer = pretrainer(tmp_path / "run", eval_every=3, dataset={"isolate_documents": False})
    result = trainer.train()
    model = AutoModelForCausalLM.from_pretrained(tmp_path / "run" / "model")
    assert len(AutoTokenizer.from_pretrained(tmp_path / "run" / "model")) == 100
    rows = trainer.dataset.validation(sequence_length=16, rows=5)
    inputs, targets = torch.from_numpy(rows.inputs.copy()), torch.from_numpy(rows.targets.copy())
    with torch.no_grad():
        logits = model(inputs, use_cache=False).logits
    loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), targets.flatten())
    assert result.metrics["loss"] == pytest.approx(loss.item(), rel=1e-5)


def test_what_is_wrong_with_the_held_out_rows_shows_before_the_first_step(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="held-out documents"):
        pretrainer(tmp_path / "run", eval_every=3, dataset={"validation": {"share": 0.0}}).train()
    assert not (tmp_path / "run" / "metrics.jsonl").exists()


def test_samples_are_written_at_every_evaluation_and_change_nothing(tmp_path: Path) -> None:
    keys: dict[str, Any] = {"max_steps": 4, "eval_every": 2}
    prompts: dict[str, Any] = {"sample_prompts": ["w1 w2 w3"], "sample_tokens": 5, "sample_temperature": 1.0}
    pretrainer(tmp_path / "run", **keys, **prompts).train()
    rows = [json.loads(line) for line in (tmp_path / "run" / "samples.jsonl").read_text().splitlines()]
    assert [(row["step"], row["prompt"]) for row in rows] == [(2, "w1 w2 w3"), (4, "w1 w2 w3")]
    assert all(row["generated"] or row["finish"] == "stop" for row in rows)
    pretrainer(tmp_path / "without", **keys).train()
    assert same_bits(tmp_path / "without", tmp_path / "run", 4)


def test_it_learns_and_says_how_fast(tmp_path: Path) -> None:
    result = pretrainer(tmp_path / "run", texts=8, max_steps=40, log_every=5, dataset={"validation": {"share": 0.0}})
    found = result.train()
    rows = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    assert rows[-1]["loss"] < rows[0]["loss"] / 2
    assert [row["step"] for row in rows] == list(range(5, 45, 5))
    assert rows[-1]["tokens"] == 40 * 8 * 16
    assert 0 < rows[-1]["mfu"] < 1
    assert found.tokens_per_second == pytest.approx(40 * 8 * 16 / found.seconds)
