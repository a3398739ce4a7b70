"""The output of a language model: hidden states in place of logits, and what the architecture does to logits.

A vocabulary is so much wider than a hidden state that the logits of a batch may take more memory than the rest of a
training step. `OutputTap` keeps what goes into the output layer and hands it no position, so that the model's forward
pass makes no logits at all; whoever wants some computes them from the hidden states, as many at once as they like.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

log = logging.getLogger(__name__)

# What architectures do to logits after the output layer: a key of their config, and the function that it may mean.
# Which of them a model has is found by looking (`after_output`): two architectures give logits_scaling two meanings.
AFTER_OUTPUT: Mapping[str, tuple[Callable[[Tensor, float], Tensor], ...]] = {
    "final_logit_softcapping": (lambda logits, cap: torch.tanh(logits / cap) * cap,),
    "logit_scale": (lambda logits, scale: logits * scale,),
    "logits_scaling": (lambda logits, scale: logits / scale, lambda logits, scale: logits * scale),
    "lm_head_multiplier": (lambda logits, scale: logits * scale,),
    "softcap": (lambda logits, cap: torch.tanh(logits / cap) * cap,),
}
_RANGE = 60.0  # logits at which candidates are compared: caps and scales show there


class OutputTap:
    """Takes the hidden states of a language model before its output layer, while it is open.

    Attributes:
        head: the output layer.
        vocabulary: logits of a token.
    """

    def __init__(self, head: nn.Module, *, vocabulary: int, after: Callable[[Tensor], Tensor]) -> None:
        """
        Args:
            head: the output layer.
            vocabulary: logits of a token.
            after: what the architecture does to its logits.
        """
        self.head = head
        self.vocabulary = vocabulary
        self._after = after
        self._opened = 0
        self._hidden: Tensor | None = None
        self._autocast: torch.dtype | None = None  # the format of the last forward pass, which chunks have too
        head.register_forward_pre_hook(self._keep)

    @contextlib.contextmanager
    def open(self) -> Iterator[None]:
        """Inside, the model's forward passes give logits of no position."""
        self._opened += 1
        try:
            yield
        finally:
            self._opened -= 1
            self._hidden = None

    @contextlib.contextmanager
    def closed(self) -> Iterator[None]:
        """Inside, the model gives its logits, also where the tap is open around it."""
        opened, self._opened = self._opened, 0
        try:
            yield
        finally:
            self._opened = opened

    def take(self) -> Tensor | None:
        """The hidden states of the last forward pass, (B, T, H), once; None where the tap was closed."""
        hidden, self._hidden = self._hidden, None
        return hidden

    def logits(self, hidden: Tensor) -> Tensor:
        """The model's logits of some hidden states, (N, H) -> (N, V), in float32."""
        opened, self._opened = self._opened, 0
        dtype = self._autocast
        same = contextlib.nullcontext() if dtype is None else torch.autocast(hidden.device.type, dtype=dtype)
        try:
            with same:
                logits: Tensor = self.head(hidden)
        finally:
            self._opened = opened
        return self._after(logits.float())

    def _keep(self, head: nn.Module, inputs: tuple[Tensor, ...]) -> tuple[Tensor, ...] | None:
        if not self._opened:
            return None
        self._hidden = inputs[0]
        device = inputs[0].device.type
        enabled = torch.amp.is_autocast_available(device) and torch.is_autocast_enabled(device)
        self._autocast = torch.get_autocast_dtype(device) if enabled else None
        return (inputs[0][..., :0, :], *inputs[1:])


def tap_output(model: nn.Module) -> OutputTap | None:
    """A tap at the output layer; None where the model's logits can't be had from its hidden states.

    Args:
        model: a `PreTrainedModel` with an output layer, or a `PeftModel` around one; in eval mode or not.
    """
    named: Any = model
    head = named.get_output_embeddings()
    if not isinstance(head, nn.Module):
        log.warning("%s has no output layer to be taken apart, so all logits of a micro-batch are made", type(model))
        return None
    vocabulary, after = after_output(model, head)
    if after is None:
        log.warning(
            "%s does something to its logits that isn't known here, so all logits of a micro-batch are made",
            type(model).__name__,
        )
        return None
    return OutputTap(head, vocabulary=vocabulary, after=after)


def writer_of(model: nn.Module, head: nn.Module) -> nn.Module:
    """The part of a model that owns its output layer and can be called with tokens alone.

    A model of pictures may be built around a whole language model (InstructBLIP), whose logits it hands on.
    """
    from peft import PeftModel

    whole: Any = model.get_base_model() if isinstance(model, PeftModel) else model
    inner = [
        module
        for name, module in whole.named_modules()
        if name and isinstance(module, PreTrainedModel) and module.get_output_embeddings() is head
    ]
    return inner[0] if inner else model


def after_output(model: nn.Module, head: nn.Module) -> tuple[int, Callable[[Tensor], Tensor] | None]:
    """How many logits a token has, and what the model does to those that its output layer gives; None where that is
    nothing known.

    It is asked: a forward pass whose output layer gives numbers from -60 to 60 shows the function itself.
    """
    device = next(model.parameters()).device
    ids = torch.zeros(1, 2, dtype=torch.long, device=device)
    given: list[Tensor] = []

    def ramp(module: nn.Module, inputs: Any, output: Tensor) -> Tensor:
        values = torch.linspace(-_RANGE, _RANGE, output.shape[-1], device=output.device)
        given.append(values.to(output.dtype).expand_as(output).clone())
        return given[0].clone()

    was_training, hook = model.training, head.register_forward_hook(ramp)
    try:
        model.eval()
        with torch.no_grad():
            shown = writer_of(model, head)(input_ids=ids, use_cache=False).logits.float()
    finally:
        hook.remove()
        model.train(was_training)
    if len(given) != 1:
        return 0, None
    vocabulary, tolerance = given[0].shape[-1], 1e-5 if given[0].dtype == torch.float32 else 2e-2
    named: Any = model
    config = named.config.get_text_config()
    for candidate in _candidates(config.to_dict()):
        expected = candidate(given[0].float())
        if expected.shape != shown.shape:
            continue
        open_to = shown > torch.finfo(given[0].dtype).min  # others are never written: tokens of pictures (Chameleon)
        if torch.allclose(expected[open_to], shown[open_to], rtol=tolerance, atol=tolerance):
            never = (~open_to).all(dim=0).all(dim=0).nonzero().flatten()
            return vocabulary, _without(candidate, never) if len(never) else candidate
    return vocabulary, None


def _without(after: Callable[[Tensor], Tensor], never: Tensor) -> Callable[[Tensor], Tensor]:
    """The same, with logits of some tokens that make them impossible."""

    def closed(logits: Tensor) -> Tensor:
        return after(logits).index_fill(-1, never, torch.finfo(torch.float32).min)

    return closed


def _candidates(config: Mapping[str, Any]) -> Iterator[Callable[[Tensor], Tensor]]:
    yield lambda logits: logits
    for key, functions in AFTER_OUTPUT.items():
        value = config.get(key)
        if isinstance(value, int | float) and value:
            for function in functions:
                yield lambda logits, function=function, value=value: function(logits, float(value))  # type: ignore[misc]
