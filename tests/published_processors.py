"""Processors of the families behind configs/model/mllm at their published sizes of pictures, and folders to read.

Tokenizers are made here (a token for every byte); what pictures become is as published.
"""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

from transformers import AutoModelForImageTextToText, Qwen2_5_VLProcessor, Qwen3VLProcessor
from transformers.models.llava_onevision.image_processing_pil_llava_onevision import LlavaOnevisionImageProcessorPil
from transformers.models.llava_onevision.processing_llava_onevision import LlavaOnevisionProcessor
from transformers.models.qwen2_vl.image_processing_pil_qwen2_vl import Qwen2VLImageProcessorPil

import tiny_vision
from mllm_families import Shape
from supertrainer.models.architecture import build_skeleton
from supertrainer.models.processors import UnreadVideoSettings, pictures_only, save_reader
from tiny_vision import QWEN, tiny_picture_tokenizer

_TAGS = {"float32": "F32", "bfloat16": "BF16"}


def published_processor(shape: Shape) -> Any:
    """The processor of a published model: a picture becomes as many tokens, and as many pixels, as there."""
    config = shape.config()
    vision = vars(config).get("vision_config")
    size = getattr(vision, "image_size", None)
    square = {"height": size, "width": size}
    match shape.model_type:
        case "idefics3":
            made = tiny_vision.tiny_idefics3(image_seq_len=(size // vision.patch_size // config.scale_factor) ** 2)
            made.image_processor.size = {"longest_edge": 4 * size}
            made.image_processor.max_image_size = {"longest_edge": size}
        case "llava":
            made = tiny_vision.tiny_llava(patch_size=vision.patch_size)
            made.image_processor.size, made.image_processor.crop_size = {"shortest_edge": size}, square
        case "paligemma":
            made = tiny_vision.tiny_paligemma()
            made.image_processor.size = square
            made.image_processor.image_seq_length = made.image_seq_length = (size // vision.patch_size) ** 2
        case "gemma3":
            made = tiny_vision.tiny_gemma3(image_seq_length=config.mm_tokens_per_image)
            made.image_processor.size = square
        case "instructblip" | "blip-2":
            tiny = tiny_vision.tiny_instructblip if shape.model_type == "instructblip" else tiny_vision.tiny_blip2
            made = tiny(num_query_tokens=config.num_query_tokens)
            made.image_processor.size = square
        case "florence2":
            made = tiny_vision.tiny_florence2()
            made.image_processor.size = {"height": 768, "width": 768}
            made.image_processor.image_seq_length = made.num_image_tokens = 577
        case "chameleon":
            made = tiny_vision.tiny_chameleon(image_seq_length=1024)
            made.image_processor.size = {"shortest_edge": 512}
            made.image_processor.crop_size = {"height": 512, "width": 512}
        case "llava_onevision":
            grid = [[384 * rows, 384 * columns] for rows in range(1, 7) for columns in range(1, 7)]
            pictures = LlavaOnevisionImageProcessorPil(size=square, image_grid_pinpoints=grid)
            known, template = pictures_only(LlavaOnevisionProcessor), QWEN.replace("<|image_pad|>", "<image>")
            tokens = {"num_image_tokens": 729, "vision_feature_select_strategy": "full", "chat_template": template}
            made = _with_video(known(pictures, tiny_picture_tokenizer(), **tokens), "LlavaOnevisionVideoProcessor")
        case _:
            pictures = Qwen2VLImageProcessorPil(
                patch_size=vision.patch_size, size={"shortest_edge": 3136, "longest_edge": 1024 * 28 * 28}
            )
            known = pictures_only(Qwen2_5_VLProcessor if shape.model_type == "qwen2_5_vl" else Qwen3VLProcessor)
            made = _with_video(known(pictures, tiny_picture_tokenizer(), chat_template=QWEN), "Qwen2VLVideoProcessor")
    made.tokenizer.chat_template = made.chat_template
    return made


def save_published(shape: Shape, directory: Path, *, dtype: str = "bfloat16") -> Path:
    """Writes a published config.json, the processor, and a file of weights whose header is as of real ones and whose
    values take no room on the disk.
    """
    processor = published_processor(shape)
    save_reader(processor, directory)
    tokenizer = processor.tokenizer
    written = "<|image_pad|>" if "qwen" in shape.model_type else "<image>"
    ids = {"image_token_id": tokenizer.convert_tokens_to_ids(written), "dtype": dtype}
    (directory / "config.json").write_text(json.dumps({"model_type": shape.model_type, **shape.keys, **ids}))
    skeleton = build_skeleton(AutoModelForImageTextToText, shape.config(), attention="auto", trust_remote_code=False)
    header: dict[str, Any] = {}
    end, width = 0, 2 if dtype == "bfloat16" else 4
    for name, parameter in skeleton.named_parameters():
        begin, end = end, end + width * math.prod(parameter.shape)
        header[name] = {"dtype": _TAGS[dtype], "shape": list(parameter.shape), "data_offsets": [begin, end]}
    written_header = json.dumps(header).encode()
    with (directory / "model.safetensors").open("wb") as file:
        file.write(len(written_header).to_bytes(8, "little") + written_header)
        file.truncate(8 + len(written_header) + end)
    return directory


def _with_video(processor: Any, kind: str) -> Any:
    vars(processor)["video_processor"] = UnreadVideoSettings({"video_processor_type": kind, "min_pixels": 7})
    return processor
