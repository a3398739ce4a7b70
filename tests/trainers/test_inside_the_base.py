"""PiSSA through a whole training: it resumes to the bit, and what it writes is what was trained."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from supertrainer.models.initial import START_FILE
from tiny_models import save_tiny
from tiny_training import killed_after, tiny_trainer

PISSA = {"r": 2, "lora_alpha": 2, "target_modules": "auto", "init_lora_weights": "pissa"}
NF4 = {"load_in_4bit": True, "bnb_4bit_quant_type": "nf4"}
INPUTS = {"input_ids": torch.tensor([[2, 9, 30, 3], [2, 7, 41, 3]])}


@pytest.mark.parametrize("bitsandbytes_kwargs", [None, NF4])
def test_a_killed_run_goes_on_to_the_bit_and_is_read_back(tmp_path: Path, bitsandbytes_kwargs: Any) -> None:
    from supertrainer.models.saving import load_trained

    source = save_tiny(tmp_path / "source")
    keys: dict[str, Any] = {
        "training_kwargs": {"save_strategy": "steps", "save_steps": 1},
        "peft_kwargs": PISSA,
        "bitsandbytes_kwargs": bitsandbytes_kwargs,
        "keep_last": 100,
    }
    whole = tiny_trainer(tmp_path / "whole", source, **keys)
    whole.train()
    run = killed_after(tmp_path / "whole", 2, tmp_path / "killed")
    assert (run / "checkpoints" / "step-00000002" / START_FILE).is_file()
    again = tiny_trainer(run, source, attempt=2, **keys)
    assert again.train().first_step == 2
    weights, expected = (load_file(path / "model" / "adapter_model.safetensors") for path in (run, tmp_path / "whole"))
    assert all(torch.equal(weights[name], expected[name]) for name in expected)
    with torch.no_grad():
        trained = again.module.eval()(**INPUTS).logits
        read = load_trained(run / "model").model(**INPUTS).logits
    torch.testing.assert_close(read, trained, rtol=0, atol=0.0 if bitsandbytes_kwargs else 1e-5)
    rank = json.loads((run / "model" / "adapter_config.json").read_text())["r"]
    assert rank == (2 if bitsandbytes_kwargs else 4)  # with its rest beside it, or on the weights as they were
    assert (run / "model" / "base_model").is_dir() is (bitsandbytes_kwargs is not None)
