"""Shapes of the open language models behind configs/model/llm, as their published configs have them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from transformers import AutoConfig

PLAIN = {"q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"}
FUSED = {"qkv_proj", "o_proj", "gate_up_proj", "down_proj"}


@dataclass(frozen=True)
class Shape:
    """What a published config.json says, and how many parameters its page names, in millions."""

    model_type: str
    hidden_size: int
    intermediate_size: int
    num_hidden_layers: int
    num_attention_heads: int
    num_key_value_heads: int
    vocab_size: int
    millions: float
    tied: bool = True
    positions: int = 4096
    head_dim: int | None = None
    targets: frozenset[str] = frozenset(PLAIN)
    more: dict[str, Any] = field(default_factory=dict)

    def config(self) -> Any:
        keys = {name: vars(self)[name] for name in vars(self) if name.startswith(("hidden", "inter", "num_", "vocab"))}
        keys |= {} if self.head_dim is None else {"head_dim": self.head_dim}
        keys |= {"tie_word_embeddings": self.tied, "max_position_embeddings": self.positions, "pad_token_id": 0}
        return AutoConfig.for_model(self.model_type, **keys, **self.more)


SHAPES = {
    "HuggingFaceTB/SmolLM2-135M-Instruct": Shape("llama", 576, 1536, 30, 9, 3, 49152, 135, positions=8192),
    "HuggingFaceTB/SmolLM2-360M-Instruct": Shape("llama", 960, 2560, 32, 15, 5, 49152, 362, positions=8192),
    "HuggingFaceTB/SmolLM2-1.7B-Instruct": Shape("llama", 2048, 8192, 24, 32, 32, 49152, 1711, positions=8192),
    "HuggingFaceTB/SmolLM3-3B": Shape("smollm3", 2048, 11008, 36, 16, 4, 128256, 3075, positions=65536),
    "meta-llama/Llama-3.2-1B-Instruct": Shape(
        "llama", 2048, 8192, 16, 32, 8, 128256, 1236, head_dim=64, positions=131072
    ),
    "meta-llama/Llama-3.2-3B-Instruct": Shape(
        "llama", 3072, 8192, 28, 24, 8, 128256, 3213, head_dim=128, positions=131072
    ),
    "meta-llama/Llama-3.1-8B-Instruct": Shape(
        "llama", 4096, 14336, 32, 32, 8, 128256, 8030, tied=False, positions=131072
    ),
    "Qwen/Qwen2.5-0.5B-Instruct": Shape("qwen2", 896, 4864, 24, 14, 2, 151936, 494, positions=32768),
    "Qwen/Qwen2.5-1.5B-Instruct": Shape("qwen2", 1536, 8960, 28, 12, 2, 151936, 1544, positions=32768),
    "Qwen/Qwen2.5-3B-Instruct": Shape("qwen2", 2048, 11008, 36, 16, 2, 151936, 3086, positions=32768),
    "Qwen/Qwen2.5-7B-Instruct": Shape("qwen2", 3584, 18944, 28, 28, 4, 152064, 7616, tied=False, positions=32768),
    "Qwen/Qwen3-0.6B": Shape("qwen3", 1024, 3072, 28, 16, 8, 151936, 596, head_dim=128, positions=40960),
    "Qwen/Qwen3-1.7B": Shape("qwen3", 2048, 6144, 28, 16, 8, 151936, 1721, head_dim=128, positions=40960),
    "Qwen/Qwen3-4B": Shape("qwen3", 2560, 9728, 36, 32, 8, 151936, 4022, head_dim=128, positions=40960),
    "Qwen/Qwen3-8B": Shape("qwen3", 4096, 12288, 36, 32, 8, 151936, 8191, head_dim=128, tied=False, positions=40960),
    "google/gemma-2-2b-it": Shape("gemma2", 2304, 9216, 26, 8, 4, 256000, 2614, head_dim=256, positions=8192),
    "google/gemma-2-9b-it": Shape("gemma2", 3584, 14336, 42, 16, 8, 256000, 9242, head_dim=256, positions=8192),
    "google/gemma-3-1b-it": Shape("gemma3_text", 1152, 6912, 26, 4, 1, 262144, 1000, head_dim=256, positions=32768),
    "mistralai/Mistral-7B-Instruct-v0.3": Shape(
        "mistral", 4096, 14336, 32, 32, 8, 32768, 7248, tied=False, positions=32768
    ),
    "microsoft/Phi-4-mini-instruct": Shape(
        "phi3", 3072, 8192, 32, 24, 8, 200064, 3836, positions=131072, targets=frozenset(FUSED)
    ),
    "allenai/OLMo-2-0425-1B-Instruct": Shape("olmo2", 2048, 8192, 16, 16, 16, 100352, 1485, tied=False),
    "allenai/OLMo-2-1124-7B-Instruct": Shape("olmo2", 4096, 11008, 32, 32, 32, 100352, 7299, tied=False),
    "ibm-granite/granite-3.3-2b-instruct": Shape("granite", 2048, 8192, 40, 32, 8, 49159, 2534, positions=131072),
    "ibm-granite/granite-3.3-8b-instruct": Shape("granite", 4096, 12800, 40, 32, 8, 49159, 8171, positions=131072),
}
