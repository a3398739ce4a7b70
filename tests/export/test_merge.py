"""Merging: what is written is what was trained, and how far it is where it can't be."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors import safe_open
from transformers import AutoModelForCausalLM, AutoTokenizer

from supertrainer.core.errors import ConfigError
from supertrainer.export import merge
from supertrainer.export.merge import RECORD, MergeExport, MergeResult
from supertrainer.export.schema import MergeExportConfig
from supertrainer.models.saving import load_trained, save_trained
from supertrainer.models.sources import find_source
from tiny_decoders import IDS, TEMPLATE, llm, logits, save_decoder, shaken

LORA = {"r": 4, "lora_alpha": 16, "target_modules": "auto"}
NF4 = {"load_in_4bit": True, "bnb_4bit_quant_type": "nf4", "bnb_4bit_use_double_quant": True}
# PEFT says of a module that is trained whole beside tied embeddings what is settled in config.json here
pytestmark = pytest.mark.filterwarnings("ignore:.*(tie_word_embeddings|ensure_weight_tying).*:UserWarning")


def trained(source: Path, directory: Path, *, added: tuple[str, ...] = (), **how: Any) -> Any:
    """A model directory of ours, and the model as it was trained."""
    model = llm(source, added_tokens=added)
    module = shaken(model.build(seed=1, **how))
    save_trained(module, model.tokenizer(), directory, base=model.base_reference(), unquantized=model.unquantized)
    return module


def export(directory: Path, output: Path, **keys: Any) -> MergeResult:
    exporter = MergeExport(MergeExportConfig(_target_="x", **keys))
    return exporter.run(find_source(str(directory)), output=output, rows=IDS.tolist(), device=torch.device("cpu"))


def plain(output: Path, **how: Any) -> Any:
    return AutoModelForCausalLM.from_pretrained(output, **how).eval()


def keys_of(output: Path) -> list[str]:
    names = []
    for file in output.glob("*.safetensors"):
        with safe_open(file, framework="pt") as tensors:
            names += list(tensors.keys())
    return sorted(names)


@pytest.mark.parametrize("added", [(), ("<call>", "</call>")])
@pytest.mark.parametrize("tied", [True, False])
def test_merged_equals_adapter(tmp_path: Path, tied: bool, added: tuple[str, ...]) -> None:
    source = save_decoder(tmp_path / "source", tied=tied)
    module = trained(source, tmp_path / "model", peft_kwargs=LORA, added=added)
    result = export(tmp_path / "model", tmp_path / "merged")
    ids = torch.cat([IDS, torch.tensor([[100, 101], [101, 100]])], dim=1) if added else IDS
    torch.testing.assert_close(logits(plain(tmp_path / "merged"), ids), logits(module, ids), rtol=0, atol=1e-5)
    assert set(result.differences) == {"original"}
    assert result.differences["original"].greatest < 1e-5
    assert result.differences["original"].agreement == 1.0
    config = json.loads((tmp_path / "merged" / "config.json").read_text())
    assert config["tie_word_embeddings"] is tied
    assert ("lm_head.weight" in keys_of(tmp_path / "merged")) is not tied
    assert config["vocab_size"] == 100 + len(added)
    assert (config["dtype"], config["use_cache"]) == ("float32", True)


@pytest.mark.parametrize("base", ["original", "dequantized"])
def test_both_merges_of_a_quantized_run_are_measured(tmp_path: Path, base: Any) -> None:
    module = trained(save_decoder(tmp_path / "source"), tmp_path / "model", peft_kwargs=LORA, bitsandbytes_kwargs=NF4)
    result = export(tmp_path / "model", tmp_path / "merged", base=base)
    dequantized, original = result.differences["dequantized"], result.differences["original"]
    assert dequantized.greatest < 1e-5  # it is the model that was trained
    assert original.mean > 100 * dequantized.mean  # and this another one
    apart = (logits(plain(tmp_path / "merged")) - logits(module)).abs()
    assert float(apart.max()) == pytest.approx(result.differences[base].greatest, rel=1e-3)
    text = (tmp_path / "merged" / "config.json").read_text()
    assert "quantization" not in text
    assert result.record()["differences"]["original"]["kl"] > 0
    assert json.loads((tmp_path / "merged" / RECORD).read_text())["base"] == base


def test_the_files_are_those_of_a_plain_model(tmp_path: Path) -> None:
    trained(save_decoder(tmp_path / "source"), tmp_path / "model", peft_kwargs=LORA)
    export(tmp_path / "model", tmp_path / "merged")
    assert sorted(file.name for file in (tmp_path / "merged").iterdir()) == [
        "chat_template.jinja",
        "config.json",
        "export.json",
        "generation_config.json",
        "model.safetensors",
        "tokenizer.json",
        "tokenizer_config.json",
    ]
    assert (tmp_path / "merged" / "chat_template.jinja").read_bytes() == TEMPLATE.encode()
    assert AutoTokenizer.from_pretrained(tmp_path / "merged").chat_template == TEMPLATE
    assert plain(tmp_path / "merged").generation_config.eos_token_id == [2, 5]


@pytest.mark.parametrize(("wanted", "held"), [("auto", "bfloat16"), ("float16", "float16"), ("float32", "float32")])
def test_the_format_is_that_of_the_base_or_the_one_asked_for(tmp_path: Path, wanted: Any, held: str) -> None:
    source = save_decoder(tmp_path / "source", dtype="bfloat16")
    trained(source, tmp_path / "model", peft_kwargs=LORA)
    result = export(tmp_path / "model", tmp_path / "merged", dtype=wanted)
    assert result.dtype == held
    model = plain(tmp_path / "merged")
    assert {parameter.dtype for parameter in model.parameters()} == {getattr(torch, held)}
    assert json.loads((tmp_path / "merged" / "config.json").read_text())["dtype"] == held
    rounded = result.differences["original"].greatest  # what is measured is what was written, rounding included
    assert (rounded > 1e-4) is (held != "float32")
    expected = logits(load_trained(tmp_path / "model").model)
    apart = float((logits(plain(tmp_path / "merged", dtype="float32")) - expected).abs().max())
    assert apart == pytest.approx(rounded, rel=1e-3, abs=1e-6)


def test_a_fully_trained_model_is_copied_in_the_format_wanted(tmp_path: Path) -> None:
    module = trained(save_decoder(tmp_path / "source"), tmp_path / "model")
    result = export(tmp_path / "model", tmp_path / "merged")
    assert (result.base, result.dtype, result.differences["none"].greatest) == ("none", "float32", 0.0)
    assert torch.equal(logits(plain(tmp_path / "merged")), logits(module))
    half = export(tmp_path / "model", tmp_path / "half", dtype="bfloat16")
    assert half.dtype == "bfloat16"
    assert half.differences["none"].greatest > 0


def test_an_embedding_that_was_trained_away_from_a_tied_output_is_untied(tmp_path: Path) -> None:
    source = save_decoder(tmp_path / "source", tied=True)
    options = {**LORA, "modules_to_save": ["embed_tokens"]}
    module = trained(source, tmp_path / "model", peft_kwargs=options)
    export(tmp_path / "model", tmp_path / "merged")
    torch.testing.assert_close(logits(plain(tmp_path / "merged")), logits(module), rtol=0, atol=1e-5)
    assert json.loads((tmp_path / "merged" / "config.json").read_text())["tie_word_embeddings"] is False
    assert "lm_head.weight" in keys_of(tmp_path / "merged")


def test_an_index_of_shards_names_what_is_in_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(merge, "SHARD_SIZE", "20KB")
    trained(save_decoder(tmp_path / "source"), tmp_path / "model", peft_kwargs=LORA)
    export(tmp_path / "model", tmp_path / "merged")
    index = json.loads((tmp_path / "merged" / "model.safetensors.index.json").read_text())["weight_map"]
    assert len(set(index.values())) > 1
    assert sorted(index) == keys_of(tmp_path / "merged")


def test_only_an_earlier_export_is_replaced(tmp_path: Path) -> None:
    trained(save_decoder(tmp_path / "source"), tmp_path / "model", peft_kwargs=LORA)
    (tmp_path / ".merged.incoming").mkdir()  # of a start that was killed
    export(tmp_path / "model", tmp_path / "merged")
    export(tmp_path / "model", tmp_path / "merged", dtype="bfloat16")
    assert json.loads((tmp_path / "merged" / RECORD).read_text())["dtype"] == "bfloat16"
    before = sorted(file.name for file in (tmp_path / "source").iterdir())
    with pytest.raises(ConfigError, match=r"(?s)source is there already, and is no export.*name another place"):
        export(tmp_path / "model", tmp_path / "source")
    assert sorted(file.name for file in (tmp_path / "source").iterdir()) == before
    assert sorted(path.name for path in tmp_path.iterdir()) == ["merged", "model", "source"]


def test_an_adapter_whose_base_is_gone_is_refused(tmp_path: Path) -> None:
    trained(save_decoder(tmp_path / "source"), tmp_path / "model", peft_kwargs=LORA)
    shutil.rmtree(tmp_path / "source")
    with pytest.raises(ConfigError, match="source is not there"):
        export(tmp_path / "model", tmp_path / "merged")
    assert not (tmp_path / "merged").exists()


@pytest.mark.parametrize("method", [{"use_dora": True}, {"init_lora_weights": "pissa"}, {"use_rslora": True}])
def test_other_methods_merge_too(tmp_path: Path, method: dict[str, Any]) -> None:
    module = trained(save_decoder(tmp_path / "source"), tmp_path / "model", peft_kwargs={**LORA, **method})
    export(tmp_path / "model", tmp_path / "merged")
    torch.testing.assert_close(logits(plain(tmp_path / "merged")), logits(module), rtol=0, atol=1e-5)
