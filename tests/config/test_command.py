"""The command line's flags."""

from __future__ import annotations

from pathlib import Path

import pytest

from supertrainer.config.command import Command, parse_command
from supertrainer.core.errors import ConfigError


def test_flags_and_overrides_in_any_order(tmp_path: Path) -> None:
    words = [
        "+experiment=a",
        "--cfg",
        "job",
        "x=1",
        "-m",
        f"--config-dir={tmp_path}",
        "config=runs/b",
        "--package",
        "trainer",
    ]
    assert parse_command(words) == Command(
        overrides=("+experiment=a", "x=1"),
        source=Path("runs/b"),
        show="job",
        package="trainer",
        multirun=True,
        config_dirs=(tmp_path,),
    )


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["--multirn"], "did you mean --multirun?"),
        (["--experimental-rerun=x"], "it unpickles a file"),
        (["--config-name=x"], r"\+experiment=NAME"),
        (["--cfg", "jobs"], "invalid choice"),
        (["config=a", "config=b"], "given 2 times"),
        (["--config-dir", "nowhere"], "no such directory"),
    ],
)
def test_a_bad_flag_says_what_to_do(words: list[str], expected: str) -> None:
    with pytest.raises(ConfigError, match=expected):
        parse_command(words)


def test_a_bare_word_may_be_the_config_but_not_a_flags_value(tmp_path: Path) -> None:
    words = ["--config-dir", str(tmp_path), "mine.yaml", "run.seed=1", "+experiment=x", "~tracker"]
    command = parse_command(words, bare_path=True)
    assert (command.source, command.config_dirs) == (Path("mine.yaml"), (tmp_path,))
    assert command.overrides == ("run.seed=1", "+experiment=x", "~tracker")
    with pytest.raises(ConfigError, match="did you mean --dry-run"):
        parse_command(["--dryrun"], further_flags=("--dry-run",))
