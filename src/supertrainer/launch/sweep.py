"""Sweeps: `--multirun` expanded, every combination checked before the first one starts, one directory of results."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from hydra._internal.core_plugins.basic_sweeper import BasicSweeper
from hydra.core.override_parser.types import Override
from hydra.utils import get_class, instantiate
from omegaconf import DictConfig

from supertrainer.config.command import Command
from supertrainer.config.compose import Composed, compose
from supertrainer.config.for_job import validate_for_job, with_launcher
from supertrainer.config.groups import read_groups
from supertrainer.config.hydra_compose import hydra_composer
from supertrainer.config.identity import run_name
from supertrainer.config.overrides import parse_override
from supertrainer.config.snapshot import as_yaml
from supertrainer.config.spine import Config
from supertrainer.config.validate import validate
from supertrainer.core.errors import INTERRUPTED, ConfigError, Problem
from supertrainer.core.records import append_record
from supertrainer.core.run_directory import RunDirectory
from supertrainer.launch.sweep_directory import SweptRun, write_results, write_sweep


@dataclass(frozen=True)
class PlannedRun:
    """One combination of a sweep.

    Attributes:
        index: its place, from 0.
        command: the command that starts it alone.
        swept: the overrides that tell it from the others.
        config: its validated config.
        name: its run directory's name.
    """

    index: int
    command: Command
    swept: tuple[str, ...]
    config: Config
    name: str

    @property
    def directory(self) -> Path:
        """The run directory."""
        return Path(self.config.run.root) / self.name


@dataclass(frozen=True)
class Sweep:
    """A checked sweep.

    Attributes:
        runs: every combination, in order.
        directory: `sweeps/NAME` beside the root of the runs.
        hydra: Hydra's node, whose `launcher` starts the runs.
    """

    runs: tuple[PlannedRun, ...]
    directory: Path
    hydra: DictConfig


def plan_sweep(command: Command, *, environment: Mapping[str, str]) -> Sweep:
    """Expands a `--multirun` command and checks every combination.

    Raises:
        ConfigError: what is wrong with any combination; two combinations that are the same run; started by torchrun.
    """
    if int(environment.get("WORLD_SIZE", "1")) > 1:
        raise ConfigError(
            "--multirun under torchrun.",
            why="every process would start every run.",
            fix="start python (not torchrun) with --multirun, or torchrun without it.",
        )
    groups = read_groups(command.config_dirs)
    plans: list[PlannedRun] = []
    failures: list[tuple[int, ConfigError]] = []
    with hydra_composer(command.config_dirs) as composer:
        fixed, combinations = _expand(command.overrides)
        for index, swept in enumerate(combinations):
            single = replace(command, multirun=False, overrides=(*fixed, *swept))
            try:
                composed = compose(single, environment=environment, groups=groups, composer=composer)
                config = _validated(composed, environment)
                plans.append(PlannedRun(index, single, swept, config, run_name(config)))
                hydra = composed.hydra
            except ConfigError as error:
                failures.append((index, error))
    if failures:
        raise ConfigError(list(_merged(failures, combinations)))
    _require_different(plans)
    return Sweep(runs=tuple(plans), directory=_directory(plans, command), hydra=hydra)


def run_sweep(command: Command, *, environment: Mapping[str, str]) -> int:
    """Runs a checked sweep with the launcher that `hydra/launcher` names.

    Returns:
        Exit code: 0 if every run ended with 0, 130 after an interrupt, else 1.
    """
    sweep = plan_sweep(command, environment=environment)
    launcher = instantiate(sweep.hydra.launcher)
    launcher.require_possible(sweep.runs)  # before anything is written
    write_sweep(sweep.directory, [SweptRun(RunDirectory(run.directory), run.swept) for run in sweep.runs])
    print(f"{len(sweep.runs)} runs, each checked; results in {sweep.directory}", flush=True)
    returns = launcher.launch_runs(
        sweep.runs,
        directory=sweep.directory,
        record=lambda row: append_record(sweep.directory / "runs.jsonl", row),
    )
    write_results(sweep.directory)
    if INTERRUPTED in returns:
        return INTERRUPTED
    return 0 if all(code in (0, None) for code in returns) else 1  # None: queued, and not waited for


def _validated(composed: Composed, environment: Mapping[str, str]) -> Config:
    """The config, checked for where the launcher executes it."""
    if get_class(composed.hydra.launcher._target_).for_jobs:
        return validate_for_job(with_launcher(composed), environment=environment)
    return validate(composed, environment=environment)


def preview_sweep(command: Command, *, environment: Mapping[str, str]) -> str:
    """The config of every run of a checked sweep, as YAML documents."""
    sweep = plan_sweep(command, environment=environment)
    parts = [f"--- # {' '.join(run.swept)}\n{as_yaml(run.config.dump())}" for run in sweep.runs]
    return "".join(parts)


def _expand(words: Sequence[str]) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    """The overrides that are the same for all, and the product of the swept ones."""
    parsed = [parse_override(word) for word in words]
    swept = [override for override in parsed if override.is_sweep_override()]
    if not swept:
        raise ConfigError(
            "--multirun without anything to sweep.", fix="give a key several values, KEY=1,2, or leave --multirun out."
        )
    fixed = tuple(str(override.input_line) for override in parsed if not override.is_sweep_override())
    repeated = [key for key, count in Counter(map(_key, parsed)).items() if count > 1]
    clash = [key for key in repeated if any(_key(override) == key for override in swept)]
    if clash:
        raise ConfigError(f"{clash[0]} is swept and given more than once.", fix="give it once.")
    [combinations] = BasicSweeper.split_arguments(swept, max_batch_size=None)
    return fixed, [tuple(combination) for combination in combinations]


def _key(override: Override) -> str:
    return str(override.get_key_element()).lstrip("+")


def _merged(failures: Sequence[tuple[int, ConfigError]], combinations: Sequence[tuple[str, ...]]) -> Iterator[Problem]:
    """Every problem once, with the combinations that have it where not all do."""
    where: dict[Problem, list[int]] = {}
    for index, error in failures:
        for problem in error.problems:
            where.setdefault(problem, []).append(index)
    for problem, indices in where.items():
        if len(indices) == len(combinations):
            yield problem
        else:
            shown = "; ".join(" ".join(combinations[index]) for index in indices[:3]) + (
                "; …" if len(indices) > 3 else ""
            )
            yield Problem(
                f"{problem.what} (in {len(indices)} of {len(combinations)} combinations: {shown})",
                problem.why,
                problem.fix,
            )


def _require_different(plans: Sequence[PlannedRun]) -> None:
    first: dict[Path, PlannedRun] = {}
    for plan in plans:
        twin = first.setdefault(plan.directory, plan)
        if twin is not plan:
            raise ConfigError(
                f"{' '.join(twin.swept)} and {' '.join(plan.swept)} are the same run, {plan.directory}.",
                why="run.name is fixed."
                if plan.config.run.name
                else "what is swept doesn't change what a run computes.",
                fix="leave run.name out."
                if plan.config.run.name
                else "sweep something else, or start them one by one with run.name=….",
            )


def _directory(plans: Sequence[PlannedRun], command: Command) -> Path:
    run = plans[0].config.run
    digest = hashlib.sha256("\n".join(command.overrides).encode()).hexdigest()[:8]
    return Path(run.root).parent / "sweeps" / f"{(run.experiment or 'sweep').replace('/', '-')}-{digest}"
