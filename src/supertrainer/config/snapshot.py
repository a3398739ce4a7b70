"""Configs as files: what `config=PATH` reads, and the snapshot that a run directory holds."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException

from supertrainer.config.nearest import did_you_mean
from supertrainer.core.errors import ConfigError

_CHOICE_KEYS = ("experiment", "mode")
_REFUSED_KEYS = {
    "hydra": "a file's hydra node could run code; launcher settings go on the command line.",
    "defaults": "a defaults list composes only from config directories; add yours with --config-dir DIR.",
}


@dataclass(frozen=True)
class Source:
    """A config read from a file.

    Attributes:
        path: the file.
        values: the tree, without the keys that choose.
        choices: `experiment` and `mode`, where the file names an experiment to build on.
    """

    path: Path
    values: Mapping[str, Any]
    choices: Mapping[str, str]

    @property
    def is_whole(self) -> bool:
        """Whether the file is a whole config, not values on top of an experiment."""
        return "experiment" not in self.choices


def read_source(path: Path) -> Source:
    """Reads a YAML, JSON or TOML file, or the snapshot of a run directory.

    A file that names an `experiment:` (and a `mode:`) holds values on top of it; any other is a whole config.

    Raises:
        ConfigError: not there, not readable, or with a `hydra:` or `defaults:` node.
    """
    file = path / "config.yaml" if path.is_dir() else path
    if not file.is_file():
        there = [item.name for item in path.parent.iterdir()] if path.parent.is_dir() else []
        raise ConfigError(
            f"config={path}: there is no such {'snapshot' if path.is_dir() else 'file or run directory'}.",
            fix=did_you_mean(path.name, there) if there else "give a run directory or a .yaml, .json or .toml file.",
        )
    tree = _parse(file)
    for key, why in _REFUSED_KEYS.items():
        if key in tree:
            raise ConfigError(f"config={path}: the file has a {key}: node.", why=why, fix=f"take {key}: out.")
    if any((file.parent / name).exists() for name in ("attempts.jsonl", "environment.json")):
        tree.pop("allow_targets", None)  # what may be imported is never widened by what a run wrote
    choices = {key: str(tree.pop(key)) for key in _CHOICE_KEYS if isinstance(tree.get(key), str)}
    return Source(path=path, values=tree, choices=choices)


def _parse(file: Path) -> dict[str, Any]:
    try:
        text = file.read_text(encoding="utf-8-sig")
        if file.suffix == ".json":
            tree = json.loads(text, object_pairs_hook=_unique)
        elif file.suffix == ".toml":
            tree = tomllib.loads(text)
        elif file.suffix in (".yaml", ".yml"):
            tree = OmegaConf.to_container(OmegaConf.create(text)) if text.strip() else {}
        else:
            raise ConfigError(
                f"config={file}: {file.suffix or 'no suffix'} is not read.", fix="use .yaml, .json or .toml."
            )
    except (
        json.JSONDecodeError,
        tomllib.TOMLDecodeError,
        yaml.YAMLError,
        UnicodeDecodeError,
        OmegaConfBaseException,
    ) as error:
        raise ConfigError(
            f"config={file}: can't be read as {file.suffix[1:]} ({_first_line(error)}).", fix="mend the file."
        ) from error
    if not tree:
        raise ConfigError(
            f"config={file}: is empty.", fix="write a whole config, or experiment: NAME and values on top."
        )
    if not isinstance(tree, dict):
        raise ConfigError(
            f"config={file}: holds a {type(tree).__name__}, not keys and values.", fix="write key: value lines."
        )
    return {str(key): value for key, value in tree.items()}


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """A JSON object, none of whose keys stands twice: of two, one would silently win."""
    tree = dict(pairs)
    if len(tree) < len(pairs):
        keys = [key for key, _ in pairs]
        twice = next(key for key in keys if keys.count(key) > 1)
        raise ConfigError(f"config: the key {twice!r} stands twice in one object.", fix="take one out.")
    return tree


def _first_line(error: Exception) -> str:
    return " ".join(str(error).split())[:200]


def as_yaml(tree: Mapping[str, Any]) -> str:
    """A plain tree as YAML, keys in their order; numbers and strings as OmegaConf reads them back."""
    return OmegaConf.to_yaml(OmegaConf.create(dict(tree)))
