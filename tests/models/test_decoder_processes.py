"""Two processes that share a decoder's weights start, step and save as one process does."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

import decoder_processes
from supertrainer.export.dcp import read_dcp
from supertrainer.models.mup import parameter_groups
from tiny_mup import VOCAB, decoder_model, mup, started
from tiny_training import launch

KEYS: dict[str, dict[str, Any]] = {
    "tied": {"tie_embeddings": True, "qk_norm": True, "parametrization": mup(16, output_multiplier=2.0)},
    "untied": {"num_layers": 1, "parametrization": mup(16, depth_alpha=1.0, base={"num_layers": 2})},
}


@pytest.fixture(scope="module")
def together(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What two processes did: 101 tokens, so that the second holds fewer rows than the first."""
    folder = tmp_path_factory.mktemp("two-processes")
    for name in KEYS:
        (folder / name).mkdir()
    specs = [{"folder": str(folder / name), "keys": keys} for name, keys in KEYS.items()]
    launch(2, specs, folder, script=decoder_processes.__file__)
    return folder


@pytest.mark.parametrize("name", KEYS)
def test_the_start_is_that_of_one_process_to_the_bit(together: Path, name: str) -> None:
    alone = started(decoder_model(**KEYS[name]), seed=3)
    start = load_file(together / name / "start.safetensors")
    assert start.keys() == dict(alone.named_parameters()).keys()
    assert all(torch.equal(start[key], parameter) for key, parameter in alone.named_parameters())


@pytest.mark.parametrize("name", KEYS)
def test_a_step_is_that_of_one_process_and_moves_every_row(together: Path, name: str) -> None:
    model = decoder_model(**KEYS[name])
    alone = started(model, seed=3)
    groups = parameter_groups(alone, model.table(VOCAB), **decoder_processes.ADAMW)
    decoder_processes.one_step(alone, groups, place=0, places=1)
    start, after = (load_file(together / name / f"{file}.safetensors") for file in ("start", "after"))
    for key, parameter in alone.named_parameters():
        moved = (parameter - start[key]).norm()
        # A first step of AdamW is as long for a gradient of nothing but rounding as for any other.
        assert (after[key] - parameter).norm() < 1e-3 * moved, key
        rows = (after[key] - start[key]).flatten(1) if parameter.ndim > 1 else (after[key] - start[key])[:, None]
        assert (rows != 0).any(1).all(), key


@pytest.mark.parametrize("name", KEYS)
def test_their_checkpoint_is_read_whole_by_one(together: Path, name: str) -> None:
    after, found = load_file(together / name / "after.safetensors"), read_dcp(together / name / "step")
    assert found.keys() == after.keys()
    assert all(torch.equal(found[key], after[key]) for key in after)
