"""The decoder as transformers computes it: names, configs, folded multipliers, and back."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor
from transformers import AutoConfig, AutoModelForCausalLM, PreTrainedModel

from supertrainer.core.errors import ConfigError
from supertrainer.models.decoder import Decoder
from supertrainer.models.llama_format import from_llama, hf_names, to_llama
from supertrainer.models.pretrain import DecoderModel
from tiny_mup import VOCAB, decoder_model, mup, some_tokens, started

SCALINGS: dict[str, dict[str, Any]] = {
    "linear": {"rope_type": "linear", "factor": 4.0},
    "llama3": {
        "rope_type": "llama3", "factor": 4.0, "original_max_position_embeddings": 16, "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
    },
    "yarn": {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 16},
}  # fmt: skip
# m = 2, heads of 8 against 2, four times the base's depth
POWERS = mup(16, base={"num_layers": 1, "num_heads": 8, "num_kv_heads": 4, "head_dim": 2}, depth_alpha=1.0)
POWERS |= {"embedding_multiplier": 4.0, "output_multiplier": 0.5}
# m = 32/12, heads of 8 against 6, residual 2/3
OTHERS = mup(12, base={"num_layers": 2, "num_heads": 2, "num_kv_heads": 1, "head_dim": 6}, depth_alpha=1.0)
OTHERS |= {"embedding_multiplier": 3.0, "output_multiplier": 5.0}
GRANITE: dict[str, Any] = {"parametrization": OTHERS, "num_layers": 3}


def plain(model: DecoderModel, decoder: Decoder, form: Any = "llama") -> PreTrainedModel:
    """What transformers makes of an exported decoder."""
    config, weights = to_llama(model.shape(VOCAB), model.table(VOCAB), decoder.state_dict(), form=form)
    built = AutoModelForCausalLM.from_config(AutoConfig.for_model(**config))
    missing, strange = built.load_state_dict(weights, strict=False)
    assert not strange
    assert missing == (["lm_head.weight"] if config["tie_word_embeddings"] else [])
    return built


def logits_of(built: PreTrainedModel, tokens: Tensor) -> Tensor:
    return built(tokens, use_cache=False).logits


@pytest.mark.parametrize(
    "keys",
    [
        {},
        {"tie_embeddings": True, "rope_theta": 500000.0},
        {"qk_norm": True, "tie_embeddings": True},
        {"num_kv_heads": 1, "hidden_size": 40},
        *({"rope_scaling": scaling} for scaling in SCALINGS.values()),
    ],
)
def test_logits_are_those_of_transformers_to_the_bit(keys: dict[str, Any]) -> None:
    model = decoder_model(**keys)
    decoder, tokens = started(model), some_tokens()
    assert torch.equal(decoder(tokens), logits_of(plain(model, decoder), tokens))


@pytest.mark.parametrize("tied", [False, True])
@pytest.mark.parametrize("qk_norm", [False, True])
def test_folded_powers_of_two_change_no_bit(tied: bool, qk_norm: bool) -> None:
    model = decoder_model(parametrization=POWERS, num_layers=4, tie_embeddings=tied, qk_norm=qk_norm)
    decoder, tokens = started(model), some_tokens()
    used = model.table(VOCAB).multipliers
    assert (used.embedding, used.residual, used.output, used.attention / 8**-0.5) == (4, 1 / 4, 1 / 4, 1 / 2)
    assert torch.equal(decoder(tokens), logits_of(plain(model, decoder), tokens))


@pytest.mark.parametrize("form", ["llama", "qwen3", "granite"])
@pytest.mark.parametrize("tied", [False, True])
def test_other_factors_fold_to_rounding(form: str, tied: bool) -> None:
    model = decoder_model(**GRANITE, tie_embeddings=tied, qk_norm=form == "qwen3", rope_scaling=SCALINGS["linear"])
    decoder, tokens = started(model), some_tokens()
    built = plain(model, decoder, "granite" if form == "granite" else "llama")
    assert built.config.model_type == form
    found, wanted = logits_of(built, tokens), decoder(tokens)
    assert (found - wanted).abs().max() < 2e-6 * wanted.abs().max()


def test_gradients_are_those_of_transformers() -> None:
    model = decoder_model()
    decoder, tokens, targets = started(model), some_tokens(), some_tokens(seed=1)
    built = plain(model, decoder)
    decoder(tokens, targets=targets).nll.backward()
    F.cross_entropy(logits_of(built, tokens).flatten(0, 1), targets.flatten(), reduction="sum").backward()
    theirs, names = dict(built.named_parameters()), hf_names(model.shape(VOCAB))
    for name, parameter in decoder.named_parameters():
        wanted = theirs[names[name]].grad
        assert (parameter.grad - wanted).norm() < 1e-5 * wanted.norm(), name


def saved(directory: Path, model: DecoderModel, form: str = "llama") -> Decoder:
    """Writes an exported decoder where `source` finds it."""
    decoder = started(model)
    plain(model, decoder, form).save_pretrained(directory)
    return decoder


@pytest.mark.parametrize(
    ("keys", "form"),
    [
        ({"parametrization": OTHERS, "num_layers": 3}, "llama"),
        ({"parametrization": OTHERS, "num_layers": 3, "tie_embeddings": True, "qk_norm": True}, "llama"),
        (GRANITE, "granite"),
        ({"rope_scaling": SCALINGS["llama3"]}, "llama"),
    ],
)
def test_a_checkpoint_is_the_start_of_a_decoder(tmp_path: Path, keys: dict[str, Any], form: str) -> None:
    first = saved(tmp_path, decoder_model(**keys), form)
    model = decoder_model(**keys, source=str(tmp_path))
    again = started(model, seed=1)
    for one, other in zip(first.parameters(), again.parameters(), strict=True):
        assert torch.allclose(one, other, rtol=1e-6)
    elsewhere = {**keys, "parametrization": POWERS, "num_layers": keys.get("num_layers", 2)}
    moved = started(decoder_model(**elsewhere, source=str(tmp_path)))
    wanted = first(some_tokens())
    assert (moved(some_tokens()) - wanted).abs().max() < 2e-6 * wanted.abs().max()


def test_a_larger_vocabulary_keeps_the_start_of_its_new_rows(tmp_path: Path) -> None:
    first = saved(tmp_path, decoder_model(tie_embeddings=True))
    keys = {"tie_embeddings": True, "vocab_multiple": 64}
    own, taken = started(decoder_model(**keys)), started(decoder_model(**keys, source=str(tmp_path)))
    assert torch.equal(taken.embedding.weight[:VOCAB], first.embedding.weight)
    assert torch.equal(taken.embedding.weight[VOCAB:], own.embedding.weight[VOCAB:])


def test_sizes_that_differ_from_the_source_are_told_at_once(tmp_path: Path) -> None:
    saved(tmp_path, decoder_model())
    model = decoder_model(source=str(tmp_path), num_layers=3, rope_theta=5000.0)
    with pytest.raises(ConfigError) as caught:
        started(model)
    assert "model.num_layers=3: " in str(caught.value)
    assert "Fix: model.rope_theta=10000.0, or model.source=null." in str(caught.value)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"model_type": "gpt2"}, "is a gpt2 model."),
        ({"attention_bias": True}, "is a llama model with attention_bias=True."),
        ({"hidden_act": "gelu"}, "with hidden_act=gelu"),
    ],
)
def test_what_the_decoder_has_not_is_refused(tmp_path: Path, change: dict[str, Any], said: str) -> None:
    saved(tmp_path, decoder_model())
    file = tmp_path / "config.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), **change}))
    with pytest.raises(ConfigError, match=said):
        from_llama(tmp_path)


def test_granite_has_no_norms_on_queries() -> None:
    model = decoder_model(qk_norm=True)
    with pytest.raises(ConfigError, match="a Granite model has no norms on queries and keys"):
        plain(model, started(model), "granite")
