"""The open families behind configs/model/mllm: the real shapes on the meta device, their towers, and LoRA's places."""

from __future__ import annotations

import pytest
from omegaconf import OmegaConf
from torch import nn
from transformers import AutoModelForImageTextToText

from mllm_families import SHAPES
from supertrainer.config.groups import read_groups
from supertrainer.models.architecture import build_skeleton
from supertrainer.models.base import count_parameters
from supertrainer.models.tower_targets import lora_targets
from supertrainer.models.towers import Towers

OPTIONS = [option for option in read_groups().options["model/mllm"] if option not in ("hub", "scratch", "small")]
# Those whose own code is run: nothing of theirs is built here.
NOT_BUILT = {"vikhyatk/moondream2", "microsoft/Phi-3.5-vision-instruct"}


def text_of(option: str) -> str:
    return read_groups().files[f"model/mllm/{option}"].read_text()


@pytest.mark.parametrize("name", SHAPES)
def test_a_family_has_its_published_size_and_lora_sits_on_every_linear_layer_of_its_language(name: str) -> None:
    shape = SHAPES[name]
    model = build_skeleton(AutoModelForImageTextToText, shape.config(), attention="auto", trust_remote_code=False)
    assert count_parameters(model).total == pytest.approx(shape.millions * 1e6, rel=0.005)
    towers = Towers(model)
    counts = towers.counts()
    assert sum(counts.values()) == count_parameters(model).total
    assert counts["language"] > counts["vision"] > counts["projector"]
    text = model.config.get_text_config()
    targets = lora_targets(model, towers, ["language"], "auto")
    layers = 7 * text.num_hidden_layers  # four of attention, three of the MLP
    if model.config.is_encoder_decoder:  # two of the MLP, and a decoder attends to itself and to what the encoder read
        layers = 6 * text.encoder_layers + 10 * text.decoder_layers
    assert len(targets) == layers
    assert all(isinstance(model.get_submodule(target), nn.Linear) for target in targets)


def test_every_model_of_the_hub_is_of_a_family_that_is_tested() -> None:
    sources = {OmegaConf.load(read_groups().files[f"model/mllm/{option}"]).source for option in OPTIONS}
    assert sources - NOT_BUILT == set(SHAPES)
    assert len(sources) >= 14


@pytest.mark.parametrize("option", OPTIONS)
def test_every_model_says_what_it_is_and_where_it_comes_from(option: str) -> None:
    """Size, licence, and a rate to begin with; where code of its own is run, that it is."""
    text = text_of(option)
    assert "parameters" in text
    assert any(word in text for word in ("Apache-2.0", "MIT", "Licence", "Terms of Use", "for research only"))
    assert "learning_rate=" in text
    assert ("trust_remote_code: true" in text) == ("trust_remote_code=true runs" in text)
