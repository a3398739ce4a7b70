"""The wheel, the ranges and the pins."""

from __future__ import annotations

import ast
import os
import shutil
import subprocess
import sys
import tomllib
import zipfile
from importlib import metadata
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def specifiers(lines: list[str]) -> dict[str, str]:
    """Requirement lines -> {canonical name: its specifier}."""
    parsed = [Requirement(line.split(" #")[0]) for line in lines]
    return {canonicalize_name(item.name): str(item.specifier) for item in parsed}


def pins(*names: str) -> dict[str, str]:
    """The exact versions of requirements files, `-r` lines left to the caller."""
    lines = [line for name in names for line in (ROOT / "requirements" / name).read_text().splitlines()]
    found = specifiers([line for line in lines if line and not line.startswith(("#", "-"))])
    assert all(specifier.startswith("==") for specifier in found.values())
    return {name: specifier.removeprefix("==") for name, specifier in found.items()}


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A wheel of this checkout, with a launcher plugin in it, unpacked. The checkout itself stays as it is."""
    source = tmp_path_factory.mktemp("source")
    for name in ("src", "configs"):
        shutil.copytree(ROOT / name, source / name, ignore=shutil.ignore_patterns("__pycache__", "*.egg-info"))
    for name in ("pyproject.toml", "setup.py", "MANIFEST.in", "LICENSE", "README.md"):
        shutil.copy(ROOT / name, source)
    plugin = source / "src/hydra_plugins/supertrainer_launcher"
    plugin.mkdir(parents=True, exist_ok=True)
    (plugin / "__init__.py").touch()
    command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation", "-w", "dist", "."]
    subprocess.run(command, cwd=source, check=True, capture_output=True, timeout=120)
    unpacked = tmp_path_factory.mktemp("wheel")
    (built,) = (source / "dist").glob("supertrainer-*.whl")
    zipfile.ZipFile(built).extractall(unpacked)
    return unpacked


def test_the_wheel_carries_every_config_beside_the_modules(wheel: Path) -> None:
    shipped = {
        path.relative_to(wheel / "supertrainer/configs") for path in wheel.glob("supertrainer/configs/**/*.yaml")
    }
    assert shipped == {path.relative_to(ROOT / "configs") for path in (ROOT / "configs").rglob("*.yaml")}
    assert Path("config.yaml") in shipped


def test_the_wheel_carries_the_chat_templates(wheel: Path) -> None:
    shipped = {path.name for path in (wheel / "supertrainer/data/chat/templates").iterdir()}
    assert shipped == {path.name for path in (ROOT / "src/supertrainer/data/chat/templates").glob("*.jinja")}
    assert "chatml.jinja" in shipped


def test_the_wheel_holds_two_packages_and_nothing_else(wheel: Path) -> None:
    assert {path.name for path in wheel.iterdir() if path.suffix != ".dist-info"} == {"supertrainer", "hydra_plugins"}
    assert (wheel / "supertrainer/main.py").is_file()
    # A namespace that others share: an __init__.py of ours would hide their plugins.
    assert [path.name for path in (wheel / "hydra_plugins").iterdir()] == ["supertrainer_launcher"]
    assert list(wheel.glob("*.dist-info/licenses/LICENSE"))


def test_the_command_of_an_installed_wheel_finds_its_own_configs(wheel: Path, tmp_path: Path) -> None:
    (entry_points,) = wheel.glob("*.dist-info/entry_points.txt")
    assert "supertrainer = supertrainer.main:cli" in entry_points.read_text()
    code = (
        "import sys; from supertrainer.config.groups import config_directory; from supertrainer.main import cli;"
        "print(config_directory()); sys.exit(cli())"
    )
    # Not measured: the unpacked copy would count as a second, untested package.
    environment = {name: value for name, value in os.environ.items() if not name.startswith("COVERAGE_")}
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=tmp_path,
        env={**environment, "PYTHONPATH": str(wheel)},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.stdout.splitlines()[0] == str(wheel / "supertrainer/configs")
    assert "train_bert" in done.stdout
    assert done.returncode == 2


def test_core_is_lean() -> None:
    core = set(specifiers(PROJECT["dependencies"]))
    extras = {name: set(specifiers(lines)) for name, lines in PROJECT["optional-dependencies"].items()}
    assert set(extras) == {"vllm", "unsloth", "tensorrt", "onnx", "liger", "preference", "trackers", "dev"}
    assert not core & set.union(*extras.values())
    assert not core & {"evaluate", "torchvision", "torchaudio", "triton", "hydra-submitit-launcher"}


def test_every_package_that_the_code_imports_is_declared() -> None:
    """What comes along with another dependency today may not tomorrow."""
    distributions = metadata.packages_distributions()
    imported = set()
    for path in [*(ROOT / "src").rglob("*.py"), *(ROOT / "scripts").glob("*.py")]:
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Import):
                imported |= {alias.name.split(".")[0] for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and node.level == 0:
                imported.add(str(node.module).split(".")[0])
    foreign = (
        imported - set(sys.stdlib_module_names) - {"supertrainer", "pydantic_core"}
    )  # pydantic pins its core itself
    declared = set(specifiers(PROJECT["dependencies"]))
    undeclared = {name for name in foreign if canonicalize_name(distributions.get(name, [name])[0]) not in declared}
    assert undeclared == set()
    assert {"torch", "yaml"} <= foreign


@pytest.mark.parametrize(
    ("package", "version"),
    [
        ("transformers", "5.17.0"),  # unsloth 2026.10.9 stops here
        ("transformers", "5.20.2"),  # the newest that vllm 0.33.0 takes
        ("transformers", "5.24.0"),
        ("torch", "2.11.0"),
        ("torch", "2.14.0"),  # vllm 0.33.0 pins it
        ("datasets", "4.8.5"),  # unsloth 2026.10.9 wants < 5
        ("datasets", "5.2.0"),
        ("numpy", "2.3.5"),  # vllm 0.33.0
    ],
)
def test_ranges_admit_what_the_extras_need(package: str, version: str) -> None:
    ranges = {canonicalize_name(item.name): item.specifier for item in map(Requirement, PROJECT["dependencies"])}
    assert version in ranges[package]


def test_pins_lie_within_the_ranges_and_cover_all_that_they_need() -> None:
    pinned = pins("base.txt", "cpu.txt", "dev.txt")
    installed = {item.name: item.version for item in metadata.distributions()}
    installed = {canonicalize_name(name): version.split("+")[0] for name, version in installed.items()}
    if other := {name: installed.get(name) for name in pinned if installed.get(name) != pinned[name]}:
        pytest.skip(f"needs an environment made by `make setup`; here the pins are not what is installed: {other}")
    todo = [Requirement(line) for line in (*PROJECT["dependencies"], *PROJECT["optional-dependencies"]["dev"])]
    seen = set()
    while todo:
        requirement = todo.pop()
        name = canonicalize_name(requirement.name)
        assert pinned[name] in requirement.specifier
        if name not in seen:
            seen.add(name)
            needed = [Requirement(line) for line in metadata.requires(name) or ()]
            needed = [item for item in needed if item.marker is None or item.marker.evaluate({"extra": ""})]
            # A CUDA build of torch needs packages that the CPU build doesn't, at versions that it names itself.
            todo += [item for item in needed if name != "torch" or canonicalize_name(item.name) in pinned]
    assert set(pinned) == seen  # none that nothing needs any more


def test_conda_takes_the_pins_and_leaves_torch_to_the_index() -> None:
    text = (ROOT / "environment.yaml").read_text()
    for constraint in ("requirements/base.txt", "requirements/dev.txt"):
        assert f"- -c {constraint}" in text
    assert "- -e .[dev]" in text
    assert "torch" not in pins("base.txt", "dev.txt")
    assert pins("cpu.txt") == {"torch": "2.13.0"}
