"""Secrets don't get into configs or messages."""

from __future__ import annotations

import pytest

from supertrainer.config.secrets import redact, reveal, secret_problems
from supertrainer.core.errors import ConfigError

TOKEN = "hf_" + "abcdefghijklmnopqrst"


@pytest.mark.parametrize(
    ("tree", "path"),
    [
        ({"a": {"note": TOKEN}}, "a.note"),
        ({"hub_token": "anything"}, "hub_token"),
        ({"tracker": {"api_key": "x"}}, "tracker.api_key"),
        ({"url": "https://me:pass@example.org/x"}, "url"),
        ({"a": ["sk-" + "a" * 24]}, "a[0]"),
        ({"a": "${oc.env:HF_TOKEN}"}, "a"),
        ({"a": "my-secret-value-1"}, "a"),
    ],
)
def test_a_secret_is_refused_without_showing_it(tree: dict[str, object], path: str) -> None:
    [problem] = secret_problems(tree, environment={"MY_SECRET": "my-secret-value-1"})
    assert problem.what == f"{path}: holds a secret (not shown)."
    assert "${secret:" in problem.fix
    assert TOKEN not in str(problem)
    assert "my-secret-value-1" not in str(problem)


@pytest.mark.parametrize(
    "tree",
    [
        {"hub_token": "${secret:HF_TOKEN}"},
        {"eos_token": "</s>", "pad_token": "<pad>", "max_new_tokens": 5, "num_input_tokens_seen": "non_padding"},
        {"hub_token": None},
        {"source": "org/token-classifier", "url": "https://example.org"},
        {"path": "${oc.env:HOME}/x"},
    ],
)
def test_what_is_no_secret_passes(tree: dict[str, object]) -> None:
    assert list(secret_problems(tree, environment={"TOKENIZERS_PARALLELISM": "false"})) == []


def test_redact_hides_values_patterns_and_assignments() -> None:
    text = f"lr=1 {TOKEN} https://u:p@h/ api_key=abc trainer.hub_token=zzz value-of-variable"
    hidden = redact(text, environment={"SOME_API_KEY": "value-of-variable"})
    assert hidden == "lr=1 *** https://***@h/ api_key=*** trainer.hub_token=*** ***"


def test_a_reference_is_revealed_when_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MY_VARIABLE", "value")
    monkeypatch.delenv("MY_MISSING", raising=False)
    assert reveal("${secret:MY_VARIABLE}") == "value"
    assert reveal("plain") == "plain"
    with pytest.raises(ConfigError, match="MY_MISSING is not set"):
        reveal("${secret:MY_MISSING}")
