"""scripts/lr_transfer.py: a table, a figure, and an exit code that says whether the best rate stays."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest

from supertrainer.benchmark import transfer
from supertrainer.benchmark.transfer import TransferSweep, Trial
from supertrainer.operations.lr_transfer_command import main


@pytest.fixture
def best(monkeypatch: pytest.MonkeyPatch) -> dict[str, dict[int, float]]:
    """Runs that take no time, and the exponents of the rates that are best, which a test may change."""
    exponents = {"mup": {64: -6.0, 128: -7.0}, "sp": {64: -6.0, 128: -8.0}}

    def train(sweep: TransferSweep, dataset: object, *, parametrization: str, width: int, rate: float) -> Trial:
        loss = 5.0 + abs(rate - 2 ** exponents[parametrization][width])
        return Trial(parametrization, width, rate, loss, rate, sweep.steps)

    monkeypatch.setattr(transfer, "train", train)
    return exponents


@pytest.fixture
def words(tmp_path: Path) -> list[str]:
    (tmp_path / "text.txt").write_text("words")
    return ["--out", str(tmp_path / "out"), "--source", str(tmp_path / "text.txt"), "--widths", "64,128"]


def test_it_writes_every_run_and_a_figure(
    best: object, words: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*words, "--rates=-8,-7,-6"]) == 0
    said = capsys.readouterr().out
    assert "μP: the best rate moves by -1 doublings" in said
    assert "standard parametrization: the best rate moves by -2 doublings" in said
    with (tmp_path / "out" / "trials.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 2 * 2 * 3
    assert (rows[-1]["parametrization"], rows[-1]["width"], rows[-1]["learning_rate"]) == ("sp", "128", "0.015625")
    assert (tmp_path / "out" / "lr_transfer.png").read_bytes().startswith(b"\x89PNG")


def test_a_best_rate_that_moves_far_under_mup_fails(best: dict[str, dict[int, float]], words: list[str]) -> None:
    best["mup"][128] = -8.0
    assert main([*words, "--rates=-8,-7,-6", "--only", "mup"]) == 1
    assert main([*words, "--rates=-8,-7,-6", "--only", "sp"]) == 0


@pytest.mark.parametrize(
    ("more", "told"),
    [
        (["--widths", "64"], "two or more multiples of 64"),
        (["--widths", "64,100"], "two or more multiples of 64"),
        (["--rates=-8"], "two or more are needed"),
        (["--rates=a,b"], "no list of whole numbers"),
        (["--steps", "10", "--warmup-steps", "6"], "a run that ends within its warm-up"),
        (["--step", "10"], "Fix: did you mean --steps?"),
    ],
)
def test_a_wrong_command_ends_with_two(
    words: list[str], more: list[str], told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*words, *more]) == 2
    assert told in capsys.readouterr().err
