"""The model on its processes, with its first weights and its optimizer."""

from __future__ import annotations

from dataclasses import dataclass

from torch import nn
from torch.optim import AdamW
from transformers import PreTrainedTokenizerBase

from supertrainer.inference.allocator import keep_freed_memory
from supertrainer.models.mup import parameter_groups
from supertrainer.models.pretrain import DecoderModel
from supertrainer.trainers.pretrain_schema import PretrainTrainerConfig
from supertrainer.trainers.pretraining.layout import Layout, choose_layout, lay_out
from supertrainer.trainers.pretraining.optimizer import build_optimizer


@dataclass(frozen=True)
class Built:
    """What is trained.

    Attributes:
        decoder: laid out over the processes.
        optimizer: of its parameters.
        layout: of the processes.
        tokenizer: of the data.
        flops_per_token: of forward and backward pass, at the config's sequence length.
    """

    decoder: nn.Module
    optimizer: AdamW
    layout: Layout
    tokenizer: PreTrainedTokenizerBase
    flops_per_token: float

    @property
    def parameters(self) -> int:
        """Of the whole model."""
        return sum(parameter.numel() for parameter in self.decoder.parameters())


def build(
    config: PretrainTrainerConfig, *, model: DecoderModel, tokenizer: PreTrainedTokenizerBase, seed: int
) -> Built:
    """Builds the model without storage, divides it, and only then gives it weights.

    No process holds more than its part, and a whole weight for a moment. Every process calls it.

    Args:
        config: recipe and layout.
        model: what is built.
        tokenizer: its length is the vocabulary.
        seed: of the weights.

    Raises:
        ConfigError: the processes can't be laid out as asked.
    """
    vocab_size = len(tokenizer)
    shape = model.shape(vocab_size)
    layout = choose_layout(config, parameters=shape.parameters())
    if layout.device.type == "cpu":
        keep_freed_memory()
    decoder = model.build(vocab_size, device="meta")
    lay_out(decoder, config, layout=layout)
    decoder.to_empty(device=layout.device)
    model.initialize(decoder, seed=seed, vocab_size=vocab_size)
    groups = parameter_groups(
        decoder, model.table(vocab_size), lr=config.learning_rate, weight_decay=config.weight_decay, eps=config.eps
    )
    optimizer = build_optimizer(groups, config)
    return Built(decoder, optimizer, layout, tokenizer, float(shape.flops_per_token(config.sequence_length)))
