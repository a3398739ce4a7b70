"""Vision-language models small enough to build in every test, each with the real processor class of its family."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from PIL import Image
from tokenizers import AddedToken, Tokenizer, models, pre_tokenizers, processors
from torch import Tensor, nn
from transformers import (
    AutoConfig,
    AutoModelForImageTextToText,
    ChameleonProcessor,
    Florence2Processor,
    Gemma3Processor,
    Idefics3Processor,
    InstructBlipProcessor,
    LlavaOnevisionProcessor,
    LlavaProcessor,
    PaliGemmaProcessor,
    PreTrainedTokenizerFast,
    Qwen2_5_VLProcessor,
    Qwen3VLProcessor,
)
from transformers.models.blip.image_processing_pil_blip import BlipImageProcessorPil
from transformers.models.chameleon.image_processing_pil_chameleon import ChameleonImageProcessorPil
from transformers.models.clip.image_processing_pil_clip import CLIPImageProcessorPil
from transformers.models.gemma3.image_processing_pil_gemma3 import Gemma3ImageProcessorPil
from transformers.models.idefics3.image_processing_pil_idefics3 import Idefics3ImageProcessorPil
from transformers.models.llava_onevision.image_processing_pil_llava_onevision import LlavaOnevisionImageProcessorPil
from transformers.models.qwen2_vl.image_processing_pil_qwen2_vl import Qwen2VLImageProcessorPil
from transformers.models.siglip.image_processing_pil_siglip import SiglipImageProcessorPil

from supertrainer.models.mllm import MllmModel
from supertrainer.models.processors import UnreadVideoSettings, pictures_only, save_reader
from supertrainer.models.schema import MllmModelConfig

WORDS = 60
SPECIAL = (
    "<pad>", "<unk>", "<s>", "</s>", "<image>", "<fake_token_around_image>", "<global-img>", "<end_of_utterance>",
    "<boi>", "<eoi>", "<|image_pad|>", "<|video_pad|>", "<|vision_start|>", "<|vision_end|>", "<video>",
    "<image_soft>", "<racm3:break>", "<eoss>", "\n",
)  # fmt: skip
VOCABULARY = 128
NUMBERS = {token: number for number, token in enumerate(SPECIAL)}
SIDE = 28
VISION = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 24}
TEXT: dict[str, Any] = {
    "vocab_size": VOCABULARY, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2,
    "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 8, "max_position_embeddings": 128,
    "pad_token_id": 0, "bos_token_id": 2, "eos_token_id": 3,
}  # fmt: skip
GEMMA = {**TEXT, "sliding_window": 64, "query_pre_attn_scalar": 8}
MROPE = {"rope_type": "default", "mrope_section": [1, 1, 2], "rope_theta": 10000.0}


def siglip(**keys: Any) -> dict[str, Any]:
    size = {"image_size": SIDE, "patch_size": 14, "vision_use_head": False}
    return {"model_type": "siglip_vision_model", **VISION, **size, **keys}


CONFIGS: dict[str, dict[str, Any]] = {
    "idefics3": {
        "vision_config": {**VISION, "image_size": SIDE, "patch_size": 7},
        "text_config": {"model_type": "llama", **TEXT}, "image_token_id": 4, "scale_factor": 2,
    },
    "llava": {
        "vision_config": {"model_type": "clip_vision_model", **VISION, "image_size": SIDE, "patch_size": 14},
        "text_config": {"model_type": "llama", **TEXT}, "image_token_id": 4,
    },
    "llava_onevision": {
        "vision_config": siglip(), "text_config": {"model_type": "qwen2", **TEXT}, "image_token_id": 4,
        "video_token_id": 14, "image_grid_pinpoints": [[28, 28], [28, 56], [56, 28]], "vision_feature_layer": -1,
    },
    "paligemma": {
        "vision_config": siglip(projection_dim=32),
        "text_config": {"model_type": "gemma2", **GEMMA, "vocab_size": 1300}, "projection_dim": 32, "image_token_id": 4,
    },
    "gemma3": {
        "vision_config": siglip(), "text_config": {"model_type": "gemma3_text", **GEMMA}, "mm_tokens_per_image": 4,
        "image_token_id": 15, "boi_token_id": 8, "eoi_token_id": 9,
    },
    "qwen2_5_vl": {
        "vision_config": {
            "depth": 2, "hidden_size": 16, "num_heads": 2, "intermediate_size": 24, "out_hidden_size": 32,
            "patch_size": 14, "window_size": 56, "fullatt_block_indexes": [1],
        },
        "text_config": {**TEXT, "rope_parameters": MROPE}, "image_token_id": 10, "video_token_id": 11,
        "vision_start_token_id": 12, "vision_end_token_id": 13,
    },
    "qwen3_vl": {
        "vision_config": {
            "depth": 2, "hidden_size": 16, "num_heads": 2, "intermediate_size": 24, "out_hidden_size": 32,
            "patch_size": 14, "num_position_embeddings": 16, "deepstack_visual_indexes": [0],
        },
        "text_config": {**TEXT, "rope_parameters": MROPE}, "image_token_id": 10, "video_token_id": 11,
        "vision_start_token_id": 12, "vision_end_token_id": 13,
    },
    "instructblip": {
        "vision_config": {**VISION, "image_size": SIDE, "patch_size": 14},
        "qformer_config": {
            "vocab_size": VOCABULARY, "hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2,
            "intermediate_size": 24, "encoder_hidden_size": 16, "max_position_embeddings": 64,
        },
        "text_config": {"model_type": "llama", **TEXT}, "num_query_tokens": 3, "image_token_index": 4,
    },
    "florence2": {
        "vision_config": {
            "depths": [1, 1], "patch_size": [7, 3], "patch_stride": [4, 2], "patch_padding": [3, 1],
            "patch_prenorm": [False, True], "embed_dim": [8, 16], "num_heads": [2, 2], "num_groups": [2, 2],
            "window_size": 4, "projection_dim": 32, "drop_path_rate": 0.0,
        },
        "text_config": {
            "model_type": "bart", "vocab_size": VOCABULARY, "d_model": 32, "encoder_layers": 2, "decoder_layers": 2,
            "encoder_attention_heads": 4, "decoder_attention_heads": 4, "encoder_ffn_dim": 48, "decoder_ffn_dim": 48,
            "max_position_embeddings": 128, "pad_token_id": 0, "bos_token_id": 2, "eos_token_id": 3,
            "decoder_start_token_id": 3, "forced_eos_token_id": None, "dropout": 0.0, "init_std": 0.06,
        },
        "image_token_id": 4,
    },
    "chameleon": {
        **TEXT,
        "vocabulary_map": {
            **{"<image>": 4, "<racm3:break>": 16, "<eoss>": 17},
            **{"IMGIMG" + letter + "Z": 100 + number for number, letter in enumerate("ABCDEFGH")},
        },
        "vq_config": {
            "embed_dim": 8, "num_embeddings": 8, "latent_channels": 8, "resolution": 32, "base_channels": 32,
            "channel_multiplier": [1, 1], "num_res_blocks": 1,
        },
    },
}  # fmt: skip
FAMILIES = tuple(CONFIGS)


def tiny_text_tokenizer() -> PreTrainedTokenizerFast:
    """`w0` … `w59` are one token each; a text begins with <s>."""
    words = [*SPECIAL, *(f"w{number}" for number in range(WORDS))]
    tokenizer = Tokenizer(models.WordLevel({word: number for number, word in enumerate(words)}, unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer.add_special_tokens([AddedToken(token, normalized=False, special=True) for token in SPECIAL])
    tokenizer.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 2)])
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, pad_token="<pad>", unk_token="<unk>", bos_token="<s>", eos_token="</s>",
        model_input_names=["input_ids", "attention_mask"],
    )  # fmt: skip


def tiny_processor(family: str) -> Any:
    """The processor of a family, for pictures of 28 × 28."""
    tokenizer, square = tiny_text_tokenizer(), {"height": SIDE, "width": SIDE}
    match family:
        case "idefics3":
            edge = {"longest_edge": SIDE}
            pictures = Idefics3ImageProcessorPil(size=edge, max_image_size=edge, do_image_splitting=False)
            return Idefics3Processor(pictures, tokenizer, image_seq_len=4)
        case "llava":
            pictures = CLIPImageProcessorPil(size={"shortest_edge": SIDE}, crop_size=square)
            return LlavaProcessor(
                pictures, tokenizer, patch_size=14, vision_feature_select_strategy="default",
                num_additional_image_tokens=1,
            )  # fmt: skip
        case "llava_onevision":
            grid = [[28, 28], [28, 56], [56, 28]]
            pictures = LlavaOnevisionImageProcessorPil(size=square, image_grid_pinpoints=grid)
            made = pictures_only(LlavaOnevisionProcessor)(
                pictures, tokenizer, num_image_tokens=4, vision_feature_select_strategy="full"
            )
            return _with_video(made, "LlavaOnevisionVideoProcessor")
        case "paligemma":
            pictures = SiglipImageProcessorPil(size=square)
            pictures.image_seq_length = 4
            tokenizer.image_token, tokenizer.image_token_id = "<image>", 4
            return PaliGemmaProcessor(pictures, tokenizer)
        case "gemma3":
            names = {"image_token": "<image_soft>", "boi_token": "<boi>", "eoi_token": "<eoi>"}
            tokenizer = PreTrainedTokenizerFast(
                tokenizer_object=tokenizer.backend_tokenizer, pad_token="<pad>", bos_token="<s>", eos_token="</s>",
                extra_special_tokens=names,
            )  # fmt: skip
            return Gemma3Processor(Gemma3ImageProcessorPil(size=square), tokenizer, image_seq_length=4)
        case "qwen2_5_vl" | "qwen3_vl":
            edges = {"shortest_edge": SIDE * SIDE, "longest_edge": 4 * SIDE * SIDE}
            pictures = Qwen2VLImageProcessorPil(patch_size=14, size=edges)
            known = Qwen2_5_VLProcessor if family == "qwen2_5_vl" else Qwen3VLProcessor
            return _with_video(pictures_only(known)(pictures, tokenizer), "Qwen2VLVideoProcessor")
        case "florence2":
            pictures = CLIPImageProcessorPil(size=square, do_center_crop=False)
            pictures.image_seq_length = 17
            tokenizer = PreTrainedTokenizerFast(
                tokenizer_object=tokenizer.backend_tokenizer, pad_token="<pad>", bos_token="<s>", eos_token="</s>",
                unk_token="<unk>", extra_special_tokens={"image_token": "<image>"},
            )  # fmt: skip
            return Florence2Processor(pictures, tokenizer)
        case "instructblip":
            questions = tiny_text_tokenizer()
            return InstructBlipProcessor(BlipImageProcessorPil(size=square), tokenizer, questions, num_query_tokens=3)
        case _:
            edge, crop = {"shortest_edge": 32}, {"height": 32, "width": 32}
            pictures = ChameleonImageProcessorPil(size=edge, crop_size=crop)
            tokenizer.image_token = "<image>"
            return ChameleonProcessor(pictures, tokenizer, image_seq_length=256)


def _with_video(processor: Any, kind: str) -> Any:
    vars(processor)["video_processor"] = UnreadVideoSettings({"video_processor_type": kind, "min_pixels": 7})
    return processor


def tiny_mllm(family: str = "idefics3", *, seed: int = 0, **keys: Any) -> Any:
    """A model of two layers a tower, with weights great enough for its tokens to matter to each other."""
    config = AutoConfig.for_model(family, **{**CONFIGS[family], **keys})
    torch.manual_seed(seed)
    model = AutoModelForImageTextToText.from_config(config)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.ndim > 1:
                parameter.mul_(4)
    return model.eval()


def save_mllm(directory: Path, family: str = "idefics3", *, dtype: str = "float32", **keys: Any) -> Path:
    """Writes a model with its processor; returns the directory."""
    tiny_mllm(family, **keys).to(getattr(torch, dtype)).save_pretrained(directory)
    save_reader(tiny_processor(family), directory)
    return directory


def mllm(source: Path | str | None, **keys: Any) -> MllmModel:
    """The model of a directory."""
    place = {} if source is None else {"source": str(source)}
    return MllmModel(MllmModelConfig(_target_="supertrainer.models.mllm.MllmModel", **place, **keys))


MARKS = {"gemma3": "<boi>", "instructblip": "", "qwen2_5_vl": "<|vision_start|><|image_pad|><|vision_end|>"}
MARKS["qwen3_vl"] = MARKS["qwen2_5_vl"]


def picture(number: int, size: int = SIDE) -> Image.Image:
    """A plain picture, of another colour for every number."""
    return Image.new("RGB", (size, size), (40 * number % 256, 250 - 60 * number % 256, 90))


def tiny_batch(processor: Any, family: str = "idefics3", *, answers: tuple[int, ...] = (2, 5)) -> dict[str, Tensor]:
    """Two rows with a picture each, by the family's processor, padded at their end; of each the answer is labelled."""
    mark = MARKS.get(family, "<image>")
    if family == "florence2":
        return _divided_batch(processor, answers=answers)
    prompts = [f"{mark} w{number} w{number + 7}" for number in range(len(answers))]
    texts = [
        f"{prompt} " + " ".join(f"w{place + 11}" for place in range(length))
        for prompt, length in zip(prompts, answers, strict=True)
    ]
    processor.tokenizer.padding_side = "right"
    more = {"suffix": [" ".join(text.split()[3:]) for text in texts]} if family == "paligemma" else {}
    given = prompts if family == "paligemma" else texts
    batch = dict(
        processor(
            text=given, images=[[picture(number)] for number in range(len(answers))], padding=True, return_tensors="pt",
            **more,
        )
    )  # fmt: skip
    ids = batch["input_ids"]
    ends = batch["attention_mask"].sum(dim=1)
    labels = torch.full_like(ids, -100)
    for row, length in enumerate(answers):
        labels[row, ends[row] - length : ends[row]] = ids[row, ends[row] - length : ends[row]]
    return {**batch, "labels": labels}


def _divided_batch(processor: Any, *, answers: tuple[int, ...]) -> dict[str, Tensor]:
    """As `tiny_batch`: the encoder's tokens by the processor, the decoder's behind </s> and <s>."""
    asked = {"text": ["w0 w7", "w1 w8"], "images": [picture(0), picture(1)]}
    batch = dict(processor(**asked, padding=True, return_tensors="pt"))
    width = 2 + max(answers)
    written, labels = torch.zeros(2, width, dtype=torch.long), torch.full((2, width), -100)
    written[:, :2] = torch.tensor([3, 2])
    for row, length in enumerate(answers):
        ids = processor.tokenizer(" ".join(f"w{n + 11}" for n in range(length)), add_special_tokens=False)["input_ids"]
        written[row, 2 : 2 + length] = labels[row, 2 : 2 + length] = torch.tensor(ids)
    return {**batch, "decoder_input_ids": written, "decoder_attention_mask": (written != 0).long(), "labels": labels}


def shaken(model: nn.Module, *, by: float = 0.1) -> nn.Module:
    """Moves every trained weight, as training would."""
    generator = torch.Generator().manual_seed(3)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.requires_grad:
                parameter += by * torch.randn(parameter.shape, generator=generator)
    return model.eval()


def logits(model: nn.Module, batch: dict[str, Tensor]) -> Tensor:
    given = {name: values for name, values in batch.items() if name != "labels"}
    with torch.no_grad():
        found: Tensor = model(**given).logits
    return found
