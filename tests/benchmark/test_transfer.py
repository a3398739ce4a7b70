"""Learning rates over widths: each run has its rate, and what is best is found."""

from __future__ import annotations

import math
import os
import signal
from pathlib import Path

import pytest

from supertrainer.benchmark.transfer import TransferSweep, Trial, best_rates, drift, losses, require_warm, train
from supertrainer.core.errors import SupertrainerError
from supertrainer.data.streams.dataset import StreamDataset
from supertrainer.data.streams.rows import Rows
from supertrainer.data.streams.schema import StreamDatasetConfig
from supertrainer.data.streams.train_stream import TrainStream

SWEEP = TransferSweep((64, 128), (2.0**-7, 1e30), steps=14, warmup_steps=4, rows=2, length=16, eval_rows=2)


@pytest.fixture
def dataset(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> StreamDataset:
    """Four documents of a few words, with a tokenizer of little more than bytes."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    for number in range(4):
        (tmp_path / f"{number}.txt").write_text("the slings and arrows of outrageous fortune\n" * 20)
    keys = {"sources": {"text": {"path": f"{tmp_path}/*.txt"}}, "tokenizer_training": {"vocab_size": 270}}
    config = {"_target_": "-", **keys, "validation": {"share": 0.4}}
    return StreamDataset(StreamDatasetConfig.model_validate(config), seed=3)


def test_a_run_has_its_rate_after_the_warm_up_and_a_loss_below_chance(dataset: StreamDataset) -> None:
    trial = train(SWEEP, dataset, parametrization="mup", width=128, rate=2.0**-7)
    assert (trial.highest_rate, trial.steps_after_warmup) == (2.0**-7, 11)  # from the fourth update on
    assert 1.0 < trial.loss < math.log(270)


def test_a_run_that_diverges_has_no_loss(dataset: StreamDataset) -> None:
    assert train(SWEEP, dataset, parametrization="sp", width=64, rate=1e30).loss == math.inf


def test_a_sweep_that_is_asked_to_stop_stops(dataset: StreamDataset, monkeypatch: pytest.MonkeyPatch) -> None:
    following = TrainStream.next_step

    def next_step(stream: TrainStream) -> Rows:
        os.kill(os.getpid(), signal.SIGTERM)  # which the trainer takes, and ends the run with a checkpoint
        return following(stream)

    monkeypatch.setattr(TrainStream, "next_step", next_step)
    with pytest.raises(KeyboardInterrupt):
        train(SWEEP, dataset, parametrization="mup", width=64, rate=2.0**-7)


@pytest.mark.parametrize(("highest", "after", "held"), [(0.01, 50, True), (0.01, 49, False), (0.009, 100, False)])
def test_a_run_that_ends_within_its_warm_up_is_an_error(highest: float, after: int, held: bool) -> None:
    trial = Trial("mup", 64, 0.01, 5.0, highest, after)
    if held:
        require_warm(trial, steps=100)
    else:
        with pytest.raises(SupertrainerError, match=r"width 64, learning rate 0\.01(?s:.*)compares warm-ups"):
            require_warm(trial, steps=100)


def test_the_best_rate_is_that_of_the_least_loss_and_drifts_in_doublings() -> None:
    of_rates = {64: {0.25: 3.0, 0.5: 2.0, 1.0: math.inf}, 256: {0.125: 1.0, 0.25: 1.5, 0.5: 2.5}}
    trials = [Trial("sp", w, rate, loss, rate, 1) for w, curve in of_rates.items() for rate, loss in curve.items()]
    best = best_rates(losses(trials)["sp"])
    assert best == {64: 0.5, 256: 0.125}
    assert drift(best) == -2.0
