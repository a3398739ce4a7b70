"""Quantized weights in training: what is below them gets its gradients, whatever passes came before."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from tiny_mllm import CONFIGS, mllm, save_mllm, tiny_batch

LORA = {"r": 2, "target_modules": "auto", "lora_dropout": 0.0}
NF4 = {"load_in_4bit": True, "bnb_4bit_quant_type": "nf4"}
# Widths of whole blocks: narrower weights aren't laid out anew on any CPU.
WIDE = {
    "idefics3": {"hidden_size": 128, "intermediate_size": 128, "head_dim": 32, "num_key_value_heads": 4},
    "florence2": {"d_model": 128, "encoder_ffn_dim": 128, "decoder_ffn_dim": 128},
}


@pytest.mark.parametrize("family", WIDE)
def test_a_look_at_a_quantized_model_takes_no_gradient_away(tmp_path: Path, family: str) -> None:
    """bitsandbytes lays weights out for inference on CPUs with AVX512-BF16; others have nothing to show here."""
    keys: dict[str, Any] = {"text_config": {**CONFIGS[family]["text_config"], **WIDE[family]}}
    if family == "florence2":
        keys["vision_config"] = {**CONFIGS[family]["vision_config"], "projection_dim": 128}
    model = mllm(save_mllm(tmp_path, family, **keys))
    batch = tiny_batch(model.processor(), family)
    labels = batch.pop("labels")
    found = []
    for looks in (False, True):
        trained: Any = model.build(seed=1, peft_kwargs=LORA, bitsandbytes_kwargs=NF4).eval()
        if looks:
            with torch.no_grad():
                trained(**batch)
        made = trained.train()(**batch).logits
        torch.nn.functional.cross_entropy(made[:, :-1].flatten(0, 1), labels[:, 1:].flatten()).backward()
        found.append({name: p.grad for name, p in trained.named_parameters() if "lora_B" in name})
    before, after = found
    assert all(gradient is not None and gradient.any() for gradient in before.values())
    assert all(torch.equal(gradient, after[name]) for name, gradient in before.items())
