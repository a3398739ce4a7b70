"""How much memory a process of a pretraining needs, by parts, from the decoder's sizes."""

from __future__ import annotations

from supertrainer.core.placement import Placement
from supertrainer.models.decoder_schema import DecoderShape
from supertrainer.models.vocabulary_loss import logits_at_once
from supertrainer.trainers.memory import MemoryEstimate, overhead_bytes
from supertrainer.trainers.pretrain_schema import PretrainTrainerConfig, micro_batch_rows
from supertrainer.trainers.pretraining.strategy import choose_strategy


def estimate_memory(
    shape: DecoderShape, trainer: PretrainTrainerConfig, *, there: Placement, gpu_bytes: int | None
) -> MemoryEstimate:
    """The memory of one process, under the strategy that it will have.

    Args:
        shape: of the decoder.
        trainer: recipe and batches.
        there: where it would run.
        gpu_bytes: memory of a GPU there; None where there are none.
    """
    micro = micro_batch_rows(trainer, processes=there.processes)
    tokens = micro * trainer.sequence_length
    half = trainer.precision == "bfloat16" or (trainer.precision == "auto" and there.has_gpu)
    _, divided = choose_strategy(
        trainer.parallel, processes=there.processes, parameters=shape.parameters(), gpu_bytes=gpu_bytes
    )
    weights = 4 * shape.parameters()
    parts = {
        "weights": weights // divided,
        "gradients": weights // divided,
        "optimizer": 2 * weights // divided,
        "activations": (2 if half else 4) * tokens * _kept_numbers(shape, trainer.activation_checkpointing),
        # Logits of one piece of the loss and their gradients; the gradient of the output layer.
        "loss": 2 * 4 * logits_at_once(on_cpu=not there.has_gpu) + 4 * shape.vocab_size * shape.hidden_size,
    }
    if divided > 1:  # the block that is computed has its weights whole, and the next ones are fetched
        parts["gathered weights"] = (2 if half else 4) * (
            2 * shape.block_parameters() + 2 * shape.vocab_size * shape.hidden_size
        )
    if trainer.async_save:
        parts["copy that is saved"] = 0 if there.has_gpu else 3 * weights // divided
    peak = sum(parts.values())
    overhead = overhead_bytes(peak) if there.has_gpu else None
    device = "gpu" if there.has_gpu else "cpu"
    return MemoryEstimate(
        device, there.processes, micro, trainer.sequence_length, parts, peak, at="training", overhead=overhead
    )


def _kept_numbers(shape: DecoderShape, checkpointing: str) -> int:
    """Numbers that are kept of each token for the backward pass, over all blocks."""
    width, ffn = shape.hidden_size, shape.ffn_size
    queries, keys = shape.num_heads * shape.head_dim, shape.num_kv_heads * shape.head_dim
    products = 2 * queries + 2 * keys + 2 * ffn + 2 * width  # results of matrices and of attention
    block = 4 * width + 3 * queries + 2 * keys + 4 * ffn
    if checkpointing == "full":
        return shape.num_layers * width + block
    if checkpointing == "selective":
        return shape.num_layers * (width + products) + block
    return shape.num_layers * block
