"""Where a model's config says it comes from."""

from __future__ import annotations

import re

import pytest
from pydantic import ValidationError

from supertrainer.models.schema import BertModelConfig, ModelKwargs

TARGET = "supertrainer.models.bert.BertModel"


def test_a_source_is_enough() -> None:
    config = BertModelConfig(_target_=TARGET, source="google-bert/bert-base-uncased")
    assert (config.task, config.tokenizer, config.trust_remote_code) == (None, None, False)


@pytest.mark.parametrize(
    ("keys", "words"),
    [
        ({}, "neither of source and config is given. Fix: source=…"),
        ({"source": "a/b", "config": {"model_type": "bert"}, "tokenizer": "a/b"}, "both of source and config"),
        ({"config": {"hidden_size": 64}, "tokenizer": "a/b"}, "config has no model_type. Fix: config.model_type=bert"),
        ({"config": {"model_type": "bert"}}, "brings no tokenizer. Fix: tokenizer="),
        ({"config": {"model_type": "bert"}, "tokenizer": "a/b", "revision": "main"}, "belongs to a Hub source"),
        (
            {"config": {"model_type": "bert"}, "tokenizer": "a/b", "config_overrides": {"hidden_size": 8}},
            "Fix: write the keys into config",
        ),
        ({"source": "a/b", "sorce": "c"}, "Extra inputs are not permitted"),
    ],
)
def test_what_contradicts_itself_is_refused_with_a_way_out(keys: dict[str, object], words: str) -> None:
    with pytest.raises(ValidationError, match=re.escape(words)):
        BertModelConfig.model_validate({"_target_": TARGET, **keys})


def test_model_kwargs_are_a_closed_list() -> None:
    assert ModelKwargs().model_dump() == {"dtype": "auto", "attn_implementation": "auto"}
    with pytest.raises(ValidationError, match="torch_dtype"):
        ModelKwargs.model_validate({"torch_dtype": "float32"})
    with pytest.raises(ValidationError, match="'eager', 'sdpa'"):
        ModelKwargs(attn_implementation="flash")
