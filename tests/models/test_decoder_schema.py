"""The config of a decoder: sizes that follow, and what is refused."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from tiny_mup import decoder_config, decoder_model, mup

LLAMA3: dict[str, Any] = {"rope_type": "llama3", "factor": 4.0, "original_max_position_embeddings": 16}


@pytest.mark.parametrize(
    ("keys", "said"),
    [
        ({"num_heads": 5}, "hidden_size=32 is no multiple of num_heads=5. Fix: num_heads=4."),
        ({"num_kv_heads": 3}, "num_heads=4 is no multiple of num_kv_heads=3. Fix: num_kv_heads=2."),
        ({"head_dim": 5}, "head_dim=5 is odd, and rotary positions turn pairs. Fix: head_dim=6."),
        ({"parametrization": {"name": "mup"}}, "name=mup has no base. Fix: base={hidden_size: 256}, or name=sp."),
        ({"parametrization": mup(16, name="sp")}, "base belongs to name=mup, and name is sp."),
        ({"parametrization": mup(16, depth_alpha=1.0)}, "depth_alpha compares with base.num_layers"),
        (
            {"parametrization": mup(16, base={"num_heads": 2, "num_kv_heads": 2})},
            "parametrization.base: 2 heads share 2 key/value heads, here 4 share 2: the ratio must not change",
        ),
        ({"num_heads": 8, "num_kv_heads": 1, "parametrization": mup(8)}, "2 heads share 1 key/value heads, here 8"),
        ({"parametrization": {"zero_head": True}, "tie_embeddings": True}, "zero_head needs a head of its own"),
        ({"rope_scaling": LLAMA3}, "rope_type=llama3 has no low_freq_factor. Fix: low_freq_factor=…."),
        ({"rope_scaling": {"rope_type": "linear", "factor": 2.0, "beta_fast": 1.0}}, "beta_fast says nothing"),
    ],
)
def test_sizes_that_do_not_fit_are_refused(keys: dict[str, Any], said: str) -> None:
    with pytest.raises(ValidationError) as caught:
        decoder_config(**keys)
    assert said in str(caught.value)


def test_what_is_left_open_follows_from_the_width() -> None:
    shape = decoder_config(hidden_size=256, ffn_multiple=64, vocab_multiple=64).shape(4097)
    assert (shape.head_dim, shape.ffn_size, shape.vocab_size) == (64, 704, 4160)


def test_the_base_keeps_heads_and_the_share_of_the_feed_forward() -> None:
    base = decoder_config(ffn_size=100, parametrization=mup(16)).base_shape(7)
    assert base is not None
    assert (base.num_heads, base.num_kv_heads, base.head_dim, base.ffn_size) == (2, 1, 8, 50)


@pytest.mark.parametrize("keys", [{}, {"tie_embeddings": True, "qk_norm": True, "head_dim": 12}])
def test_parameters_are_counted_as_they_are_made(keys: dict[str, Any]) -> None:
    model = decoder_model(**keys)
    made = sum(parameter.numel() for parameter in model.build(100, device="meta").parameters())
    assert model.shape(100).parameters() == made
