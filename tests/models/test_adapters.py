"""LoRA: what patterns match, what is trained whole, and the way through a directory and back."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pytest
import torch
from peft import AutoPeftModelForSequenceClassification, PeftModel
from torch import nn
from transformers import AutoConfig, AutoModelForSequenceClassification

from supertrainer.core.errors import CheckpointError, ConfigError
from supertrainer.models.adapters import adapter_table
from supertrainer.models.bert import BertModel
from supertrainer.models.saving import load_trained, save_trained
from supertrainer.models.schema import BertModelConfig
from tiny_models import save_tiny, tiny_tokenizer

LABELS = ("bad", "fair", "good")
INPUTS = {
    "input_ids": torch.tensor([[2, 9, 30, 3], [2, 7, 3, 0]]),
    "attention_mask": torch.tensor([[1, 1, 1, 1], [1, 1, 1, 0]]),
}


def bert(source: Path, **keys: Any) -> BertModel:
    return BertModel(BertModelConfig(_target_="supertrainer.models.bert.BertModel", source=str(source), **keys))


def lora(source: Path, **options: Any) -> nn.Module:
    options = {"r": 2, "target_modules": ["query", "value"], **options}
    return bert(source).build(label_names=LABELS, seed=1, peft_kwargs=options)


def trained(model: nn.Module) -> list[str]:
    return [name.removeprefix("base_model.model.") for name, p in model.named_parameters() if p.requires_grad]


def shaken(model: nn.Module) -> nn.Module:
    """Moves every trained weight, as training would: fresh LoRA adds nothing."""
    generator = torch.Generator().manual_seed(3)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.requires_grad:
                parameter += 0.3 * torch.randn(parameter.shape, generator=generator)
    return model.eval()


def logits(model: nn.Module) -> torch.Tensor:
    with torch.no_grad():
        return model(**INPUTS).logits


def test_all_linear_leaves_out_an_output_that_is_one_tensor_with_the_input(tmp_path: Path) -> None:
    """Folded into it, an adapter would change the input embedding as well."""
    model = BertModel(BertModelConfig(_target_="x", source=str(save_tiny(tmp_path)), task="masked_lm"))
    adapted = model.build(label_names=(), seed=1, peft_kwargs={"r": 2, "target_modules": "all-linear"})
    assert {row.name for row in adapter_table(adapted)} >= {"query", "dense"}
    assert "decoder" not in {row.name for row in adapter_table(adapted)}
    with pytest.raises(ConfigError, match=r"(?s)'decoder' matches cls\.predictions\.decoder\..*can't be merged"):
        model.build(label_names=(), seed=1, peft_kwargs={"r": 2, "target_modules": ["query", "decoder"]})


@pytest.mark.parametrize(
    ("model_type", "heads"),
    [
        ("bert", ["classifier"]),
        ("roberta", ["classifier"]),
        ("distilbert", ["pre_classifier", "classifier"]),
        ("modernbert", ["head", "classifier"]),
    ],
)
def test_all_linear_leaves_the_head_out_and_the_head_is_trained(
    tmp_path: Path, model_type: str, heads: list[str]
) -> None:
    model = lora(save_tiny(tmp_path, model_type), target_modules="all-linear")
    whole = {name.split(".modules_to_save")[0] for name in trained(model) if "lora_" not in name}
    assert {name.split(".")[0] for name in whole} == set(heads)
    assert not [name for name in trained(model) if "lora_" in name and name.split(".")[0] in heads]
    assert all(name in whole or any(name.startswith(f"{head}.") for head in heads) for name in whole)
    body = AutoModelForSequenceClassification.from_config(AutoConfig.from_pretrained(tmp_path)).base_model
    linear = [module for module in body.modules() if isinstance(module, nn.Linear)]
    assert sum("lora_B" in name for name in trained(model)) == len(linear)


def test_a_newly_initialised_part_of_the_body_is_trained_and_saved(tmp_path: Path) -> None:
    source = save_tiny(tmp_path / "source")
    model = AutoModelForSequenceClassification.from_pretrained(source)
    kept = {name: tensor for name, tensor in model.state_dict().items() if "pooler" not in name}
    model.save_pretrained(source, state_dict=kept)
    adapted = shaken(lora(source))
    assert "bert.pooler.dense.modules_to_save.default.weight" in trained(adapted)
    save_trained(adapted, tiny_tokenizer(), tmp_path / "model", base=bert(source).base_reference())
    assert torch.equal(logits(load_trained(tmp_path / "model").model), logits(adapted))


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"target_modules": ["query", "vlaue"]}, r"target_modules: 'vlaue' matches nothing.*did you mean value\?"),
        ({"target_modules": ["query", "classifier"]}, "classifier is trained whole.*leave 'classifier' out"),
        ({"target_modules": r"bert\.encoder\.layer\.9\..*"}, "matches nothing"),
        ({"rank_pattern": {"key": 4}}, "rank_pattern: 'key' matches none of the 4 adapted modules"),
        ({"alpha_pattern": {"quer": 4}}, r"alpha_pattern: 'quer'.*did you mean query\?"),
        ({"modules_to_save": ["poler"]}, r"modules_to_save: 'poler' is no module.*did you mean pooler\?"),
        ({"r": 0}, "peft_kwargs can't be applied.*`r` should be a positive integer"),
    ],
)
def test_a_pattern_that_matches_nothing_is_an_error(tmp_path: Path, options: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError, match=f"(?s){words}"):
        lora(save_tiny(tmp_path), **options)


def test_all_wrong_patterns_are_told_at_once(tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        lora(save_tiny(tmp_path), target_modules=["qery", "vlaue"], modules_to_save=["poler"])
    assert len(caught.value.problems) == 3


def test_the_table_counts_what_is_adapted(tmp_path: Path) -> None:
    rows = {(row.tower, row.name): (row.count, row.parameters) for row in adapter_table(lora(save_tiny(tmp_path)))}
    assert rows == {
        ("bert", "query"): (2, 256),
        ("bert", "value"): (2, 256),
        ("classifier", "classifier (whole)"): (1, 99),
    }


def test_a_fresh_adapter_changes_nothing(tmp_path: Path) -> None:
    source = save_tiny(tmp_path)
    full = bert(source).build(label_names=LABELS, seed=1)
    assert torch.equal(logits(lora(source)), logits(full))


@pytest.mark.parametrize(
    "options", [{}, {"use_dora": True}, {"use_rslora": True}, {"modules_to_save": ["word_embeddings"]}]
)
@pytest.mark.parametrize("model_type", ["bert", "distilbert"])
def test_reloaded_equals_trained(tmp_path: Path, options: dict[str, Any], model_type: str) -> None:
    source = save_tiny(tmp_path / "source", model_type)
    targets = ["q_lin", "v_lin"] if model_type == "distilbert" else ["query", "value"]
    model = shaken(lora(source, target_modules=targets, **options))
    save_trained(model, tiny_tokenizer(), tmp_path / "model", base=bert(source).base_reference())
    assert torch.equal(logits(load_trained(tmp_path / "model").model), logits(model))


# PEFT 0.21 reads a name that transformers 5.24 has renamed
@pytest.mark.filterwarnings("ignore:`is_gradient_checkpointing` is deprecated:FutureWarning")
def test_plain_peft_reads_it_too(tmp_path: Path) -> None:
    source = save_tiny(tmp_path / "source")
    model = shaken(lora(source))
    save_trained(model, tiny_tokenizer(), tmp_path / "model", base=bert(source).base_reference())
    by_name = AutoPeftModelForSequenceClassification.from_pretrained(tmp_path / "model", num_labels=3)
    config = AutoConfig.from_pretrained(tmp_path / "model")
    base = AutoModelForSequenceClassification.from_pretrained(source, config=config)
    by_hand = PeftModel.from_pretrained(base, tmp_path / "model")
    assert torch.equal(logits(by_name.eval()), logits(model))
    assert torch.equal(logits(by_hand.eval()), logits(model))
    assert by_hand.config.id2label == {0: "bad", 1: "fair", 2: "good"}
    assert sorted(file.name for file in (tmp_path / "model").iterdir()) == [
        "adapter_config.json",
        "adapter_model.safetensors",
        "base.json",
        "config.json",
        "tokenizer.json",
        "tokenizer_config.json",
    ]


def test_grown_embeddings_come_back(tmp_path: Path) -> None:
    source = save_tiny(tmp_path / "source")
    tokenizer = tiny_tokenizer()
    tokenizer.add_tokens(["<ticker>", "<url>"])
    tokenizer.save_pretrained(source)
    model = shaken(lora(source))
    assert "bert.embeddings.word_embeddings.modules_to_save.default.weight" in trained(model)
    save_trained(model, bert(source).tokenizer(), tmp_path / "model", base=bert(source).base_reference())
    again = load_trained(tmp_path / "model")
    assert again.tokenizer.convert_tokens_to_ids("<url>") == 101
    inputs = {"input_ids": torch.tensor([[2, 100, 101, 3]])}
    with torch.no_grad():
        assert torch.equal(again.model(**inputs).logits, model(**inputs).logits)


def test_an_adapter_on_weights_that_no_source_holds_brings_them_along(tmp_path: Path) -> None:
    tiny_tokenizer().save_pretrained(tmp_path / "tokenizer")
    config = {"model_type": "bert", "hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2}
    untrained = BertModel(BertModelConfig(_target_="x", config=config, tokenizer=str(tmp_path / "tokenizer")))
    assert untrained.base_reference() is None
    model = shaken(untrained.build(label_names=LABELS, seed=1, peft_kwargs={"r": 2, "target_modules": ["query"]}))
    save_trained(model, tiny_tokenizer(), tmp_path / "model", base=None)
    assert torch.equal(logits(load_trained(tmp_path / "model").model), logits(model))


def test_training_goes_on_from_an_adapter_run(tmp_path: Path) -> None:
    source = save_tiny(tmp_path / "source")
    first = shaken(lora(source))
    run = tmp_path / "runs" / "first"
    save_trained(first, tiny_tokenizer(), run / "model", base=bert(source).base_reference())
    again = bert(run).build(label_names=("good", "bad", "fair"), seed=9).eval()
    # the adapter is folded into its base: equal up to the rounding of one product, 1e-6 of logits near 1
    torch.testing.assert_close(logits(again), logits(first)[:, [2, 0, 1]], rtol=0, atol=1e-6)
    second = shaken(bert(run).build(label_names=LABELS, seed=9, peft_kwargs={"r": 2, "target_modules": ["key"]}))
    save_trained(second, tiny_tokenizer(), tmp_path / "second", base=bert(run).base_reference())
    assert torch.equal(logits(load_trained(tmp_path / "second").model), logits(second))


def test_an_adapter_without_its_head_is_refused(tmp_path: Path) -> None:
    from safetensors.torch import load_file, save_file

    source = save_tiny(tmp_path / "source")
    save_trained(shaken(lora(source)), tiny_tokenizer(), tmp_path / "model", base=bert(source).base_reference())
    weights = tmp_path / "model" / "adapter_model.safetensors"
    save_file({name: value for name, value in load_file(weights).items() if "lora_" in name}, weights)
    with pytest.raises(CheckpointError, match="lacks weights that its config names"):
        load_trained(tmp_path / "model")


def test_the_table_is_logged(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO):
        lora(save_tiny(tmp_path))
    assert "adapter: bert query × 2, 256 parameters" in caplog.text
