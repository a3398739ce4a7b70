"""A vision-language model whose code comes with it, as a repository of a user's own."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

from supertrainer.core.files import write_json
from supertrainer.models.processors import save_reader
from tiny_mllm import tiny_processor

CODE = """
import torch
from torch import nn
from transformers import LlamaConfig, LlamaModel, PreTrainedConfig, PreTrainedModel, GenerationMixin
from transformers.modeling_outputs import CausalLMOutput


class SketchConfig(PreTrainedConfig):
    model_type = "sketch"
    vocab_size: int = 128
    hidden_size: int = 32
    max_position_embeddings: int = 64


class SketchModel(PreTrainedModel, GenerationMixin):
    config_class = SketchConfig
    _supports_sdpa = True

    def __init__(self, config):
        super().__init__(config)
        sizes = {"intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 2}
        text = LlamaConfig(vocab_size=config.vocab_size, hidden_size=config.hidden_size, **sizes)
        self.eye = nn.Sequential(nn.Linear(3 * 14 * 14, 16), nn.GELU())
        self.bridge = nn.Linear(16, config.hidden_size)
        self.mouth = LlamaModel(text)
        self.lm_head = nn.Linear(config.hidden_size, config.vocab_size, bias=False)
        self.post_init()

    def get_input_embeddings(self):
        return self.mouth.embed_tokens

    def get_output_embeddings(self):
        return self.lm_head

    FORWARD(self, input_ids=None, pixel_values=None, attention_mask=None, **rest):
        states = self.mouth.embed_tokens(input_ids)
        if pixel_values is not None:
            patches = pixel_values.unfold(2, 14, 14).unfold(3, 14, 14)
            patches = patches.permute(0, 2, 3, 1, 4, 5).flatten(3).flatten(1, 2)
            states = states.masked_scatter((input_ids == 4).unsqueeze(-1), self.bridge(self.eye(patches)))
        found = self.mouth(inputs_embeds=states, attention_mask=attention_mask).last_hidden_state
        return CausalLMOutput(logits=self.lm_head(found))
"""


def save_sketch(directory: Path, *, forward: str = "def forward", **keys: Any) -> Path:
    """A repository as a user's own: a config that names its code, weights, and LLaVA's processor."""
    directory.mkdir()
    (directory / "modeling_sketch.py").write_text(CODE.replace("FORWARD", forward))
    names = {"AutoConfig": "modeling_sketch.SketchConfig", "AutoModelForCausalLM": "modeling_sketch.SketchModel"}
    write_json(directory / "config.json", {"model_type": "sketch", "auto_map": names, "architectures": ["SketchModel"]})
    save_reader(tiny_processor("llava"), directory)
    return directory


def save_weights(source: Path) -> None:
    from transformers import AutoConfig, AutoModelForCausalLM

    torch.manual_seed(0)
    config = AutoConfig.from_pretrained(source, trust_remote_code=True)
    AutoModelForCausalLM.from_config(config, trust_remote_code=True).save_pretrained(source)
