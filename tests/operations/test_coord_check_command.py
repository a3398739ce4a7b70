"""scripts/coord_check.py: figures, numbers, and an exit code that says whether both hold."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from supertrainer.benchmark import coordinates
from supertrainer.benchmark.coordinates import PLACES, Coordinate, CoordinateCheck
from supertrainer.operations.coord_check_command import main

PNG = b"\x89PNG\r\n\x1a\n"


@pytest.fixture
def exponents(monkeypatch: pytest.MonkeyPatch) -> dict[str, float]:
    """Coordinates without a training: powers of the width, whose exponents a test may change."""
    chosen = {"mup": 0.0, "sp": 1.0}

    def measure(check: CoordinateCheck, *, parametrization: str) -> Iterator[Coordinate]:
        for size in check.sizes:
            for step in range(check.steps + 1):
                for place in PLACES:
                    yield Coordinate(parametrization, size, 0, step, place, None, 2.0 * size ** chosen[parametrization])

    monkeypatch.setattr(coordinates, "measure", measure)
    return chosen


def test_it_writes_figures_and_numbers(
    exponents: dict[str, float], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["--out", str(tmp_path / "check"), "--sizes", "64,128"]) == 0
    said = capsys.readouterr().out
    assert "μP holds the bounds." in said
    assert "breaks them in 20 of 20 slopes, as it must" in said
    for name in ("mup", "sp"):
        content = (tmp_path / "check" / f"coord_check_{name}.png").read_bytes()
        assert content.startswith(PNG)
        assert len(content) < 150_000
    with (tmp_path / "check" / "slopes.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert (len(rows), rows[0]["parametrization"], float(rows[-1]["slope"])) == (40, "mup", pytest.approx(1.0))


@pytest.mark.parametrize(
    ("mup", "sp", "words"),
    [(0.5, 1.0, "μP breaks the bounds:\n  attention after step 0"), (0.0, 0.0, "this check sees nothing")],
)
def test_it_fails_where_mup_breaks_or_the_control_does_not(
    exponents: dict[str, float], capsys: pytest.CaptureFixture[str], mup: float, sp: float, words: str
) -> None:
    exponents.update(mup=mup, sp=sp)
    assert main([]) == 1
    assert words in capsys.readouterr().out
    assert main(["--json"]) == 1
    assert json.loads(capsys.readouterr().out)["held"] is False


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--sizes", "64"], "two or more multiples of 64"),
        (["--sizes", "64,100"], "two or more multiples of 64"),
        (["--sizes", "a,b"], "no list of whole numbers"),
        (["--depth", "--sizes", "0,2"], "two or more numbers of blocks"),
        (["--seeds", "0"], "--seeds 0: 1 is the least"),
        (["--learning-rate", "0"], "a positive number is needed"),
        (["--widths", "64,128"], "unrecognized arguments: --widths"),
    ],
)
def test_a_wrong_command_ends_with_two(words: list[str], told: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(words) == 2
    assert told in capsys.readouterr().err
