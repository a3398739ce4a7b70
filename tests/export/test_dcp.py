"""Distributed checkpoints become plain directories, and none of their files runs code."""

from __future__ import annotations

import copyreg
import json
import os
import pickle
from pathlib import Path, PosixPath
from typing import Any

import pytest
import torch
from torch.distributed.checkpoint import FileSystemReader
from torch.distributed.checkpoint.metadata import _MEM_FORMAT_ENCODING
from transformers import AutoModelForCausalLM, AutoTokenizer

from supertrainer.core.errors import CheckpointError, ConfigError
from supertrainer.export.dcp import read_dcp, write_dcp, write_hf
from supertrainer.models.distributed_checkpoint import METADATA
from tiny_decoders import decoder_tokenizer
from tiny_mup import VOCAB, decoder_model, mup, some_tokens, started

TOKENIZER = decoder_tokenizer()


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_plain_transformers_loads_what_is_written(tmp_path: Path, dtype: str) -> None:
    model = decoder_model(parametrization=mup(16, output_multiplier=4.0), tie_embeddings=True, vocab_multiple=64)
    decoder, tokens = started(model), some_tokens()
    for _ in range(2):  # the second in the place of the first
        write_hf(
            tmp_path / "out",
            model=model,
            vocab_size=VOCAB,
            state=decoder.state_dict(),
            tokenizer=TOKENIZER,
            dtype=dtype,
        )
    loaded, info = AutoModelForCausalLM.from_pretrained(tmp_path / "out", output_loading_info=True)
    assert not any(info[key] for key in ("missing_keys", "unexpected_keys", "mismatched_keys"))
    assert str(loaded.dtype) == f"torch.{dtype}"
    found, wanted = loaded(tokens).logits, decoder(tokens)
    if dtype == "float32":
        assert torch.equal(found, wanted)
    else:
        assert (found - wanted).abs().max() < 0.05 * wanted.abs().max()
    said = json.loads((tmp_path / "out" / "config.json").read_text())
    assert said["rope_theta"] == said["rope_parameters"]["rope_theta"] == 10000.0
    assert (said["architectures"], said["vocab_size"]) == (["LlamaForCausalLM"], 128)
    assert (loaded.generation_config.bos_token_id, loaded.generation_config.eos_token_id) == (1, 2)
    assert AutoTokenizer.from_pretrained(tmp_path / "out")("w3 w4").input_ids == TOKENIZER("w3 w4").input_ids
    assert [file.name for file in tmp_path.iterdir()] == ["out"]


def test_weights_of_another_config_are_refused(tmp_path: Path) -> None:
    state = started(decoder_model(num_layers=1)).state_dict()
    with pytest.raises(ConfigError, match="9 weights aren't those of the model"):
        write_hf(tmp_path / "out", model=decoder_model(), vocab_size=VOCAB, state=state, tokenizer=TOKENIZER)
    assert not list(tmp_path.iterdir())


def test_a_distributed_checkpoint_is_read_whole(tmp_path: Path) -> None:
    state = started(decoder_model()).state_dict()
    write_dcp(tmp_path, state=state)
    found = read_dcp(tmp_path)
    assert found.keys() == state.keys()
    assert all(torch.equal(found[name], state[name]) for name in state)


class Runs:
    """Unpickled, it runs a command."""

    def __init__(self, command: str) -> None:
        self.command = command

    def __reduce__(self) -> tuple[Any, ...]:
        return os.system, (self.command,)


def test_metadata_that_would_run_code_is_refused(tmp_path: Path) -> None:
    write_dcp(tmp_path, state={"norm.weight": torch.ones(2)})
    mark = tmp_path / "ran"
    (tmp_path / METADATA).write_bytes(pickle.dumps(Runs(f"touch {mark}")))
    with pytest.raises(CheckpointError, match=r"names posix\.system, which is no part of a checkpoint"):
        read_dcp(tmp_path)
    assert not mark.exists()


class MembersByName(pickle.Pickler):
    """Pickles members of enumerations as Python before 3.11.4 does, or an attribute of anything else as one."""

    dispatch_table = copyreg.dispatch_table | {
        _MEM_FORMAT_ENCODING: lambda member: (getattr, (_MEM_FORMAT_ENCODING, member.name)),
        Runs: lambda it: (getattr, (PosixPath, "unlink")),
    }


def test_metadata_of_an_earlier_python_is_read(tmp_path: Path) -> None:
    write_dcp(tmp_path, state={"norm.weight": torch.ones(2)})
    metadata = FileSystemReader(tmp_path).read_metadata()
    with (tmp_path / METADATA).open("wb") as file:
        MembersByName(file).dump(metadata)
    assert b"getattr" in (tmp_path / METADATA).read_bytes()
    assert read_dcp(tmp_path)["norm.weight"].tolist() == [1, 1]
    with (tmp_path / METADATA).open("wb") as file:
        MembersByName(file).dump(Runs(""))
    with pytest.raises(CheckpointError, match="names 'unlink' of "):
        read_dcp(tmp_path)


def test_metadata_that_points_outside_is_refused(tmp_path: Path) -> None:
    write_dcp(tmp_path, state={"norm.weight": torch.ones(2)})
    metadata = FileSystemReader(tmp_path).read_metadata()
    for stored in metadata.storage_data.values():
        stored.relative_path = "../elsewhere.distcp"
    (tmp_path / METADATA).write_bytes(pickle.dumps(metadata))
    with pytest.raises(CheckpointError, match=r"it names \.\./elsewhere\.distcp, outside its directory"):
        read_dcp(tmp_path)


@pytest.mark.parametrize("content", [None, b"", b"not a pickle", pickle.dumps({"a": 1})])
def test_broken_metadata_is_told(tmp_path: Path, content: bytes | None) -> None:
    if content is not None:
        (tmp_path / METADATA).write_bytes(content)
    with pytest.raises(CheckpointError, match=r"\.metadata can't be read"):
        read_dcp(tmp_path)
