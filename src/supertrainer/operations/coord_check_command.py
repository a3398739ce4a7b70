"""`scripts/coord_check.py`: does the size of activations depend on a model's width or depth?"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from supertrainer.config.option_parser import OptionParser
from supertrainer.core.errors import ConfigError, SupertrainerError
from supertrainer.core.files import json_text
from supertrainer.launch.table import aligned
from supertrainer.operations.scaling_files import NAMES, SMALLEST_WIDTH, csv_text, whole_numbers, write_files

if TYPE_CHECKING:
    from supertrainer.benchmark.coordinates import Coordinate, CoordinateCheck

WIDTHS, DEPTHS = "64,128,256,512", "2,4,8,16"
_EPILOG = """μP must hold the bounds, and the standard parametrization must not: a check that lets it pass sees nothing.

exit codes: 0 both are so; 1 one isn't; 2 the command is refused.
docs/mup.md says what the figures show."""


def main(argv: Sequence[str]) -> int:
    """Runs the command and returns its exit code.

    Args:
        argv: the words after the program's name.
    """
    try:
        options = _parse(argv)
        check = _check(options)
        return _run(check, out=options.out, as_json=options.json)
    except SupertrainerError as error:
        print(error, file=sys.stderr)
        return error.exit_code


def _parse(argv: Sequence[str]) -> argparse.Namespace:
    parser = OptionParser(
        prog="coord_check.py",
        description="Trains decoders of several widths for a few steps under μP and under the standard "
        "parametrization,\nand fits a power law of the width to the mean absolute value of what their parts hold.",
        epilog=_EPILOG,
    )
    add = parser.add_argument
    add("--out", type=Path, metavar="DIR", help="coordinates.csv, slopes.csv, coord_check_{mup,sp}.png; default: none")
    add("--depth", action="store_true", help="blocks grow, and the width stays: depth_alpha=1 against none")
    add("--sizes", metavar="N,N,…", help=f"widths, multiples of 64 (default {WIDTHS}), or numbers of blocks ({DEPTHS})")
    add("--seeds", type=int, default=6, metavar="N", help="initialisations and rows of tokens of each size; default 6")
    add("--steps", type=int, default=4, metavar="N", help="optimizer steps; default 4")
    add("--learning-rate", type=float, default=2.0**-8, metavar="X", help="default 2^-8")
    add("--json", action="store_true", help="the slopes for programs")
    return parser.parse_args(argv)


def _check(options: argparse.Namespace) -> CoordinateCheck:
    from supertrainer.benchmark.coordinates import CoordinateCheck

    text = options.sizes or (DEPTHS if options.depth else WIDTHS)
    sizes = whole_numbers(text, flag="--sizes", example=f"--sizes {WIDTHS}.")
    unit = 1 if options.depth else SMALLEST_WIDTH
    if len(sizes) < 2 or sizes[0] < 1 or any(size % unit for size in sizes):
        what = "numbers of blocks" if options.depth else f"multiples of {unit}"
        raise ConfigError(
            f"--sizes {text}: two or more {what} are needed.",
            why="a slope needs two points" + ("." if options.depth else ", and heads have 32 dimensions, two a key."),
            fix=f"--sizes {DEPTHS if options.depth else WIDTHS}.",
        )
    for flag, value, least in (("--seeds", options.seeds, 1), ("--steps", options.steps, 1)):
        if value < least:
            raise ConfigError(f"{flag} {value}: {least} is the least.", fix=f"{flag} {least}.")
    if not 0 < options.learning_rate < float("inf"):
        raise ConfigError(f"--learning-rate {options.learning_rate}: a positive number is needed.", fix="0.004.")
    return CoordinateCheck(
        axis="depth" if options.depth else "width",
        sizes=sizes,
        other=SMALLEST_WIDTH if options.depth else 2,
        seeds=options.seeds,
        steps=options.steps,
        learning_rate=options.learning_rate,
    )


def _run(check: CoordinateCheck, *, out: Path | None, as_json: bool) -> int:
    from supertrainer.benchmark.coordinates import breaches, measure, slopes

    found = {name: list(measure(check, parametrization=name)) for name in NAMES}
    fitted = {name: slopes(coordinates) for name, coordinates in found.items()}
    broken = {name: breaches(lines) for name, lines in fitted.items()}
    held = not broken["mup"] and bool(broken["sp"])
    written = [] if out is None else _write(check, found, fitted, directory=out)
    if as_json:
        rows = {name: _rows(lines) for name, lines in fitted.items()}
        print(json_text({"held": held, "slopes": rows, "breaches": broken}, indent=2))
        return 0 if held else 1
    print(_table(check, fitted))
    print("\nμP holds the bounds." if not broken["mup"] else "\nμP breaks the bounds:\n  " + "\n  ".join(broken["mup"]))
    places = f"{len(broken['sp'])} of {len(fitted['sp'])} slopes"
    print(
        f"The standard parametrization breaks them in {places}, as it must."
        if broken["sp"]
        else "The standard parametrization holds them too: this check sees nothing."
    )
    print("".join(f"\n{path}" for path in written).strip())
    return 0 if held else 1


def _rows(fitted: Mapping[tuple[str, int], float]) -> list[dict[str, Any]]:
    return [{"place": place, "step": step, "slope": value} for (place, step), value in fitted.items()]


def _table(check: CoordinateCheck, fitted: Mapping[str, Mapping[tuple[str, int], float]]) -> str:
    steps = range(check.steps + 1)
    lines = [[f"slope over {check.axis}", "", *(f"step {step}" for step in steps)]]
    for name, found in fitted.items():
        for place in dict.fromkeys(place for place, _ in found):
            lines.append([NAMES[name], place, *(f"{found[place, step]:+.2f}" for step in steps)])
    return aligned(lines)


def _write(
    check: CoordinateCheck,
    found: Mapping[str, Sequence[Coordinate]],
    fitted: Mapping[str, Mapping[tuple[str, int], float]],
    *,
    directory: Path,
) -> list[Path]:
    from supertrainer.benchmark.scaling_plots import draw_coordinates

    files: dict[str, bytes | str] = {
        "coordinates.csv": csv_text([vars(one) for coordinates in found.values() for one in coordinates]),
        "slopes.csv": csv_text([{"parametrization": name, **row} for name in fitted for row in _rows(fitted[name])]),
    }
    prefix = "coord_check_depth" if check.axis == "depth" else "coord_check"
    for name, coordinates in found.items():
        title = f"{NAMES[name]}: mean |activation| over {check.axis}"
        size_name = "blocks" if check.axis == "depth" else "width"
        files[f"{prefix}_{name}.png"] = draw_coordinates(coordinates, title=title, size_name=size_name)
    return write_files(directory, files)
