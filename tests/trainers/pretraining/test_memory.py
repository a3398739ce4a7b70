"""The memory of a process under the strategy that it will have, not the one that is written."""

from __future__ import annotations

from typing import Any

import pytest

from supertrainer.core.placement import Placement
from supertrainer.models.decoder_schema import DecoderShape
from supertrainer.models.pretrain import DecoderModel
from supertrainer.models.schema import DecoderModelConfig
from supertrainer.trainers.pretrain_schema import ParallelConfig
from supertrainer.trainers.pretraining.memory import estimate_memory
from supertrainer.trainers.pretraining.strategy import choose_strategy, strategy_in_words
from supertrainer.trainers.schema import PretrainTrainerConfig

GIB = 2**30
BILLION = 10**9


def config(**keys: Any) -> PretrainTrainerConfig:
    return PretrainTrainerConfig(
        _target_="x", global_batch_size=8, sequence_length=16, max_steps=6, learning_rate=1e-2, **keys
    )


def shape() -> DecoderShape:
    keys = {"num_layers": 2, "hidden_size": 64, "num_heads": 4, "num_kv_heads": 4, "max_length": 64}
    return DecoderModel(DecoderModelConfig(_target_="x", **keys)).shape(1000)


@pytest.mark.parametrize(
    ("written", "processes", "parameters", "gpu_bytes", "chosen"),
    [
        ({}, 1, BILLION, 80 * GIB, ("none", 1)),
        ({}, 8, BILLION, 80 * GIB, ("ddp", 1)),  # 16 GB are less than a third
        ({}, 8, 7 * BILLION, 80 * GIB, ("fsdp", 8)),  # 112 GB
        ({}, 8, 7 * BILLION, 400 * GIB, ("ddp", 1)),
        ({}, 8, 7 * BILLION, None, ("ddp", 1)),  # CPUs
        ({"replicas": 2}, 8, BILLION, 80 * GIB, ("fsdp", 4)),
        ({"strategy": "fsdp"}, 8, BILLION, None, ("fsdp", 8)),
        ({"strategy": "ddp"}, 8, 7 * BILLION, 80 * GIB, ("ddp", 1)),
    ],
)
def test_what_the_processes_share(
    written: dict[str, Any], processes: int, parameters: int, gpu_bytes: int | None, chosen: tuple[str, int]
) -> None:
    parallel = ParallelConfig(**written)
    assert choose_strategy(parallel, processes=processes, parameters=parameters, gpu_bytes=gpu_bytes) == chosen


def test_weights_that_auto_divides_are_counted_so() -> None:
    there, size = Placement(processes=4, has_gpu=True), shape()
    small_gpu = 3 * 16 * size.parameters() - 1  # they take just more than its third
    alone = estimate_memory(size, config(), there=there, gpu_bytes=small_gpu + 1)
    divided = estimate_memory(size, config(), there=there, gpu_bytes=small_gpu)
    halved = estimate_memory(size, config(parallel={"replicas": 2}), there=there, gpu_bytes=small_gpu + 1)
    for part in ("weights", "gradients", "optimizer"):
        assert alone.parts[part] == 4 * divided.parts[part] == 2 * halved.parts[part]
    assert alone.parts["weights"] == 4 * size.parameters()
    assert "gathered weights" in divided.parts
    assert "gathered weights" not in alone.parts


@pytest.mark.parametrize(
    ("written", "said"),
    [
        ({}, "fsdp: every weight is divided among 8 processes; by auto on a GPU of 80 GiB, assumed, ddp from 313 GiB"),
        ({"replicas": 2}, "fsdp: every weight is divided among 4 processes, in 2 groups (HSDP)"),
        ({"strategy": "ddp"}, "ddp: every process holds the whole model"),
    ],
)
def test_the_strategy_is_told(written: dict[str, Any], said: str) -> None:
    parallel = ParallelConfig(**written)
    text = strategy_in_words(parallel, processes=8, parameters=7 * BILLION, gpu_bytes=80 * GIB, assumed=True)
    assert text.startswith(said)
