"""The front door: from a command line to a frozen config, or to every error at once, before anything is written."""

from __future__ import annotations

from collections.abc import Mapping

from supertrainer.config.command import Command
from supertrainer.config.compose import Composed, compose
from supertrainer.config.groups import Groups, describe
from supertrainer.config.hydra_compose import hydra_composer

HELP = """

Forms of the command
  KEY=VALUE                      set a value, at any depth: trainer.training_kwargs.learning_rate=1e-4
  GROUP=OPTION                   choose a config file: model=bert/minilm; the groups are the directories of configs/
  GROUP@NODE=OPTION              the same, for a part: trainer/common/model_kwargs@trainer.model_kwargs=sdpa
  config=PATH                    a run directory, or a .yaml, .json or .toml file
  mode=full|toy|sanity_check     operation=train|infer|benchmark|check|verify
  --multirun KEY=A,B             a run for each value; every combination is checked before the first one starts
  --cfg job [--package NODE]     print the composed config instead of running
  --config-dir DIR               a directory of your own config groups

Precedence: group defaults < experiment < mode < SUPERTRAINER__A__B=VALUE in the environment < command line."""


def compose_command(command: Command, *, environment: Mapping[str, str], groups: Groups) -> Composed:
    """Composes the config of one run.

    Raises:
        ConfigError: bad overrides, an unknown group or option, an unreadable file, or no experiment.
    """
    with hydra_composer(command.config_dirs) as composer:
        return compose(command, environment=environment, groups=groups, composer=composer)


def experiments_text(groups: Groups, *, program: str) -> str:
    """The experiments with a line each, and how to start one."""
    width = max((len(name) for name in groups.experiments), default=0)
    lines = [
        f"  {name:<{width}}  {describe(groups.files[f'experiment/{name}'])}".rstrip() for name in groups.experiments
    ]
    example = groups.experiments[0] if groups.experiments else "NAME"
    example = "train_bert" if "train_bert" in groups.experiments else example
    start = f"{program} +experiment={example}"
    return "\n".join(
        [
            "Experiments:",
            *lines,
            "",
            "Start one with",
            f"  {start}              # mode=toy: small, minutes on a CPU; mode=sanity_check: a minute",
            f"  {start} --cfg job    # print its config instead",
            f"  {start} KEY=VALUE …  # change any of it; with --multirun, KEY=A,B runs both",
        ]
    )


def asks_nothing(command: Command, *, environment: Mapping[str, str]) -> bool:
    """Whether a command chooses nothing at all: then the experiments are listed."""
    return command.source is None and not command.overrides and "SUPERTRAINER__EXPERIMENT" not in environment
