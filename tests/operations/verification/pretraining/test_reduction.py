"""What is verified: the config itself in a few short steps, and a small decoder of its kind for a large one."""

from __future__ import annotations

from pathlib import Path

import pytest

from supertrainer.operations.verification.pretraining import table
from supertrainer.operations.verification.pretraining.parametrization import check_parametrization
from supertrainer.operations.verification.pretraining.reduction import LARGEST, is_large, reduced, small
from supertrainer.operations.verification.pretraining.splitting import check_micro_batches
from tiny_mup import decoder_config, mup
from tiny_verification_of_pretraining import pretrain_config, pretrain_workbench

RECIPES = ["35m", "125m", "350m", "1b", "3b", "8b", "13b", "70b"]


@pytest.mark.parametrize("recipe", RECIPES)
def test_a_small_decoder_stands_for_a_recipe(recipe: str, tmp_path: Path) -> None:
    config = pretrain_config(tmp_path, "trainer.sequence_length=1024", model=[f"model=pretrain/{recipe}"])
    own, found = config.model, reduced(config).model
    assert is_large(own)
    assert (found.num_layers, found.hidden_size) == (2, 128)
    shapes = [model.shape(vocab_size=1) for model in (own, found)]
    assert len({shape.num_heads // shape.num_kv_heads for shape in shapes}) == 1
    assert len({(model.tie_embeddings, model.qk_norm, model.rope_theta) for model in (own, found)}) == 1
    base = found.base_shape(vocab_size=1)
    assert base is not None
    layers = 2 if recipe == "35m" else 1  # that one is as deep as its base
    assert (base.hidden_size, base.num_layers, found.parametrization.depth_alpha) == (64, layers, 1.0)


@pytest.mark.parametrize("heads", [1, 2, 3, 5, 6, 7, 12, 24, 48, 64, 128])
@pytest.mark.parametrize("keys", [1, 3])
def test_any_number_of_heads_has_a_small_decoder(heads: int, keys: int) -> None:
    """The schema refuses sizes that don't go together."""
    own = decoder_config(
        num_layers=3,
        hidden_size=heads * keys * 16,
        num_heads=heads * keys,
        num_kv_heads=keys,
        parametrization=mup(heads * keys * 8, base={"num_heads": heads * keys, "num_kv_heads": keys}),
    )
    found = small(own)
    shape = found.shape(vocab_size=1)
    assert shape.hidden_size <= 128
    assert shape.parameters(embeddings=False) < LARGEST
    assert shape.num_heads // shape.num_kv_heads == min(heads, 32)


def test_a_decoder_that_is_not_large_stays_as_it_is(tmp_path: Path) -> None:
    config = pretrain_config(tmp_path)
    assert reduced(config).model == config.model


def test_the_largest_recipe_holds_and_the_table_says_on_what(tmp_path: Path) -> None:
    words = ["trainer.sequence_length=4096", "trainer.parallel.replicas=4", "trainer.compile=true"]
    bench = pretrain_workbench(tmp_path, *words, model=["model=pretrain/70b"])
    rows = [row for check in (check_micro_batches, check_parametrization) for row in check(bench)]
    assert {row.verdict for row in rows} == {"holds"}
    assert "width 128 to 64" in " ".join(row.check for row in rows)
    said = " ".join(table.setting(bench))
    assert "on a small decoder of its kind, 2 layers of width 128, for one of 80 layers of width 8,192" in said
    assert table.facts(bench)["model"] == "a decoder of 80 layers of width 8192"


def test_what_cannot_be_trained_is_refused_before_anything_is_compared(tmp_path: Path) -> None:
    (tmp_path / "empty.jsonl").write_text("")
    with pytest.raises(ValueError, match="empty"):
        list(table.checks(pretrain_workbench(tmp_path, f"dataset.sources.text.path={tmp_path / 'empty.jsonl'}")))
