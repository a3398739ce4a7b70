"""The check before a submit: what would fail after the queue fails now, and what comes from the Hub is fetched."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TextIO

from supertrainer.config.spine import Config
from supertrainer.core.errors import ConfigError, Problem
from supertrainer.core.placement import planned
from supertrainer.operations.hub_commits import hub_nodes


def check_configs(configs: Sequence[Config], *, stream: TextIO) -> list[dict[str, str]]:
    """Checks each distinct model × data × length once, as `operation=check` does, for the job's processes.

    Returns:
        Of each config, node -> the commit that was fetched from the Hub.

    Raises:
        ConfigError: with everything that is wrong.
    """
    done: dict[str, dict[str, str]] = {}
    problems: list[Problem] = []
    commits = []
    for config in configs:
        key = _what_is_checked(config)
        if key not in done:
            with planned(config.cluster.placement):
                done[key], found = _check(config, stream)
            problems += found
        commits.append(done[key])
    if problems:
        raise ConfigError(list(dict.fromkeys(problems)))
    return commits


def needs_fetching(configs: Sequence[Config]) -> bool:
    """Whether any of them reads from the Hub."""
    return any(hub_nodes(config) for config in configs)


def _check(config: Config, stream: TextIO) -> tuple[dict[str, str], list[Problem]]:
    from supertrainer.operations.check import check, check_sources  # brings torch: half a minute
    from supertrainer.operations.check_text import print_result
    from supertrainer.operations.scoring import build_dataset

    training = config.operation in ("train", "verify")
    result = check(config, dataset=build_dataset(config)) if training else check_sources(config)
    print_result(result, stream=stream)
    return result.commits, result.problems


def _what_is_checked(config: Config) -> str:
    trainer = config.trainer
    parts = [node.model_dump_json() for node in (config.model, config.dataset, config.cluster) if node is not None]
    parts += [] if trainer is None else trainer.seen_by_check()
    return "\n".join([config.operation, *parts])
