"""The same training in float64, where rounding is 500 million times finer: a difference that stays isn't rounding."""

from __future__ import annotations

from torch import nn

from supertrainer.models.loading import quiet_transformers
from supertrainer.models.quantization import dequantized, is_quantized
from supertrainer.trainers.base import TaskTrainer


def compute_in_doubles(trainer: TaskTrainer) -> None:
    """Makes every model that the trainer builds one of the same weights in float64."""
    build = trainer.build_module
    trainer.build_module = lambda: _doubled(build())  # type: ignore[method-assign]


def _doubled(module: nn.Module) -> nn.Module:
    """The model in float64, in place; quantized weights become what they stand for, which multiplies in any format."""
    from peft import PeftModel

    trained = {name for name, parameter in module.named_parameters() if parameter.requires_grad}
    base = module.get_base_model() if isinstance(module, PeftModel) else module
    if is_quantized(base):
        with quiet_transformers():
            dequantized(base)  # type: ignore[arg-type]
        for name, parameter in module.named_parameters():  # new ones, which a linear layer would train
            parameter.requires_grad_(name in trained)
    return module.double()
