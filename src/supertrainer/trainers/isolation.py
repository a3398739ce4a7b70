"""Whether a model keeps the documents of a pack apart, looked at before it is trained."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor, nn

from supertrainer.core.errors import ConfigError

_FIRST, _SECOND = 7, 9  # tokens of two documents that share a pack
# Of the greatest logit: what another shape may cost in rounding. A document that is seen moves logits by 10 % and more.
_ROUNDING = {torch.float32: 1e-3, torch.float64: 1e-3}
_ROUNDING_OF_HALF = 5e-2


def require_isolation(module: nn.Module, *, packing: str) -> None:
    """Compares a document's logits in a pack with those that it has alone, and behind another document.

    Args:
        module: a causal language model, on its device.
        packing: as the config says it, for the message.

    Raises:
        ConfigError: they differ, so documents would see each other.
    """
    model_type = module.config.model_type  # type: ignore[union-attr]
    try:
        leaked, shifted, scale, dtype = _probe(module)
    except TypeError as error:
        raise _refusal(model_type, packing=packing, why=str(error).splitlines()[0]) from error
    bound = _ROUNDING.get(dtype, _ROUNDING_OF_HALF) * scale
    if not leaked <= bound:
        why = f"another first document in a pack changes the second one's logits by {leaked:.2g} of {scale:.2g}."
        raise _refusal(model_type, packing=packing, why=why)
    if not shifted <= bound:
        why = f"the logits of a document differ by {shifted:.2g} of {scale:.2g} in a pack and alone."
        raise _refusal(model_type, packing=packing, why=why)


@torch.no_grad()
def _probe(module: nn.Module) -> tuple[float, float, float, torch.dtype]:
    """How far logits move with the first document, and by being in a pack; the greatest logit; their format."""
    device = next(module.parameters()).device
    vocabulary = module.config.get_text_config().vocab_size  # type: ignore[operator, union-attr]
    draws = np.random.PCG64(0).random_raw(2 * _FIRST + _SECOND) % vocabulary
    first, other, second = np.split(draws.astype(np.int64), [_FIRST, 2 * _FIRST])
    positions = np.concatenate([np.arange(_FIRST), np.arange(_SECOND)])

    def logits(ids: np.ndarray, positions: np.ndarray) -> Tensor:
        inputs = {"input_ids": ids, "position_ids": positions}
        tensors = {name: torch.from_numpy(values)[None].to(device) for name, values in inputs.items()}
        found: Tensor = module(**tensors, use_cache=False).logits
        return found[0, -_SECOND:]

    was_training = module.training
    module.eval()
    try:
        packed = logits(np.concatenate([first, second]), positions)
        behind_other = logits(np.concatenate([other, second]), positions)
        alone = logits(second, np.arange(_SECOND))
    finally:
        module.train(was_training)
    leaked, shifted = ((packed - one).abs().max().item() for one in (behind_other, alone))
    return leaked, shifted, packed.abs().max().item(), packed.dtype


def _refusal(model_type: str, *, packing: str, why: str) -> ConfigError:
    return ConfigError(
        f"trainer.packing={packing} with a {model_type} model, whose documents would see each other in a pack.",
        why=why,
        fix="trainer.packing=none.",
    )
