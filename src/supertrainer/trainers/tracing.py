"""One micro-batch put through a model without weights: what it would hold in memory, counted and not computed.

On the meta device tensors have shapes and no storage, so forward and backward cost about a second for a model of any
size, and whatever the architecture keeps for its backward is found without a formula of it.
"""

from __future__ import annotations

import contextlib
import weakref
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map
from transformers import PreTrainedModel

from supertrainer.inference.next_tokens import chunks
from supertrainer.models.loading import quiet_transformers
from supertrainer.models.output import OutputTap
from supertrainer.trainers.chunked_loss import summed_next_token_loss

# What autocast computes in 16 bits, and what it widens to 32, of the operations that an encoder has.
# Source: https://docs.pytorch.org/docs/stable/amp.html, "CUDA Op-Specific Behavior".
_NARROWED = frozenset({F.linear, torch.matmul, torch.bmm, torch.baddbmm, torch.addmm, Tensor.matmul, Tensor.__matmul__})
_WIDENED = frozenset({F.layer_norm, F.softmax, F.log_softmax, torch.softmax, Tensor.softmax, F.cross_entropy})


@dataclass(frozen=True)
class TracedBatch:
    """Bytes of a micro-batch.

    Attributes:
        activations: kept at the end of the forward pass for the backward pass, without the logits.
        logits: the model's output, and what the loss keeps of it; of a causal language model, whose logits are made
            some at a time, only the latter.
        peak: the most at once, with the gradients there are at that moment; weights aren't in it.
    """

    activations: int
    logits: int
    peak: int


def trace_training(
    module: nn.Module,
    *,
    rows: int,
    length: int,
    on_gpu: bool,
    half: torch.dtype | None,
    accumulates: bool,
    checkpointing: bool,
    causal: bool = False,
) -> TracedBatch:
    """Forward and backward of one micro-batch.

    Args:
        module: on the meta device.
        rows: of the micro-batch.
        length: of its rows in tokens.
        on_gpu: which kernels are meant: a GPU's keep dropout masks as bytes and never write attention out.
        half: the 16-bit format that autocast computes in; None: none.
        accumulates: whether gradients of earlier micro-batches are held while this one is computed.
        checkpointing: whether activations inside a layer are computed again in the backward pass.
        causal: whether the loss is a causal language model's, which is made of hidden states.
    """
    live, was_training = _Live(module), module.training
    tap = _tap(module) if causal else None
    module.train()
    if checkpointing:
        # The backward pass leaves the modes around it; what it computes again enters its own.
        again = lambda: (contextlib.nullcontext(), _Kernels(on_gpu=on_gpu, half=half))  # noqa: E731
        options = {"use_reentrant": False, "preserve_rng_state": False, "context_fn": again}
        with quiet_transformers():
            _checkpointing(module, "enable")(options)
    for _ in range(2 if accumulates else 1):
        with live, _Kernels(on_gpu=on_gpu, half=half):
            before = live.now
            states = _states(module, tap, rows=rows, length=length)
            kept, output = live.now - before, 0 if causal else states.untyped_storage().nbytes()
            classes = torch.zeros(states.shape[:-1], dtype=torch.long, device="meta").flatten()
            if tap is None:
                loss = F.cross_entropy(states.flatten(0, -2).float(), classes, reduction="sum")
            else:
                loss = summed_next_token_loss(states.flatten(0, -2), classes, tap=tap, on_gpu=on_gpu)
            of_loss = live.now - before - kept
            loss.backward()
            del states, loss
    if checkpointing:
        _checkpointing(module, "disable")()
    module.train(was_training)
    for parameter in module.parameters():
        parameter.grad = None
    return TracedBatch(activations=max(kept - output, 0), logits=output + of_loss, peak=live.peak)


def trace_evaluation(
    module: nn.Module, *, rows: int, length: int, on_gpu: bool, half: torch.dtype | None, causal: bool = False
) -> int:
    """The most bytes at once of a forward pass that keeps nothing."""
    live, was_training = _Live(module), module.training
    tap = _tap(module) if causal else None
    module.eval()
    with live, _Kernels(on_gpu=on_gpu, half=half), torch.no_grad():
        states = _states(module, tap, rows=rows, length=length)
        if tap is not None:
            states = states.flatten(0, -2)
            tap.logits(states[next(iter(chunks(states, vocabulary=tap.vocabulary, on_gpu=on_gpu)))])
    module.train(was_training)
    return live.peak


def _checkpointing(module: nn.Module, what: str) -> Callable[..., None]:
    """The method that switches it: transformers 5.24 has renamed it."""
    new = f"activation_checkpointing_{what}"
    method: Callable[..., None] = getattr(
        module, new if new in dir(PreTrainedModel) else f"gradient_checkpointing_{what}"
    )
    return method


def _states(module: nn.Module, tap: OutputTap | None, *, rows: int, length: int) -> Tensor:
    """The logits of a batch; with a tap, the hidden states that they would be made of."""
    ids = torch.zeros(rows, length, dtype=torch.long, device="meta")
    inputs: dict[str, Any] = {"input_ids": ids, "attention_mask": torch.ones_like(ids)}
    if tap is None:
        logits: Tensor = module(**inputs).logits
        return logits
    with tap.open():
        module(**inputs, use_cache=False)
        hidden = tap.take()
    assert hidden is not None, "the tap is open"
    return hidden


def _tap(module: Any) -> OutputTap:
    """A tap of a model whose numbers can't be looked at; what it does to its logits takes no memory worth a name."""
    vocabulary = module.config.get_text_config().vocab_size
    return OutputTap(module.get_output_embeddings(), vocabulary=vocabulary, after=lambda logits: logits)


class _Live(TorchDispatchMode):
    """Counts the bytes of all storages that operations made and that are still alive."""

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self.now = self.peak = 0
        # Views of weights and buffers aren't new storages.
        self._bytes = {tensor.untyped_storage()._cdata: 0 for tensor in (*module.parameters(), *module.buffers())}

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is torch.ops.aten._local_scalar_dense.default:
            return 0  # code that looks whether a mask hides anything is told that it does
        result = func(*args, **(kwargs or {}))
        for value in tree_leaves(result):
            if isinstance(value, Tensor) and value.device.type == "meta":
                self._add(value.untyped_storage())
        return result

    def _add(self, storage: torch.UntypedStorage) -> None:
        key = storage._cdata
        if key in self._bytes:
            return
        self._bytes[key] = storage.nbytes()
        self.now += storage.nbytes()
        self.peak = max(self.peak, self.now)
        weakref.finalize(storage, self._drop, key)

    def _drop(self, key: int) -> None:
        self.now -= self._bytes.pop(key, 0)


class _Kernels(TorchFunctionMode):
    """Stands in for the kernels that a device would choose, where the meta device would choose others."""

    def __init__(self, *, on_gpu: bool, half: torch.dtype | None) -> None:
        super().__init__()
        self._on_gpu = on_gpu
        self._half = half
        self._narrow: dict[int, Tensor] = {}

    def __torch_function__(self, func: Callable[..., Any], types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func is F.scaled_dot_product_attention:
            return self._attention(*args, **kwargs)
        if func is F.dropout and self._on_gpu:
            return _gpu_dropout(*args, **kwargs)
        if self._half is not None and func in _NARROWED:
            return func(*tree_map(self._narrowed, args), **tree_map(self._narrowed, kwargs))
        if self._half is not None and func in _WIDENED:
            return func(*tree_map(_widened, args), **tree_map(_widened, kwargs))
        return func(*args, **kwargs)

    def _attention(
        self, query: Tensor, key: Tensor, value: Tensor, attn_mask: Tensor | None = None, dropout_p: float = 0.0,
        is_causal: bool = False, **kwargs: Any,
    ) -> Tensor:  # fmt: skip
        query, key, value = (self._narrowed(tensor) for tensor in (query, key, value))
        if dropout_p > 0 and not self._on_gpu:  # a CPU has no fused kernel with dropout
            return F.scaled_dot_product_attention(query, key, value, attn_mask, dropout_p, is_causal, **kwargs)
        return _FusedAttention.apply(query, key, value, attn_mask)

    def _narrowed(self, value: Any) -> Any:
        """A value as autocast hands it on; the 16-bit copy of a weight is made once."""
        if self._half is None or not isinstance(value, Tensor) or value.dtype != torch.float32:
            return value
        if not (value.is_leaf and value.requires_grad):
            return value.to(self._half)
        if id(value) not in self._narrow:
            self._narrow[id(value)] = value.to(self._half)
        return self._narrow[id(value)]


def _widened(value: Any) -> Any:
    return value.float() if isinstance(value, Tensor) and value.is_floating_point() else value


def _gpu_dropout(input: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> Tensor:
    return torch.native_dropout(input, p, True)[0] if training and p > 0 else input


class _FusedAttention(torch.autograd.Function):
    """What flash and memory-efficient kernels keep: their inputs, their output and a number for every row of scores."""

    @staticmethod
    def forward(ctx: Any, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None) -> Tensor:
        output = query.new_empty((*query.shape[:-1], value.shape[-1]))
        ctx.save_for_backward(query, key, value, mask, output, query.new_empty(query.shape[:-1], dtype=torch.float32))
        return output

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, Tensor, Tensor, None]:
        query, key, value, *_ = ctx.saved_tensors
        return torch.empty_like(query), torch.empty_like(key), torch.empty_like(value), None
