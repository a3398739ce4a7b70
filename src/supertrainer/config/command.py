"""The command line: flags that Hydra users know, overrides, and `config=PATH`."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, NoReturn

from supertrainer.config.nearest import did_you_mean
from supertrainer.core.errors import ConfigError, Problem

_FLAGS = ("--cfg", "--package", "--resolve", "--multirun", "--config-dir", "--help", "--version", "--run")
_REFUSED_FLAGS = {
    "--experimental-rerun": "it unpickles a file; replay a run with config=runs/NAME.",
    "--config-name": "choose with +experiment=NAME, or give a file with config=PATH.",
    "-cn": "choose with +experiment=NAME, or give a file with config=PATH.",
    "--config-path": "add a directory of your own configs with --config-dir DIR.",
    "-cp": "add a directory of your own configs with --config-dir DIR.",
}


@dataclass(frozen=True)
class Command:
    """What was asked for.

    Attributes:
        overrides: Hydra overrides, in order, without `config=`.
        source: file or run directory of `config=PATH`.
        show: which part of the composed config to print instead of running.
        package: dotted node to print alone.
        multirun: sweep over comma-separated values.
        config_dirs: directories of the user's own config groups.
        help: print the help.
    """

    overrides: tuple[str, ...] = ()
    source: Path | None = None
    show: Literal["job", "hydra", "all"] | None = None
    package: str | None = None
    multirun: bool = False
    config_dirs: tuple[Path, ...] = ()
    help: bool = False
    version: bool = False


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise ConfigError(f"command line: {message}.", fix="see --help.")


def parse_command(argv: Sequence[str], *, bare_path: bool = False, further_flags: Sequence[str] = ()) -> Command:
    """Parses the arguments after the program's name; flags and overrides may stand in any order.

    Args:
        bare_path: take a word that is no override for the PATH of `config=`.
        further_flags: of the program, for the nearest name of one that is unknown.

    Raises:
        ConfigError: an unknown or refused flag, or more than one `config=`.
    """
    parser = _Parser(add_help=False, allow_abbrev=False)
    parser.add_argument("--cfg", "-c", choices=("job", "hydra", "all"))
    parser.add_argument("--package", "-p")
    parser.add_argument("--resolve", action="store_true")  # what is printed is always resolved
    parser.add_argument("--multirun", "-m", action="store_true")
    parser.add_argument("--run", "-r", action="store_true")  # Hydra's opposite of --multirun, the default here
    parser.add_argument("--config-dir", "-cd", action="append", default=[], type=Path)
    parser.add_argument("--help", "-h", action="store_true")
    parser.add_argument("--version", action="store_true")
    options, rest = parser.parse_known_args(argv)
    problems = [_unknown_flag(word, further_flags) for word in rest if word.startswith("-") and word != "--"]
    words = [word for word in rest if not word.startswith("-")]
    if bare_path:
        words = [f"config={word}" if "=" not in word and word[0] not in "+~" else word for word in words]
    sources = [word.removeprefix("config=") for word in words if word.startswith("config=")]
    if len(sources) > 1:
        problems.append(Problem(f"config= is given {len(sources)} times: {', '.join(sources)}.", fix="give one."))
    problems += [
        Problem(f"--config-dir {path}: no such directory.", fix="give a directory of config groups.")
        for path in options.config_dir
        if not path.is_dir()
    ]
    if problems:
        raise ConfigError(problems)
    return Command(
        overrides=tuple(word for word in words if not word.startswith("config=")),
        source=Path(sources[0]).expanduser() if sources else None,
        show=options.cfg,
        package=options.package,
        multirun=options.multirun,
        config_dirs=tuple(path.resolve() for path in options.config_dir),
        help=options.help,
        version=options.version,
    )


def _unknown_flag(word: str, further_flags: Sequence[str]) -> Problem:
    name = word.split("=", 1)[0]
    if name in _REFUSED_FLAGS:
        return Problem(f"{name} is not supported.", fix=_REFUSED_FLAGS[name])
    return Problem(
        f"unknown flag {word}.",
        why="settings are written key=value, without dashes.",
        fix=did_you_mean(name, (*_FLAGS, *further_flags)),
    )
