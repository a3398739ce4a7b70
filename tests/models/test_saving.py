"""A trained model through a directory and back."""

from __future__ import annotations

import errno
import json
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoModelForSequenceClassification, AutoTokenizer

from supertrainer.core.errors import ConfigError
from supertrainer.models import saving
from supertrainer.models.bert import BertModel
from supertrainer.models.saving import load_trained, save_trained
from supertrainer.models.schema import BertModelConfig, ModelKwargs
from supertrainer.models.tokenizers import save_tokenizer
from tiny_models import save_tiny, tiny_tokenizer

LABELS = ("bad", "fair", "good")
INPUTS = {
    "input_ids": torch.tensor([[2, 9, 30, 3], [2, 7, 3, 0]]),
    "attention_mask": torch.tensor([[1, 1, 1, 1], [1, 1, 1, 0]]),
}


def built(source: Path, **keys: Any) -> Any:
    model = BertModel(BertModelConfig(_target_="supertrainer.models.bert.BertModel", source=str(source)))
    return model.build(label_names=LABELS, seed=1, **keys).eval()


def logits(model: Any) -> torch.Tensor:
    with torch.no_grad():
        return model(**INPUTS).logits


@pytest.mark.parametrize("model_type", ["bert", "roberta", "distilbert", "modernbert"])
def test_reloaded_equals_trained_bit_for_bit(tmp_path: Path, model_type: str) -> None:
    model = built(save_tiny(tmp_path / "source", model_type))
    save_trained(model, tiny_tokenizer(), tmp_path / "model")
    again = load_trained(tmp_path / "model")
    assert torch.equal(logits(again.model), logits(model))
    assert again.label_names == LABELS
    plain = AutoModelForSequenceClassification.from_pretrained(tmp_path / "model").eval()
    assert torch.equal(logits(plain), logits(model))
    assert plain.config.id2label == {0: "bad", 1: "fair", 2: "good"}
    assert sorted(file.name for file in (tmp_path / "model").iterdir()) == [
        "config.json",
        "model.safetensors",
        "tokenizer.json",
        "tokenizer_config.json",
    ]


def test_the_dtype_is_kept(tmp_path: Path) -> None:
    half = ModelKwargs(dtype="bfloat16")
    save_trained(built(save_tiny(tmp_path / "source"), model_kwargs=half), tiny_tokenizer(), tmp_path / "model")
    assert json.loads((tmp_path / "model" / "config.json").read_text())["dtype"] == "bfloat16"
    assert load_trained(tmp_path / "model", model_kwargs=half).model.dtype == torch.bfloat16


def test_a_tokenizer_is_saved_without_its_last_call_and_with_its_side(tmp_path: Path) -> None:
    tokenizer = tiny_tokenizer()
    tokenizer.padding_side = "left"
    tokenizer(["w1 w2 w3", "w1"], padding="max_length", truncation=True, max_length=3)
    save_tokenizer(tokenizer, tmp_path)
    stored = json.loads((tmp_path / "tokenizer.json").read_text())
    assert (stored["truncation"], stored["padding"]) == (None, None)
    assert "max_length" not in json.loads((tmp_path / "tokenizer_config.json").read_text())
    again = AutoTokenizer.from_pretrained(tmp_path)
    assert again.padding_side == "left"
    assert len(again("w1 w2 w3 w4 w5")["input_ids"]) == 7


def test_a_failed_save_leaves_the_older_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = built(save_tiny(tmp_path / "source"))
    save_trained(model, tiny_tokenizer(), tmp_path / "model")
    before = {file.name: file.read_bytes() for file in (tmp_path / "model").iterdir()}

    def full(reader: Any, directory: Path) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(saving, "save_reader", full)
    with pytest.raises(OSError, match="No space left"):
        save_trained(model, tiny_tokenizer(), tmp_path / "model")
    assert {file.name: file.read_bytes() for file in (tmp_path / "model").iterdir()} == before
    assert sorted(path.name for path in tmp_path.iterdir()) == ["model", "source"]


def test_a_second_save_replaces_the_first(tmp_path: Path) -> None:
    source = save_tiny(tmp_path / "source")
    save_trained(built(source), tiny_tokenizer(), tmp_path / "model")
    other = built(source)
    with torch.no_grad():
        other.classifier.bias += 1
    save_trained(other, tiny_tokenizer(), tmp_path / "model")
    assert torch.equal(logits(load_trained(tmp_path / "model").model), logits(other))


def test_an_encoder_without_a_head_is_no_classifier(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"(?s)no weights for classifier\.bias, classifier\.weight.*answer at random"):
        load_trained(save_tiny(tmp_path))
