"""`_target_`: what may be named, and what is built."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from supertrainer.config.build import build
from supertrainer.config.targets import load_target, schema_class
from supertrainer.core.errors import ConfigError


@pytest.mark.parametrize(
    "target",
    [
        "os.system",
        "pathlib.Path.touch",
        "supertrainer",
        "supertrainer.metrics",
        "supertrainerx.metrics.classification.ClassificationMetric",
        "supertrainer.metrics.classification.__builtins__",
        "supertrainer.metrics. classification.x",
        "",
    ],
)
def test_a_target_outside_the_allow_list_is_refused(target: str) -> None:
    with pytest.raises(ConfigError, match="not in the allow-list"):
        schema_class(target, path="metric", allowed=())


@pytest.mark.parametrize(
    "target",
    ["supertrainer.core.files.os.system", "supertrainer.core.files.Path", "supertrainer.core.run_directory.Path"],
)
def test_the_object_that_was_found_is_checked_too(target: str) -> None:
    with pytest.raises(ConfigError, match=r"not in the allow-list|defines no class|No module named"):
        load_target(target, path="metric", allowed=())


def test_a_misspelt_class_is_named_with_the_nearest() -> None:
    with pytest.raises(ConfigError, match="did you mean ClassificationMetric"):
        schema_class("supertrainer.metrics.classification.ClasificationMetric", path="metric", allowed=())


def test_a_class_of_the_users_own_needs_allow_targets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = tmp_path / "mycode"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "schema.py").write_text(
        "from supertrainer.config.strict import TargetModel\nclass ThingConfig(TargetModel):\n    size: int\n"
    )
    (package / "things.py").write_text(
        "class Thing:\n    def __init__(self, config, *, extra):\n        self.total = config.size + extra\n"
    )
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    target = "mycode.things.Thing"
    with pytest.raises(ConfigError, match=r"allow_targets=\[mycode\]"):
        schema_class(target, path="metric", allowed=())
    schema = schema_class(target, path="metric", allowed=["mycode"])
    node = schema.model_validate_json(f'{{"_target_": "{target}", "size": 2}}')
    assert build(node, allowed=["mycode"], extra=3).total == 5
    with pytest.raises(ConfigError, match="not in the allow-list"):
        build(node, extra=3)
