"""Heads of encoders: every architecture, 4-bit weights, a masked language model that a classifier goes on from."""

from __future__ import annotations

from pathlib import Path
from typing import Any, get_args

import pytest
import torch
from transformers import AutoConfig

from supertrainer.config.tasks import EncoderTask, Task
from supertrainer.core.errors import ConfigError
from supertrainer.core.files import read_json
from supertrainer.models.adapters import add_adapter
from supertrainer.models.architecture import build_skeleton, max_positions, with_labels
from supertrainer.models.base import count_parameters
from supertrainer.models.bert import BertModel
from supertrainer.models.heads import ADAPTER_TASKS, AUTO_CLASSES, start_at_frequencies
from supertrainer.models.labels import head_modules
from supertrainer.models.quantization import is_quantized
from supertrainer.models.saving import load_trained, save_trained
from supertrainer.models.schema import BertModelConfig
from tiny_models import save_tiny, tiny_tokenizer

LORA = {"r": 2, "target_modules": "all-linear", "lora_dropout": 0.0}
FOUR_BITS = {kind: {"load_in_4bit": True, "bnb_4bit_quant_type": kind} for kind in ("nf4", "fp4")}
# The architectures behind configs/model/bert/*.yaml, at the sizes of their base models.
ARCHITECTURES: dict[str, dict[str, Any]] = {
    "bert": {"vocab_size": 30522},
    "roberta": {"vocab_size": 50265, "max_position_embeddings": 514, "pad_token_id": 1},
    "deberta-v2": {
        "vocab_size": 128100,
        "relative_attention": True,
        "position_buckets": 256,
        "pos_att_type": ["p2c", "c2p"],
    },
    "modernbert": {"vocab_size": 50368},
    "xlm-roberta": {"vocab_size": 250002, "max_position_embeddings": 514, "pad_token_id": 1},
}
TASKS: tuple[Task, ...] = get_args(EncoderTask)


# DeBERTa's module of transformers 5.17 calls what torch 2.13 has deprecated
@pytest.mark.filterwarnings("ignore:`torch.jit.script` is deprecated:DeprecationWarning")
@pytest.mark.parametrize("task", TASKS)
@pytest.mark.parametrize("model_type", ARCHITECTURES)
def test_an_architecture_takes_every_head_and_an_adapter(model_type: str, task: Task) -> None:
    """On the meta device, at its real size: classes, positions, and what LoRA sits on."""
    names = ("a",) if task == "regression" else ("a", "b", "c")
    config = with_labels(AutoConfig.for_model(model_type, **ARCHITECTURES[model_type]), names, task=task)
    model = build_skeleton(AUTO_CLASSES[task], config, attention="auto", trust_remote_code=False)
    assert count_parameters(model).total > 80_000_000
    assert max_positions(model) in (512, 8192)
    if task != "masked_lm":
        assert model.config.num_labels == len(names)
    head = [] if task == "masked_lm" else head_modules(model)
    adapted = add_adapter(model, LORA, trained_whole=head, task_type=ADAPTER_TASKS[task], base=None, seed=0)
    assert 0 < count_parameters(adapted).trainable < 5_000_000
    tied = model.get_output_embeddings()
    assert tied is None or type(tied).__module__.startswith("torch")  # no adapter on what is one with the embeddings


def built(source: Path, task: Task, **keys: Any) -> tuple[BertModel, Any]:
    model = BertModel(BertModelConfig(_target_="x", source=str(source), task=task))
    return model, model.build(label_names=("a", "b"), seed=0, **keys)


def outputs(model: Any) -> torch.Tensor:
    with torch.no_grad():
        return model.eval()(input_ids=torch.tensor([[2, 8, 9, 10, 3]])).logits


def moved(model: Any) -> Any:
    """A model whose trained weights have left their beginnings."""
    generator = torch.Generator().manual_seed(5)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.requires_grad:
                parameter += 0.1 * torch.randn(parameter.shape, generator=generator)
    return model


@pytest.mark.parametrize("kind", ["nf4", "fp4"])
def test_the_head_is_trained_in_full_on_quantized_weights(tmp_path: Path, kind: str) -> None:
    source = save_tiny(tmp_path / "source")
    _, plain = built(source, "sequence_classification", peft_kwargs=LORA)
    model, quantized = built(source, "sequence_classification", peft_kwargs=LORA, bitsandbytes_kwargs=FOUR_BITS[kind])
    base = quantized.get_base_model()
    linear = base.bert.encoder.layer[0].intermediate.dense.base_layer
    assert type(linear).__name__ == "Linear4bit"
    assert linear.compute_dtype == torch.float32
    head = base.classifier.modules_to_save["default"]
    assert (type(head).__name__, head.weight.dtype) == ("Linear", torch.float32)
    assert torch.equal(head.weight, plain.get_base_model().classifier.modules_to_save["default"].weight)
    assert count_parameters(quantized) == count_parameters(plain)
    assert model.unquantized is None


@pytest.mark.parametrize("kind", ["nf4", "fp4"])
def test_gradients_reach_every_layer_through_quantized_weights(tmp_path: Path, kind: str) -> None:
    _, model = built(
        save_tiny(tmp_path / "source"), "multi_label", peft_kwargs=LORA, bitsandbytes_kwargs=FOUR_BITS[kind]
    )
    model.train()
    model(input_ids=torch.tensor([[2, 8, 9, 10, 3]])).logits.square().sum().backward()
    found = {name: parameter.grad for name, parameter in model.named_parameters() if "lora_B" in name}
    assert len(found) == 13  # six linear layers in each of two layers, and the pooler
    assert all(gradient is not None and gradient.abs().sum() > 0 for gradient in found.values())
    assert all(p.grad is not None for name, p in model.named_parameters() if "classifier.modules_to_save" in name)


def test_an_adapter_on_quantized_weights_reads_back_and_goes_on(tmp_path: Path) -> None:
    """Reloaded bitwise; folded into its weights, rounded as they are, for a next training, within rounding."""
    source = save_tiny(tmp_path / "source")
    model, adapted = built(source, "sequence_classification", peft_kwargs=LORA, bitsandbytes_kwargs=FOUR_BITS["nf4"])
    save_trained(moved(adapted), tiny_tokenizer(), tmp_path / "run" / "model", base=model.base_reference())
    assert torch.equal(outputs(load_trained(tmp_path / "run" / "model").model), outputs(adapted))
    assert "quantization_config" not in read_json(tmp_path / "run" / "model" / "config.json")
    (tmp_path / "run" / "config.yaml").write_text("")
    _, further = built(tmp_path / "run", "sequence_classification")
    torch.testing.assert_close(outputs(further), outputs(adapted), rtol=1e-4, atol=1e-5)


def test_weights_that_no_source_holds_are_kept_beside_a_quantized_adapter(tmp_path: Path) -> None:
    source = save_tiny(tmp_path / "source")
    first, adapted = built(source, "sequence_classification", peft_kwargs=LORA)
    save_trained(moved(adapted), tiny_tokenizer(), tmp_path / "first", base=first.base_reference())
    keys = {"peft_kwargs": LORA, "bitsandbytes_kwargs": FOUR_BITS["nf4"]}
    second, again = built(tmp_path / "first", "sequence_classification", **keys)
    assert second.base_reference() is None
    save_trained(moved(again), tiny_tokenizer(), tmp_path / "second", base=None, unquantized=second.unquantized)
    assert torch.equal(outputs(load_trained(tmp_path / "second").model), outputs(again))
    assert is_quantized(again.get_base_model())


@pytest.mark.parametrize("peft_kwargs", [None, LORA])
def test_a_classifier_goes_on_from_a_masked_language_model(tmp_path: Path, peft_kwargs: dict[str, Any] | None) -> None:
    source = save_tiny(tmp_path / "source")
    model, adapted = built(source, "masked_lm", peft_kwargs=peft_kwargs)
    save_trained(moved(adapted), tiny_tokenizer(), tmp_path / "model", base=model.base_reference())
    read = load_trained(tmp_path / "model")
    assert (read.task, read.label_names) == ("masked_lm", ())
    assert torch.equal(outputs(read.model), outputs(adapted))
    _, classifier = built(tmp_path / "model", "sequence_classification")
    body = read.model if peft_kwargs is None else read.model.merge_and_unload()
    found, expected = dict(classifier.bert.named_parameters()), dict(body.bert.named_parameters())
    for name in expected:
        torch.testing.assert_close(found[name], expected[name], rtol=1e-5, atol=1e-6)
    assert not torch.equal(
        found["encoder.layer.0.attention.self.query.weight"],
        dict(built(source, "sequence_classification")[1].bert.named_parameters())[
            "encoder.layer.0.attention.self.query.weight"
        ],
    )


@pytest.mark.parametrize("model_type", ["bert", "roberta", "distilbert", "modernbert"])
def test_a_new_output_starts_with_how_common_tokens_are(tmp_path: Path, model_type: str) -> None:
    _, model = built(save_tiny(tmp_path / "source", model_type), "masked_lm")
    counts = torch.zeros(90, dtype=torch.int64)
    counts[7], counts[8] = 9, 1
    assert start_at_frequencies(model, counts)
    shares = model.get_output_embeddings().bias.detach().exp()
    assert len(shares) == 100
    assert shares[[6, 7, 8, 99]].tolist() == pytest.approx([1 / 110, 10 / 110, 2 / 110, 1 / 110], rel=1e-5)


def test_an_output_that_has_learnt_stays(tmp_path: Path) -> None:
    _, model = built(save_tiny(tmp_path / "source"), "masked_lm")
    before = moved(model).get_output_embeddings().bias.detach().clone()
    assert not start_at_frequencies(model, torch.ones(100, dtype=torch.int64))
    assert torch.equal(model.get_output_embeddings().bias, before)


def test_a_frozen_output_stays_since_no_adapter_would_hold_it(tmp_path: Path) -> None:
    _, model = built(save_tiny(tmp_path / "source"), "masked_lm", peft_kwargs=LORA)
    assert not start_at_frequencies(model, torch.ones(100, dtype=torch.int64))
    assert not model.get_output_embeddings().bias.any()


METHODS: dict[str, dict[str, Any]] = {
    "full": {},
    "lora": {"peft_kwargs": LORA},
    "qlora": {"peft_kwargs": LORA, "bitsandbytes_kwargs": FOUR_BITS["nf4"]},
}


def with_added_tokens(directory: Path) -> Path:
    """A source whose tokenizer knows two tokens more than its weights."""
    source = save_tiny(directory)
    tokenizer = tiny_tokenizer()
    tokenizer.add_tokens(["<ticker>", "<url>"])
    tokenizer.save_pretrained(source)
    return source


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("task", TASKS)
def test_added_tokens_come_back_with_every_head(tmp_path: Path, task: Task, method: str) -> None:
    """Elsewhere reading the adapter dies on an embedding of another size."""
    source = with_added_tokens(tmp_path / "source")
    if (task, method) in (("masked_lm", "lora"), ("masked_lm", "qlora")):
        with pytest.raises(ConfigError, match=r"(?s)the tokenizer has tokens.*peft_kwargs=none trains every weight"):
            built(source, task, **METHODS[method])
        return
    model, trained = built(source, task, **METHODS[method])
    save_trained(moved(trained), model.tokenizer(), tmp_path / "model", base=model.base_reference())
    read = load_trained(tmp_path / "model")
    assert read.tokenizer.convert_tokens_to_ids("<url>") == 101
    inputs = {"input_ids": torch.tensor([[2, 100, 8, 101, 3]])}
    with torch.no_grad():
        assert torch.equal(read.model(**inputs).logits, trained.eval()(**inputs).logits)
        assert not torch.equal(
            read.model(input_ids=torch.tensor([[2, 7, 8, 7, 3]])).logits, read.model(**inputs).logits
        )


@pytest.mark.parametrize("method", ["lora", "qlora"])
@pytest.mark.parametrize("task", TASKS)
def test_a_misspelt_target_among_good_ones_is_refused_for_every_head(tmp_path: Path, task: Task, method: str) -> None:
    keys = {**METHODS[method], "peft_kwargs": {**LORA, "target_modules": ["query", "vlaue"]}, "device": "meta"}
    with pytest.raises(ConfigError, match=r"(?s)'vlaue' matches nothing.*did you mean value\?"):
        built(save_tiny(tmp_path / "source"), task, **keys)
