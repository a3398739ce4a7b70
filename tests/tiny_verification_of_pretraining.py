"""A verification of a tiny pretraining in the test's own process, a check at a time: what is patched is checked."""

from __future__ import annotations

from pathlib import Path

from supertrainer.config.command import parse_command
from supertrainer.config.front_door import compose_command
from supertrainer.config.groups import read_groups
from supertrainer.config.spine import Config
from supertrainer.config.validate import validate
from supertrainer.operations.verification.pretraining.workbench import PretrainWorkbench
from tiny_pretraining import write_corpus

TINY_MODEL = [
    "model.num_layers=2",
    "model.hidden_size=32",
    "model.num_heads=4",
    "model.num_kv_heads=2",
    "model.ffn_multiple=8",
    "model.parametrization.base.hidden_size=16",
]


def corpus_words(place: Path) -> list[str]:
    """Documents of 2 to 20 words in `place`, and a tokenizer that has each as a token."""
    corpus = write_corpus(place / "corpus", texts=300)
    return [
        "dataset=pretrain/jsonl",
        f"dataset.sources.text.path={corpus / 'texts.jsonl'}",
        f"dataset.tokenizer={corpus / 'tokenizer'}",
        "dataset.tokenizer_training=null",
        "dataset.validation.share=0.2",
        "trainer.sample_prompts=[w1]",
    ]


def pretrain_config(place: Path, *words: str, model: list[str] | None = None) -> Config:
    """A tiny pretraining, to be verified.

    Args:
        model: words for its decoder; None: a tiny one under μP.
    """
    decoder = TINY_MODEL if model is None else model
    command = parse_command(["+experiment=pretrain", "operation=verify", *decoder, *corpus_words(place), *words])
    return validate(compose_command(command, environment={}, groups=read_groups(())), environment={})


def pretrain_workbench(place: Path, *words: str, model: list[str] | None = None) -> PretrainWorkbench:
    """A workbench in `place`."""
    return PretrainWorkbench(pretrain_config(place, *words, model=model), directory=place / "aside")
