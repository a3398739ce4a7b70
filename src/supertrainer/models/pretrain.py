"""A decoder for pretraining: its shape, its table of μP, itself without weights, and its weights."""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.distributed.tensor import DTensor, distribute_tensor

from supertrainer.config.strict import thaw
from supertrainer.core.errors import ConfigError
from supertrainer.core.files import json_text, read_json
from supertrainer.core.sources import local_path
from supertrainer.models.decoder import Decoder
from supertrainer.models.decoder_schema import DecoderModelConfig, DecoderShape
from supertrainer.models.distributed_checkpoint import METADATA, read_dcp
from supertrainer.models.llama_format import as_start, folded_factors, from_llama, scaled
from supertrainer.models.mup import MupTable, Rule, forward_multipliers, mup_table, named_by_rule
from supertrainer.models.sources import find_source

MODEL_FILE = "model.json"
"""Of a step directory outside a run: the config of the model whose weights it holds."""


class DecoderModel:
    """The decoder of a config."""

    def __init__(self, config: DecoderModelConfig) -> None:
        self.config = config

    def shape(self, vocab_size: int) -> DecoderShape:
        """Its sizes.

        Args:
            vocab_size: of the tokenizer; it is rounded up.
        """
        return self.config.shape(vocab_size)

    def table(self, vocab_size: int) -> MupTable:
        """What initialisation, optimizer groups, forward pass and export take their factors from."""
        decoder, chosen = self.build(vocab_size, device="meta"), self.config.parametrization
        base = self.config.base_shape(vocab_size)
        if base is None:
            return mup_table(decoder, None, chosen, init_std=self.config.init_std)
        with torch.device("meta"):
            compared = Decoder(
                dataclasses.replace(base, num_layers=decoder.shape.num_layers), multipliers=decoder.multipliers
            )
        return mup_table(decoder, compared, chosen, init_std=self.config.init_std)

    def build(self, vocab_size: int, *, device: torch.device | str = "cpu") -> Decoder:
        """The decoder without weights: `initialize` gives them.

        Args:
            device: "meta" takes no memory: shard it, then `to_empty` and `initialize`.
        """
        shape = self.shape(vocab_size)
        chosen = self.config.parametrization
        multipliers = forward_multipliers(shape, self.config.base_shape(vocab_size), chosen)
        with torch.device("meta"):
            decoder = Decoder(shape, multipliers=multipliers)
        return decoder if torch.device(device).type == "meta" else decoder.to_empty(device=device)

    @torch.no_grad()
    def initialize(self, decoder: nn.Module, *, seed: int, vocab_size: int) -> None:
        """Gives every parameter its start, the same however the decoder is sharded.

        Each is drawn whole, from the seed and its own name, and a process keeps its part. On a GPU another generator
        draws other numbers than on a CPU. With `source`, what stands there takes their place.

        Args:
            decoder: of `build`, with storage; sharded, compiled or wrapped as it may be.
            seed: of the run.
            vocab_size: as `build` had it.

        Raises:
            ConfigError: the source's sizes aren't those of the config.
        """
        table = self.table(vocab_size)
        stored = self._stored(vocab_size, table)
        for name, parameter, rule in named_by_rule(decoder, table):
            whole = _start(name, rule, seed=seed, device=parameter.device, dtype=parameter.dtype)
            if name in stored:
                found = stored[name]
                whole[: len(found)] = found  # a vocabulary may be larger here: the rows beyond it stay as drawn
            _keep_own_part(parameter, whole)

    def _stored(self, vocab_size: int, table: MupTable) -> Mapping[str, Tensor]:
        reference = self.config.source
        if reference is None:
            return {}
        directory = local_path(reference)
        is_step = directory is not None and (directory / METADATA).is_file()
        facts, plain = _of_step(directory) if directory is not None and is_step else from_llama(find_source(reference))
        return as_start(reference, facts, plain, shape=self.shape(vocab_size), multipliers=table.multipliers)


def described_model(step_directory: Path) -> DecoderModel | None:
    """The model whose weights a step directory holds: by its own `model.json`, else by its run's config.json.

    Raises:
        ConfigError: what is written there is no decoder's config.
    """
    own, of_run = step_directory / MODEL_FILE, step_directory.resolve().parents[1] / "config.json"
    file = own if own.is_file() else of_run
    if not file.is_file():
        return None
    try:
        node = read_json(file)
        node = node if file == own else node["config"]["model"]
        return DecoderModel(DecoderModelConfig.model_validate_json(json_text({**node, "source": None})))
    except (ValueError, KeyError, TypeError) as error:
        raise ConfigError(
            f"{file} describes no decoder: {' '.join(str(error).split())[:200]}.",
            why="without its sizes and multipliers the weights beside it can't be read.",
            fix="name a step directory of a pretraining run.",
        ) from error


def _of_step(directory: Path) -> tuple[dict[str, Any], Mapping[str, Tensor]]:
    """The sizes and the plain state of a step directory of ours."""
    model, state = described_model(directory), read_dcp(directory)
    if model is None:
        raise ConfigError(
            f"model.source={directory} doesn't say what its weights are multiplied with.",
            why=f"neither {MODEL_FILE} is in it nor the config.json of its run above it.",
            fix="leave it in its run directory, or convert it with scripts/convert_dcp_to_hf.py.",
        )
    rows = len(state["embedding.weight"])
    shape = model.shape(rows)
    facts = {name: thaw(value) for name, value in vars(shape).items()}
    return facts, scaled(state, folded_factors(shape, model.table(rows).multipliers))


def _start(name: str, rule: Rule, *, seed: int, device: torch.device, dtype: torch.dtype) -> Tensor:
    whole = torch.empty(rule.shape, device=device, dtype=dtype)
    if rule.std is None:
        return whole.fill_(1)
    if rule.std == 0:
        return whole.zero_()
    digest = hashlib.sha256(f"{seed}/{name}".encode()).digest()
    generator = torch.Generator(device=device).manual_seed(int.from_bytes(digest[:8], "big") >> 1)
    return whole.normal_(0.0, rule.std, generator=generator)


def _keep_own_part(parameter: nn.Parameter, whole: Tensor) -> None:
    if isinstance(parameter, DTensor):
        # None: every process has the whole, so nothing is sent.
        part = distribute_tensor(whole, parameter.device_mesh, parameter.placements, src_data_rank=None)
        parameter.copy_(part)
    else:
        parameter.copy_(whole)
