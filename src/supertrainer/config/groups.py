"""The config groups: which there are, which options each has, and what each experiment says of itself."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

# Two places, one meaning: beside src/ in a checkout, inside the package in an installed wheel.
_INSTALLED = Path(__file__).parents[1] / "configs"
_CHECKOUT = Path(__file__).parents[3] / "configs"


def config_directory() -> Path:
    """The directory of the shipped configs."""
    return _INSTALLED if (_INSTALLED / "config.yaml").is_file() else _CHECKOUT


@dataclass(frozen=True)
class Groups:
    """Every group with its options. A group is a directory below a config directory, an option a YAML file in it.

    An option in a sub-directory counts for each group above it: `model/bert/minilm.yaml` is option `minilm` of
    `model/bert` and option `bert/minilm` of `model`.
    """

    options: Mapping[str, tuple[str, ...]]
    files: Mapping[str, Path]  # "model/bert/minilm" -> its file

    def __contains__(self, group: str) -> bool:
        return group in self.options

    @property
    def experiments(self) -> tuple[str, ...]:
        return self.options.get("experiment", ())


def read_groups(extra: Sequence[Path] = ()) -> Groups:
    """Lists the groups of the shipped configs and of further directories, the later ones on top."""
    files: dict[str, Path] = {}
    for directory in (config_directory(), *extra):
        for path in sorted(directory.rglob("*.yaml")):
            files[path.relative_to(directory).with_suffix("").as_posix()] = path
    options: dict[str, set[str]] = {}
    for name in files:
        for group, option in _readings(name):
            options.setdefault(group, set()).add(option)
    return Groups(
        options=MappingProxyType({group: tuple(sorted(names)) for group, names in options.items()}),
        files=MappingProxyType(files),
    )


def _readings(name: str) -> Iterator[tuple[str, str]]:
    parts = name.split("/")
    for cut in range(1, len(parts)):
        if "common" not in parts[cut:]:  # shared parts of a group's options are no options of it
            yield "/".join(parts[:cut]), "/".join(parts[cut:])


def describe(path: Path) -> str:
    """The first sentence of a config file's opening comment; empty where it has none."""
    words: list[str] = []
    for line in path.read_text(encoding="utf-8").splitlines():
        if line.startswith("# @"):
            continue
        if not line.startswith("#"):
            break
        words.append(line.lstrip("# ").strip())
        if line.rstrip().endswith("."):
            break
    return " ".join(words).split(". ", 1)[0].rstrip(".")
