"""Merging a vision-language model: weights, formats of every tower, ties and processor come along."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors import safe_open
from transformers import AutoModelForImageTextToText, AutoProcessor

from supertrainer.export import merge
from supertrainer.export.merge import MergeExport
from supertrainer.export.schema import MergeExportConfig
from supertrainer.models.saving import save_trained
from supertrainer.models.sources import find_source
from tiny_mllm import CONFIGS, logits, mllm, save_mllm, shaken, tiny_batch

LORA = {"r": 2, "target_modules": "auto", "lora_dropout": 0.0}
TOWERS = {"vision": "lora", "projector": "full"}


def merged(tmp_path: Path, *, build: dict[str, Any] | None = None, **source: Any) -> tuple[Any, Any, Path]:
    """The trained model, a batch, and where its merge is."""
    model = mllm(save_mllm(tmp_path / "source", **source), towers=TOWERS)
    trained = shaken(model.build(seed=1, peft_kwargs=LORA, **(build or {})), by=0.05)
    processor = model.processor()
    save_trained(trained, processor, tmp_path / "model", base=model.base_reference(), unquantized=model.unquantized)
    batch = tiny_batch(processor)
    rows = [{name: values[:1] for name, values in batch.items() if name != "labels"}]
    export = MergeExport(MergeExportConfig(_target_="x"))
    source_of = find_source(str(tmp_path / "model"))
    result = export.run(source_of, output=tmp_path / "out", rows=rows, device=torch.device("cpu"))
    assert result.differences["original"].tokens == rows[0]["input_ids"].shape[1]
    return trained, batch, tmp_path / "out"


def test_a_merge_is_the_trained_model_and_keeps_its_processor(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A tied base, in several files whose index names the tensors that are in them."""
    monkeypatch.setattr(merge, "SHARD_SIZE", "40KB")
    text = {**CONFIGS["idefics3"]["text_config"], "tie_word_embeddings": True}
    trained, batch, out = merged(tmp_path, tie_word_embeddings=True, text_config=text)
    plain = AutoModelForImageTextToText.from_pretrained(out).eval()
    torch.testing.assert_close(logits(plain, batch), logits(trained, batch), rtol=0, atol=1e-4)
    assert plain.get_output_embeddings().weight is plain.get_input_embeddings().weight
    index = json.loads((out / "model.safetensors.index.json").read_text())["weight_map"]
    held = {name: file.name for file in out.glob("*.safetensors") for name in safe_open(file, "pt").keys()}  # noqa: SIM118
    assert index == held
    assert len(set(index.values())) > 1
    source = AutoProcessor.from_pretrained(tmp_path / "source")
    again = AutoProcessor.from_pretrained(out)
    assert again.image_processor.to_dict() == source.image_processor.to_dict()
    assert again.tokenizer.get_vocab() == source.tokenizer.get_vocab()


def test_a_quantized_one_is_written_in_its_source_s_format_without_a_trace_of_it(tmp_path: Path) -> None:
    nf4 = {"bitsandbytes_kwargs": {"load_in_4bit": True, "bnb_4bit_quant_type": "nf4"}}
    _, _, out = merged(tmp_path, build=nf4, dtype="bfloat16")
    config = json.loads((out / "config.json").read_text())
    assert "quantization" not in json.dumps(config)
    formats = {part.get("dtype", config["dtype"]) for part in (config, config["text_config"], config["vision_config"])}
    assert formats == {"bfloat16"}
    with safe_open(out / "model.safetensors", "pt") as file:
        assert {file.get_tensor(name).dtype for name in file.keys()} == {torch.bfloat16}  # noqa: SIM118
