"""The benchmark's config and the YAML that ships."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from pydantic import ValidationError

from supertrainer.benchmark.bert import BertBenchmark
from supertrainer.benchmark.schema import BertBenchmarkConfig

TARGET = "supertrainer.benchmark.bert.BertBenchmark"
YAML = Path(__file__).parents[2] / "configs" / "benchmark" / "bert.yaml"


def test_shipped_yaml_says_the_defaults() -> None:
    shipped = yaml.safe_load(YAML.read_text(encoding="utf-8"))
    assert shipped.pop("seed") == "${run.seed}"
    assert BertBenchmarkConfig.model_validate_json(json.dumps(shipped)) == BertBenchmarkConfig(_target_=TARGET)
    assert f"{BertBenchmark.__module__}.{BertBenchmark.__qualname__}" == TARGET


@pytest.mark.parametrize(
    "wrong", [{"split": ""}, {"samples": -1}, {"baseline_rows": 0}, {"baselines": "yes"}, {"splt": "a"}]
)
def test_wrong_values_and_keys_are_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(ValidationError, match=next(iter(wrong))):
        BertBenchmarkConfig.model_validate({"_target_": TARGET, **wrong})


def test_schema_imports_no_torch() -> None:
    code = "import sys, supertrainer.benchmark.schema; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
