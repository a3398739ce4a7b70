"""How the model lies over the processes: one copy each, or parts of every weight; blocks recomputed and compiled."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.utils.checkpoint import CheckpointPolicy, checkpoint, create_selective_checkpoint_contexts

from supertrainer.core.distributed import world_size
from supertrainer.core.errors import ConfigError, raise_all
from supertrainer.trainers.devices import gpu_memory_bytes, training_device
from supertrainer.trainers.pretrain_schema import PretrainTrainerConfig, layout_problems
from supertrainer.trainers.pretraining.strategy import Strategy, choose_strategy

# What the selective form keeps: everything else of a block is cheap to compute again.
_KEPT = frozenset(
    {
        torch.ops.aten.mm.default,
        torch.ops.aten.addmm.default,
        torch.ops.aten.bmm.default,
        torch.ops.aten._scaled_dot_product_flash_attention.default,
        torch.ops.aten._scaled_dot_product_efficient_attention.default,
        torch.ops.aten._scaled_dot_product_cudnn_attention.default,
        torch.ops.aten._scaled_dot_product_flash_attention_for_cpu.default,
    }
)


@dataclass(frozen=True)
class Layout:
    """Where and in what this process computes.

    Attributes:
        strategy: none: a process by itself; ddp: every process has the whole model; fsdp: a part of every weight.
        device: of this process.
        dtype: what matrices are multiplied in.
        mesh: of fsdp, with the dimension `shard`, before it `replicate` where groups hold the model once each.
    """

    strategy: Strategy
    device: torch.device
    dtype: torch.dtype
    mesh: DeviceMesh | None = None

    def computing(self) -> contextlib.AbstractContextManager[Any]:
        """Around a forward pass: weights that fsdp hasn't cast already are cast operation by operation."""
        if self.dtype == torch.float32 or self.strategy == "fsdp":
            return contextlib.nullcontext()
        return torch.autocast(self.device.type, dtype=self.dtype)

    @contextlib.contextmanager
    def looking(self, decoder: nn.Module) -> Iterator[None]:
        """Around forward passes that nothing is learnt from."""
        decoder.eval()
        try:
            with torch.no_grad(), self.computing():
                yield
        finally:
            decoder.train()
            if isinstance(decoder, dist.fsdp.FSDPModule):
                decoder.reshard()  # a backward pass would have done it; until then its parameters are whole ones


def choose_layout(config: PretrainTrainerConfig, *, parameters: int) -> Layout:
    """The layout that a config asks for, on the processes and devices that are there.

    Args:
        config: `parallel` and `precision`.
        parameters: of the model.

    Raises:
        ConfigError: the processes can't be laid out so.
    """
    device, processes = training_device(), world_size()
    raise_all(ConfigError, layout_problems(config.parallel, processes=processes))
    on_gpu = device.type == "cuda"
    half = config.precision == "bfloat16" or (config.precision == "auto" and on_gpu)
    dtype = torch.bfloat16 if half else torch.float32
    strategy, _ = choose_strategy(
        config.parallel, processes=processes, parameters=parameters, gpu_bytes=gpu_memory_bytes()
    )
    if strategy != "fsdp":
        return Layout(strategy, device, dtype)
    replicas = config.parallel.replicas
    if replicas == 1:
        return Layout("fsdp", device, dtype, init_device_mesh(device.type, (processes,), mesh_dim_names=("shard",)))
    sizes, names = (replicas, processes // replicas), ("replicate", "shard")
    return Layout("fsdp", device, dtype, init_device_mesh(device.type, sizes, mesh_dim_names=names))


def lay_out(decoder: nn.Module, config: PretrainTrainerConfig, *, layout: Layout) -> None:
    """Prepares a model on the meta device, in place: recomputation, compilation, then the division of its weights.

    The names of parameters stay as they were.

    Args:
        decoder: has its transformer blocks in `blocks`.
        config: what is recomputed and compiled.
        layout: of the processes.
    """
    blocks = list(decoder.get_submodule("blocks").children())
    for block in blocks:
        _recompute(block, config.activation_checkpointing)
        if config.compile:
            block.compile(dynamic=False)
    if layout.mesh is None:
        return
    policy = MixedPrecisionPolicy(
        param_dtype=layout.dtype if layout.dtype != torch.float32 else None, reduce_dtype=torch.float32
    )
    for block in blocks:
        fully_shard(block, mesh=layout.mesh, mp_policy=policy)
    fully_shard(decoder, mesh=layout.mesh, mp_policy=policy)  # embedding, norm and head: tied ones are one weight
    for module in decoder.modules():
        if isinstance(module, dist.fsdp.FSDPModule):
            module.set_gradient_divide_factor(1.0)  # the loss is divided by the tokens of all processes already
            module.set_force_sum_reduction_for_comms(True)  # gloo knows sums only


def _recompute(block: nn.Module, what: str) -> None:
    if what == "none":
        return
    contexts: dict[str, Any] = {}
    if what == "selective":
        contexts["context_fn"] = functools.partial(create_selective_checkpoint_contexts, _policy)
    inner = block.forward

    def forward(*args: Any, **kwargs: Any) -> Tensor:
        # No random number is drawn in a block, so no generator's state has to be put back.
        return checkpoint(inner, *args, use_reentrant=False, preserve_rng_state=False, **contexts, **kwargs)

    block.forward = forward  # not a wrapper module: that would rename the parameters


def _policy(context: Any, operation: Any, *args: Any, **kwargs: Any) -> CheckpointPolicy:
    return CheckpointPolicy.MUST_SAVE if operation in _KEPT else CheckpointPolicy.PREFER_RECOMPUTE
