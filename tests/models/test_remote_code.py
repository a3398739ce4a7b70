"""Code that comes with a model: run only where it is asked for, said, and carried along to what is saved."""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import Any

import pytest
import torch

from supertrainer.core.errors import ConfigError
from supertrainer.core.files import read_json
from supertrainer.models.saving import load_trained, save_trained
from tiny_mllm import logits, mllm, picture, shaken
from tiny_remote_code import save_sketch, save_weights

TOWERS = {"vision": [r"eye\."], "projector": [r"bridge\."], "language": [r"mouth\."]}
LORA = {"r": 2, "target_modules": "auto", "lora_dropout": 0.0}


def batch_of(processor: Any) -> dict[str, torch.Tensor]:
    pictures = [[picture(number)] for number in range(2)]
    return dict(processor(text=["<image> w1 w2", "<image> w3 w4"], images=pictures, return_tensors="pt"))


def test_code_is_not_run_unless_it_is_asked_for(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"(?s)model\.trust_remote_code=true where the code that it brings may run"):
        mllm(save_sketch(tmp_path / "source")).build(seed=1)


@pytest.mark.parametrize("bitsandbytes", [None, {"load_in_4bit": True}])
def test_a_model_with_code_of_its_own_is_adapted_saved_and_read_back(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, bitsandbytes: Any
) -> None:
    source = save_sketch(tmp_path / "source")
    save_weights(source)
    keys: Any = {"trust_remote_code": True, "tower_modules": TOWERS, "towers": {"projector": "full"}}
    model = mllm(source, **keys)
    assert "Python code that comes with the model is run" in caplog.text
    caplog.set_level(logging.INFO)
    trained = shaken(model.build(seed=1, peft_kwargs=LORA, bitsandbytes_kwargs=bitsandbytes))
    batch = batch_of(model.processor())
    save_trained(trained, model.processor(), tmp_path / "model", base=model.base_reference())
    again = load_trained(tmp_path / "model", trust_remote_code=True)
    assert torch.equal(logits(again.model, batch), logits(trained, batch))
    assert again.task == "image_text_to_text"
    assert (tmp_path / "model" / "modeling_sketch.py").is_file()


def test_a_model_trained_in_full_brings_its_code(tmp_path: Path) -> None:
    source = save_sketch(tmp_path / "source")
    save_weights(source)
    model = mllm(source, trust_remote_code=True, tower_modules=TOWERS, towers={"vision": "full"})
    trained = shaken(model.build(seed=1))
    batch = batch_of(model.processor())
    save_trained(trained, model.processor(), tmp_path / "model")
    again = load_trained(tmp_path / "model", trust_remote_code=True)
    assert torch.equal(logits(again.model, batch), logits(trained, batch))
    saved = read_json(tmp_path / "model" / "config.json")
    assert saved["auto_map"]["AutoModelForCausalLM"] == "modeling_sketch.SketchModel"
    assert str(tmp_path) not in json.dumps(saved)


def test_code_without_a_forward_pass_is_refused(tmp_path: Path) -> None:
    source = save_sketch(tmp_path / "source", forward="def answer")
    with pytest.raises(ConfigError, match=r"(?s)SketchModel.*has no forward pass.*model\.revision"):
        mllm(source, trust_remote_code=True, tower_modules=TOWERS).build(seed=1, device="meta")
