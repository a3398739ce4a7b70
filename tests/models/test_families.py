"""The open families behind configs/model/llm: the real shapes on the meta device, and LoRA on every linear layer."""

from __future__ import annotations

import pytest
from omegaconf import OmegaConf
from torch import nn
from transformers import AutoModelForCausalLM

from llm_families import SHAPES
from supertrainer.config.groups import read_groups
from supertrainer.models.adapters import adapter_table, add_adapter
from supertrainer.models.architecture import build_skeleton, max_positions
from supertrainer.models.base import count_parameters


def hub_sources() -> set[str]:
    """The Hub ids that the shipped models name."""
    groups = read_groups()
    sources = {OmegaConf.load(groups.files[f"model/llm/{option}"]).get("source") for option in llm_options()}
    return {source for source in sources if source is not None and "://" not in source}


def llm_options() -> list[str]:
    """The shipped models, but the one whose source its user gives."""
    return [option for option in read_groups().options["model/llm"] if option != "hub"]


# A family's other sizes build the same modules: they run last.
SIZES = [pytest.param(name, marks=() if name in hub_sources() else pytest.mark.slow) for name in SHAPES]


@pytest.mark.parametrize("name", SIZES)
def test_a_family_has_its_published_size_and_takes_lora_on_every_linear_layer(name: str) -> None:
    shape = SHAPES[name]
    model = build_skeleton(AutoModelForCausalLM, shape.config(), attention="auto", trust_remote_code=False)
    assert count_parameters(model).total == pytest.approx(shape.millions * 1e6, rel=0.02)
    assert max_positions(model) == shape.positions
    inside = sum(isinstance(module, nn.Linear) for module in model.model.modules())
    options = {"r": 8, "target_modules": "auto"}
    adapted = add_adapter(model, options, trained_whole=(), task_type="CAUSAL_LM", base=None, seed=0)
    rows = adapter_table(adapted)
    assert {row.name for row in rows} == shape.targets
    assert {row.count for row in rows} == {shape.num_hidden_layers}
    assert sum(row.count for row in rows) == inside
    assert count_parameters(adapted).trainable == sum(row.parameters for row in rows) > 0


def test_every_model_of_the_hub_is_of_a_family_that_is_tested() -> None:
    assert hub_sources() <= set(SHAPES)
    assert len(hub_sources()) >= 12


@pytest.mark.parametrize("option", llm_options())
def test_every_model_says_what_it_is_and_where_it_comes_from(option: str) -> None:
    """Size, positions or architecture, licence where there is one, and a rate to begin with."""
    text = read_groups().files[f"model/llm/{option}"].read_text()
    assert "supertrainer.models.llm.LlmModel" in text
    if option != "scratch":
        assert "parameters" in text
        assert "learning_rate=" in text
        assert any(word in text for word in ("Apache-2.0", "MIT", "Licence", "Terms of Use"))
