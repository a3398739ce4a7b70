"""The metric's config: defaults, refusals, and the YAML that ships."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from pydantic import ValidationError

from supertrainer.metrics.classification import ClassificationMetric
from supertrainer.metrics.schema import ClassificationMetricConfig

TARGET = "supertrainer.metrics.classification.ClassificationMetric"
YAML = Path(__file__).parents[2] / "configs" / "metric" / "classification.yaml"


def test_shipped_yaml_binds() -> None:
    config = ClassificationMetricConfig.model_validate(yaml.safe_load(YAML.read_text(encoding="utf-8")))
    metric = ClassificationMetric(config, label_names=["a", "b"])
    assert (metric.main, metric.greater_is_better) == ("macro_f1", True)
    assert config.target == f"{ClassificationMetric.__module__}.{ClassificationMetric.__qualname__}"


@pytest.mark.parametrize(("main", "greater", "fix"), [("loss", True, "false"), ("accuracy", False, "true")])
def test_direction_that_keeps_the_worst_is_refused(main: str, greater: bool, fix: str) -> None:
    with pytest.raises(ValidationError, match=f"would keep the worst checkpoint. Fix: greater_is_better={fix}"):
        ClassificationMetricConfig(_target_=TARGET, main=main, greater_is_better=greater)


def test_unknown_scalar_is_refused() -> None:
    with pytest.raises(ValidationError, match="macro_f1"):
        ClassificationMetricConfig(_target_=TARGET, main="f1_macro")


def test_schema_imports_no_torch() -> None:
    code = "import sys, supertrainer.metrics.schema; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
