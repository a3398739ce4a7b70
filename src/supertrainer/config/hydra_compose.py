"""Hydra's compose API on our config directories, with its errors turned into ours."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import yaml
from hydra import compose, initialize_config_dir
from hydra.core.config_store import ConfigStore
from hydra.core.global_hydra import GlobalHydra
from hydra.errors import HydraException
from omegaconf import DictConfig, ListConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from supertrainer.config.groups import config_directory
from supertrainer.core.errors import ConfigError

_CHOICE = "supertrainer_choice"


class HydraComposer:
    """Composes from the shipped config directory and the user's own ones."""

    def __init__(self, extra: Sequence[Path]) -> None:
        self._roots: dict[tuple[str, ...], tuple[DictConfig, DictConfig]] = {}
        self._searchpath = [f"hydra.searchpath=[{','.join(f'file://{path}' for path in extra)}]"] if extra else []

    def root(self, words: Sequence[str]) -> tuple[DictConfig, DictConfig]:
        """The root config with group choices and Hydra settings applied: (job tree, hydra node)."""
        if tuple(words) not in self._roots:  # a sweep over values composes its groups once
            full = _compose("config", [*self._searchpath, *words], with_hydra=True)
            OmegaConf.set_struct(full, False)
            tree = OmegaConf.masked_copy(full, [str(key) for key in full if key != "hydra"])
            self._roots[tuple(words)] = (tree, full.hydra)
        tree, hydra = self._roots[tuple(words)]
        return copy.deepcopy(tree), hydra

    def option(self, group: str, option: str) -> DictConfig:
        """What one option alone puts into a tree, at its package (`group` may end in `@package`)."""
        ConfigStore.instance().store(name=_CHOICE, node={"defaults": [{f"/{group}": option}]})
        tree = _compose(_CHOICE, self._searchpath, with_hydra=False)
        OmegaConf.set_struct(tree, False)
        return tree


@contextmanager
def hydra_composer(extra: Sequence[Path]) -> Iterator[HydraComposer]:
    """Hydra's global state, set up for composing and cleared afterwards."""
    GlobalHydra.instance().clear()
    with initialize_config_dir(str(config_directory()), job_name="supertrainer", version_base="1.3"):
        yield HydraComposer(extra)


def _compose(name: str, words: Sequence[str], *, with_hydra: bool) -> DictConfig:
    try:
        tree: DictConfig = compose(name, list(words), return_hydra_config=with_hydra)
    except (HydraException, OmegaConfBaseException, ValueError, yaml.YAMLError) as error:
        raise _translated(error) from error
    return tree


def plain(tree: DictConfig | ListConfig) -> dict[str, Any]:
    """A tree as plain data, its interpolations as text."""
    values = OmegaConf.to_container(tree)
    assert isinstance(values, dict)
    return {str(key): value for key, value in values.items()}


def _translated(error: Exception) -> ConfigError:
    if isinstance(error, yaml.YAMLError):
        return ConfigError(f"a config file is not YAML ({' '.join(str(error).split())}).", fix="mend the file.")
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    hints = [line for line in lines[1:] if line.startswith("Did you mean")]
    return ConfigError(lines[0] if lines else type(error).__name__, fix=hints[0] if hints else "")
