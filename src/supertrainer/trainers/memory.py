"""How much memory a process of a training needs, by parts, before it is started."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from supertrainer.core.placement import Placement
from supertrainer.models.loading import resolve_dtype
from supertrainer.trainers.schema import LlmTrainerConfig, TrainerConfig
from supertrainer.trainers.steps import accumulation_steps
from supertrainer.trainers.tracing import trace_evaluation, trace_training

GIB = 2**30
# Of a GPU: CUDA's context and kernels, and what the allocator holds in pieces that fit nothing, of everything else.
_CONTEXT_BYTES = GIB // 2
_FRAGMENTED_SHARE = 0.05
# Of a CPU: what glibc's heap holds in pieces that fit nothing, as a share of what a micro-batch needs, and what the
# libraries load when training begins. Fitted to ten runs (docs/decisions.md).
_HEAP_SHARE = 0.3
_LIBRARIES_BYTES = 40 * 2**20

# Numbers that an optimizer keeps for each trained weight, in bytes where it keeps fewer than 32 bits of them.
# Source: the optimizers' own `init` code in torch, bitsandbytes and transformers.
_STATE_BYTES = {"sgd": 0, "adagrad": 4, "rmsprop": 4, "lion_32bit": 4, "paged_lion_32bit": 4, "adafactor": 0}
_STATE_BYTES |= {"lion_8bit": 1, "paged_lion_8bit": 1, "ademamix": 12, "ademamix_8bit": 3, "paged_ademamix_32bit": 12}
_STATE_BYTES |= dict.fromkeys(("adamw_8bit", "adamw_bnb_8bit", "paged_adamw_8bit", "adamw_torch_8bit"), 2)
_ADAM_BYTES = 8
_IN_PLACE = frozenset({"adamw_torch_fused", "adamw_apex_fused", "sgd"})  # whose step makes no tensor of a weight's size


@dataclass(frozen=True)
class MemoryEstimate:
    """What one process needs, in bytes.

    Attributes:
        device: `gpu` or `cpu`.
        processes: that train together; each needs this much.
        micro_batch_size: rows at once.
        length: of the longest row in tokens.
        parts: name -> bytes, each at its greatest; `not at once` is negative.
        peak: the sum of the parts, which is what a run's growth is compared with.
        at: the moment of the peak: `training`, `optimizer step` or `evaluation`.
        overhead: beyond what tensors take: CUDA's context and fragments; None on a CPU, where nobody knows it.
    """

    device: str
    processes: int
    micro_batch_size: int
    length: int
    parts: Mapping[str, int]
    peak: int
    at: str
    overhead: int | None

    def as_dict(self) -> dict[str, Any]:
        """As JSON holds it, sizes in GiB."""
        return {
            "device": self.device,
            "processes": self.processes,
            "micro_batch_size": self.micro_batch_size,
            "length": self.length,
            "parts_gib": {name: size / GIB for name, size in self.parts.items()},
            "peak_gib": self.peak / GIB,
            "peak_at": self.at,
            "overhead_gib": None if self.overhead is None else self.overhead / GIB,
        }


def estimate_memory(module: nn.Module, trainer: TrainerConfig, *, length: int, there: Placement) -> MemoryEstimate:
    """The memory of one process of a training.

    Args:
        module: what would be trained, on the meta device; its number formats are changed to those of the training.
        trainer: recipe and batches.
        length: of the longest row in tokens.
        there: where it would run.

    Raises:
        ConfigError: the micro-batches don't fill the step.
    """
    kwargs = trainer.training_kwargs
    _hold_as_trained(module, trainer, on_gpu=there.has_gpu)
    micro = trainer.micro_batch_size
    accumulation = accumulation_steps(
        global_batch_size=trainer.global_batch_size, micro_batch_size=micro, num_processes=there.processes
    )
    half = torch.bfloat16 if kwargs.get("bf16") else torch.float16 if kwargs.get("fp16") else None
    kernels: dict[str, Any] = {"on_gpu": there.has_gpu, "half": half, "causal": isinstance(trainer, LlmTrainerConfig)}
    checkpointing = bool(kwargs.get("gradient_checkpointing") or kwargs.get("activation_checkpointing"))
    batch = trace_training(
        module, rows=micro, length=length, accumulates=accumulation > 1, checkpointing=checkpointing, **kernels
    )
    trained = [parameter for parameter in module.parameters() if parameter.requires_grad]
    weights = sum(_bytes(tensor) for tensor in (*module.parameters(), *module.buffers()))
    weights -= _saved_by_quantization(module, trainer.bitsandbytes_kwargs)
    gradients = sum(_bytes(parameter) for parameter in trained)
    optimizer = _state_bytes(trained, optim=str(kwargs.get("optim", "adamw_torch")))
    reduced = gradients if there.processes > 1 else 0  # the buckets that gradients are sent in
    moments = {
        "training": batch.peak + reduced,
        "optimizer step": gradients + reduced + _step_bytes(trained, kwargs, on_gpu=there.has_gpu),
    }
    if kwargs.get("eval_strategy", "no") != "no":
        rows = int(kwargs.get("per_device_eval_batch_size", 8))
        moments["evaluation"] = trace_evaluation(module, rows=rows, length=length, **kernels)
    at = max(moments, key=lambda moment: moments[moment])
    parts = {"weights": weights, "gradients": gradients, "optimizer": optimizer}
    parts |= {"activations": batch.activations, "logits": batch.logits}
    parts |= {"gradients on their way": reduced} if reduced else {}
    peak = weights + optimizer + moments[at]
    rest = peak - sum(parts.values())
    parts |= {"temporary" if rest >= 0 else "not at once": rest}
    if not there.has_gpu:  # where memory that was held once stays with the process
        saved = gradients if trainer.peft_kwargs is not None else weights
        parts |= {"trained weights read back": saved, "allocator": round(_HEAP_SHARE * batch.peak)}
        parts |= {"libraries": _LIBRARIES_BYTES}
        peak = sum(parts.values())
    overhead = overhead_bytes(peak) if there.has_gpu else None
    device = "gpu" if there.has_gpu else "cpu"
    return MemoryEstimate(device, there.processes, micro, length, parts, peak, at, overhead)


def overhead_bytes(peak: int) -> int:
    """What a GPU needs beyond its tensors: CUDA's context, and fragments.

    Args:
        peak: of the tensors.
    """
    return int(_CONTEXT_BYTES + _FRAGMENTED_SHARE * peak)


def size_text(size: int) -> str:
    """Bytes in MiB, from a GiB on in GiB."""
    return f"{size / GIB:.2f} GiB" if abs(size) >= GIB else f"{size / 2**20:.1f} MiB"


def _hold_as_trained(module: nn.Module, trainer: TrainerConfig, *, on_gpu: bool) -> None:
    """Gives weights the format that they will be held in; an adapter's stay in 32 bits, as PEFT makes them."""
    device = torch.device("cuda" if on_gpu else "cpu")
    architecture: Any = module.config
    dtype = resolve_dtype(trainer.model_kwargs, config=architecture, device=device)
    for parameter in module.parameters():
        if trainer.peft_kwargs is None or not parameter.requires_grad:
            parameter.data = parameter.data.to(dtype)


def _state_bytes(trained: list[nn.Parameter], *, optim: str) -> int:
    if optim == "adafactor":  # a row and a column in place of every matrix
        return sum(4 * (sum(p.shape) if p.dim() == 2 else p.numel()) for p in trained)
    size = _STATE_BYTES.get(optim, _ADAM_BYTES)
    as_weights = size == 4 or (optim.startswith("adamw_torch") and "8bit" not in optim)
    return sum(p.numel() * (size * p.element_size() // 4 if as_weights else size) for p in trained)


def _step_bytes(trained: list[nn.Parameter], kwargs: Mapping[str, Any], *, on_gpu: bool) -> int:
    """What an optimizer step makes beside weights, gradients and state: on a GPU for all weights together."""
    if str(kwargs.get("optim", "adamw_torch")) in _IN_PLACE:
        return 0
    sizes = [_bytes(parameter) for parameter in trained]
    return sum(sizes) if on_gpu else max(sizes, default=0)


def _saved_by_quantization(module: nn.Module, bitsandbytes_kwargs: Mapping[str, Any] | None) -> int:
    """What 4 or 8 bits save: of frozen linear layers, with a scale for every block of 64 weights or every row."""
    if not bitsandbytes_kwargs:
        return 0
    nested = bool(bitsandbytes_kwargs.get("bnb_4bit_use_double_quant"))
    scales = 1 / 64 + 4 / (64 * 256) if nested else 4 / 64
    per_weight = 0.5 + scales if bitsandbytes_kwargs.get("load_in_4bit") else 1.0
    frozen = [m.weight for m in module.modules() if isinstance(m, nn.Linear) and not m.weight.requires_grad]
    return round(sum(_bytes(weight) - weight.numel() * per_weight for weight in frozen))


def _bytes(tensor: torch.Tensor) -> int:
    return tensor.numel() * tensor.element_size()
