"""Shapes of the open vision-language models behind configs/model/mllm, as their published configs have them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from transformers import AutoConfig


@dataclass(frozen=True)
class Shape:
    """What a published config.json says, and how many parameters its page names, in millions."""

    model_type: str
    millions: float
    keys: dict[str, Any]

    def config(self) -> Any:
        return AutoConfig.for_model(self.model_type, **self.keys)


def _text(model_type: str | None, sizes: tuple[int, ...], vocabulary: int, **more: Any) -> dict[str, Any]:
    """Width, inner width, layers, heads, heads of keys."""
    names = ("hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads", "num_key_value_heads")
    kind = {} if model_type is None else {"model_type": model_type}
    return {**kind, **dict(zip(names, sizes, strict=True)), "vocab_size": vocabulary, "pad_token_id": 0, **more}


def _vision(model_type: str | None, sizes: tuple[int, ...], image: int, patch: int, **more: Any) -> dict[str, Any]:
    names = ("hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads")
    kind = {} if model_type is None else {"model_type": model_type}
    return {**kind, **dict(zip(names, sizes, strict=True)), "image_size": image, "patch_size": patch, **more}


_SO400M = (1152, 4304, 27, 16)
_NO_HEAD = {"vision_use_head": False}
_MROPE = {"rope_type": "default", "rope_theta": 1e6}
_QWEN25 = {
    "depth": 32, "hidden_size": 1280, "num_heads": 16, "intermediate_size": 3420, "patch_size": 14,
    "fullatt_block_indexes": [7, 15, 23, 31],
}  # fmt: skip

SHAPES = {
    "HuggingFaceTB/SmolVLM-256M-Instruct": Shape(
        "idefics3", 256,
        {
            "vision_config": _vision(None, (768, 3072, 12, 12), 512, 16), "scale_factor": 4, "image_token_id": 49190,
            "text_config": _text("llama", (576, 1536, 30, 9, 3), 49280), "tie_word_embeddings": False,
        },
    ),
    "HuggingFaceTB/SmolVLM-Instruct": Shape(
        "idefics3", 2246,
        {
            "vision_config": _vision(None, _SO400M, 384, 14), "scale_factor": 3, "image_token_id": 49153,
            "text_config": _text("llama", (2048, 8192, 24, 32, 32), 49155), "tie_word_embeddings": False,
        },
    ),
    "Qwen/Qwen2.5-VL-3B-Instruct": Shape(
        "qwen2_5_vl", 3755,
        {
            "vision_config": {**_QWEN25, "out_hidden_size": 2048}, "tie_word_embeddings": True,
            "text_config": _text(
                None, (2048, 11008, 36, 16, 2), 151936, rope_parameters={**_MROPE, "mrope_section": [16, 24, 24]}
            ),
        },
    ),
    "Qwen/Qwen2.5-VL-7B-Instruct": Shape(
        "qwen2_5_vl", 8292,
        {
            "vision_config": {**_QWEN25, "out_hidden_size": 3584},
            "text_config": _text(
                None, (3584, 18944, 28, 28, 4), 152064, rope_parameters={**_MROPE, "mrope_section": [16, 24, 24]}
            ),
        },
    ),
    "Qwen/Qwen3-VL-4B-Instruct": Shape(
        "qwen3_vl", 4438,
        {
            "vision_config": {
                "depth": 24, "hidden_size": 1024, "num_heads": 16, "intermediate_size": 4096, "out_hidden_size": 2560,
                "patch_size": 16, "num_position_embeddings": 2304, "deepstack_visual_indexes": [5, 11, 17],
            },
            "text_config": _text(
                None, (2560, 9728, 36, 32, 8), 151936, head_dim=128,
                rope_parameters={**_MROPE, "mrope_section": [24, 20, 20]},
            ),
            "tie_word_embeddings": True,
        },
    ),
    "llava-hf/llava-1.5-7b-hf": Shape(
        "llava", 7063,
        {
            "vision_config": _vision("clip_vision_model", (1024, 4096, 24, 16), 336, 14, projection_dim=768),
            "text_config": _text("llama", (4096, 11008, 32, 32, 32), 32064), "image_token_id": 32000,
        },
    ),
    "llava-hf/llava-onevision-qwen2-0.5b-ov-hf": Shape(
        "llava_onevision", 894,
        {
            "vision_config": _vision("siglip_vision_model", (1152, 4304, 26, 16), 384, 14, **_NO_HEAD),
            "text_config": _text("qwen2", (896, 4864, 24, 14, 2), 152000), "tie_word_embeddings": True,
        },
    ),
    "google/paligemma-3b-pt-224": Shape(
        "paligemma", 2923,
        {
            "vision_config": _vision("siglip_vision_model", _SO400M, 224, 14, projection_dim=2048, **_NO_HEAD),
            "text_config": _text("gemma", (2048, 16384, 18, 8, 1), 257216, head_dim=256), "projection_dim": 2048,
        },
    ),
    "google/gemma-3-4b-it": Shape(
        "gemma3", 4300,
        {
            "vision_config": _vision("siglip_vision_model", _SO400M, 896, 14, **_NO_HEAD), "mm_tokens_per_image": 256,
            "text_config": _text("gemma3_text", (2560, 10240, 34, 8, 4), 262208, head_dim=256),
        },
    ),
    "Salesforce/instructblip-vicuna-7b": Shape(
        "instructblip", 7914,
        {
            "vision_config": _vision(None, (1408, 6144, 39, 16), 224, 14),
            "qformer_config": {
                "vocab_size": 30523, "hidden_size": 768, "num_hidden_layers": 12, "num_attention_heads": 12,
                "intermediate_size": 3072, "encoder_hidden_size": 1408,
            },
            "text_config": _text("llama", (4096, 11008, 32, 32, 32), 32001), "num_query_tokens": 32,
        },
    ),
    "florence-community/Florence-2-base": Shape(
        "florence2", 231,
        {
            "vision_config": {"projection_dim": 768},
            "text_config": {
                "model_type": "bart", "vocab_size": 51290, "d_model": 768, "encoder_layers": 6, "decoder_layers": 6,
                "encoder_attention_heads": 12, "decoder_attention_heads": 12, "encoder_ffn_dim": 3072,
                "decoder_ffn_dim": 3072, "max_position_embeddings": 1024,
            },
        },
    ),
    "facebook/chameleon-7b": Shape(
        "chameleon", 7035,
        {**_text(None, (4096, 11008, 32, 32, 32), 65536), "vocabulary_map": {"<image>": 8711}},
    ),
}  # fmt: skip

# Open models that model=mllm/hub reads, of other text sides than those above.
FURTHER_SHAPES = {
    "Salesforce/blip2-opt-2.7b": Shape(
        "blip-2", 3745,
        {
            "vision_config": _vision(None, (1408, 6144, 39, 16), 224, 14),
            "qformer_config": {
                "vocab_size": 30522, "hidden_size": 768, "num_hidden_layers": 12, "num_attention_heads": 12,
                "intermediate_size": 3072, "encoder_hidden_size": 1408,
            },
            "text_config": {
                "model_type": "opt", "vocab_size": 50304, "hidden_size": 2560, "ffn_dim": 10240,
                "num_hidden_layers": 32, "num_attention_heads": 32, "word_embed_proj_dim": 2560,
                "max_position_embeddings": 2048, "pad_token_id": 1,
            },
            "num_query_tokens": 32,
        },
    ),
}  # fmt: skip
FURTHER_SHAPES["InstructBLIP on OPT 2.7B"] = Shape(
    "instructblip", 3788, FURTHER_SHAPES["Salesforce/blip2-opt-2.7b"].keys
)
