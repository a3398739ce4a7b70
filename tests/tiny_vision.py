"""Processors of several families small enough to build in every test, and pictures to give them."""

from __future__ import annotations

import io
from collections.abc import Callable
from pathlib import Path
from typing import Any

from PIL import Image

SPECIAL = ("<pad>", "<s>", "</s>", "<|im_start|>", "<|im_end|>", "<image>", "<fake_token_around_image>", "<global-img>")
FURTHER = (
    "<end_of_utterance>",
    "<row_1_col_1>",
    "<|image_pad|>",
    "<|vision_start|>",
    "<|vision_end|>",
    "<boi>",
    "<eoi>",
)
MERGES = (("Ċ", "Ċ"),)  # as in real vocabularies: two line breaks are one token
IDEFICS = (
    "<|im_start|>{% for m in messages %}{{ m['role'] | capitalize }}"
    "{% if m['content'][0]['type'] == 'image' %}:{% else %}: {% endif %}"
    "{% for p in m['content'] %}{% if p['type'] == 'text' %}{{ p['text'] }}{% else %}<image>{% endif %}{% endfor %}"
    "<end_of_utterance>\n{% endfor %}{% if add_generation_prompt %}Assistant:{% endif %}"
)
QWEN = (
    "{% for m in messages %}<|im_start|>{{ m['role'] }}\n{% if m['content'] is string %}{{ m['content'] }}{% else %}"
    "{% for p in m['content'] %}{% if p['type'] == 'image' %}<|vision_start|><|image_pad|><|vision_end|>"
    "{% else %}{{ p['text'] }}{% endif %}{% endfor %}{% endif %}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
# Pictures first, and no token that ends an answer.
LLAVA = (
    "{% for m in messages %}{{ m['role'] | upper }}: "
    "{% for p in m['content'] if p['type'] == 'image' %}<image>\n{% endfor %}"
    "{% for p in m['content'] if p['type'] == 'text' %}{{ p['text'] + ' ' }}{% endfor %}{% endfor %}"
    "{% if add_generation_prompt %}ASSISTANT:{% endif %}"
)
GEMMA = (
    "{{ bos_token }}{% for m in messages %}<|im_start|>{{ 'model' if m['role'] == 'assistant' else m['role'] }}\n"
    "{% if m['content'] is string %}{{ m['content'] | trim }}{% else %}{% for p in m['content'] %}"
    "{% if p['type'] == 'image' %}<boi>{% else %}{{ p['text'] | trim }}{% endif %}{% endfor %}{% endif %}<|im_end|>\n"
    "{% endfor %}{% if add_generation_prompt %}<|im_start|>model\n{% endif %}"
)


def tiny_picture_tokenizer(*, adds_begin: bool = False, **options: Any) -> Any:
    """A tokenizer with a token for every byte, and the special tokens of all families here."""
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, processors
    from transformers import PreTrainedTokenizerFast

    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    rows = [f"<row_{row}_col_{column}>" for row in range(1, 5) for column in range(1, 5)]
    special = list(dict.fromkeys([*SPECIAL, *FURTHER, *rows]))
    words = [*special, *letters, *("".join(pair) for pair in MERGES)]
    backend = Tokenizer(models.BPE(vocab={word: number for number, word in enumerate(words)}, merges=list(MERGES)))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    backend.decoder = decoders.ByteLevel()
    backend.add_special_tokens([AddedToken(token, special=True, normalized=False) for token in special])
    if adds_begin:
        backend.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 1)])
    names = {"pad_token": "<pad>", "bos_token": "<s>", "eos_token": "</s>"}
    return PreTrainedTokenizerFast(tokenizer_object=backend, model_max_length=4096, **{**names, **options})


def tiny_idefics3(**options: Any) -> Any:
    """Tiles of 16×16 pixels, 4 tokens each: the size of a picture says how many."""
    from transformers.models.idefics3.image_processing_pil_idefics3 import Idefics3ImageProcessorPil
    from transformers.models.idefics3.processing_idefics3 import Idefics3Processor

    pictures = Idefics3ImageProcessorPil(size={"longest_edge": 32}, max_image_size={"longest_edge": 16})
    tokenizer = tiny_picture_tokenizer()
    return Idefics3Processor(pictures, tokenizer, **{"image_seq_len": 4, "chat_template": IDEFICS, **options})


def tiny_llava(**options: Any) -> Any:
    """Every picture is 16×16 pixels and 4 tokens."""
    from transformers.models.clip.image_processing_pil_clip import CLIPImageProcessorPil
    from transformers.models.llava.processing_llava import LlavaProcessor

    pictures = CLIPImageProcessorPil(size={"shortest_edge": 16}, crop_size={"height": 16, "width": 16})
    settings = {"patch_size": 8, "vision_feature_select_strategy": "default", "num_additional_image_tokens": 1}
    return LlavaProcessor(
        pictures, tiny_picture_tokenizer(adds_begin=True), **{**settings, "chat_template": LLAVA, **options}
    )


def tiny_paligemma(**options: Any) -> Any:
    """Every picture is 16×16 pixels and 4 tokens; no template."""
    from transformers.models.paligemma.processing_paligemma import PaliGemmaProcessor
    from transformers.models.siglip.image_processing_pil_siglip import SiglipImageProcessorPil

    pictures = SiglipImageProcessorPil(size={"height": 16, "width": 16})
    pictures.image_seq_length = 4
    return PaliGemmaProcessor(pictures, tiny_picture_tokenizer(), **options)


def tiny_qwen2_5_vl(**options: Any) -> Any:
    """A token for every 8×8 pixels."""
    from transformers.models.qwen2_5_vl.processing_qwen2_5_vl import Qwen2_5_VLProcessor
    from transformers.models.qwen2_vl.image_processing_pil_qwen2_vl import Qwen2VLImageProcessorPil

    class Qwen2_5_VLPictures(Qwen2_5_VLProcessor):
        """Without the part for videos, which needs torchvision."""

        @classmethod
        def get_attributes(cls) -> list[str]:
            return ["image_processor", "tokenizer"]

        def __init__(self, image_processor: Any, tokenizer: Any, chat_template: str) -> None:
            from transformers import ProcessorMixin

            self.image_token, self.video_token = "<|image_pad|>", "<video>"
            self.image_token_id, self.video_token_id = tokenizer.convert_tokens_to_ids("<|image_pad|>"), None
            ProcessorMixin.__init__(self, image_processor, tokenizer, chat_template=chat_template)

    pictures = Qwen2VLImageProcessorPil(
        patch_size=4, merge_size=2, temporal_patch_size=2, size={"shortest_edge": 64, "longest_edge": 1024}
    )
    return Qwen2_5_VLPictures(pictures, tiny_picture_tokenizer(), **{"chat_template": QWEN, **options})


def tiny_gemma3(**options: Any) -> Any:
    """Every picture is 16×16 pixels and 4 tokens, framed by line breaks."""
    from transformers.models.gemma3.image_processing_pil_gemma3 import Gemma3ImageProcessorPil
    from transformers.models.gemma3.processing_gemma3 import Gemma3Processor

    names = {"image_token": "<image>", "boi_token": "<boi>", "eoi_token": "<eoi>"}
    tokenizer = tiny_picture_tokenizer(adds_begin=True, extra_special_tokens=names)
    pictures = Gemma3ImageProcessorPil(size={"height": 16, "width": 16})
    return Gemma3Processor(pictures, tokenizer, **{"image_seq_length": 4, "chat_template": GEMMA, **options})


def tiny_chameleon(**options: Any) -> Any:
    """Every picture is 16×16 pixels and 4 tokens between two others; no template."""
    from transformers.models.chameleon.image_processing_pil_chameleon import ChameleonImageProcessorPil
    from transformers.models.chameleon.processing_chameleon import ChameleonProcessor

    names = {"image_token": "<image>", "boi_token": "<boi>", "eoi_token": "<eoi>"}
    tokenizer = tiny_picture_tokenizer(adds_begin=True, sep_token="<|im_end|>", extra_special_tokens=names)
    pictures = ChameleonImageProcessorPil(size={"shortest_edge": 16}, crop_size={"height": 16, "width": 16})
    return ChameleonProcessor(pictures, tokenizer, **{"image_seq_length": 4, **options})


def tiny_florence2(**options: Any) -> Any:
    """Every picture is 16×16 pixels and 4 tokens before the text, which an encoder reads; no template."""
    from transformers.models.clip.image_processing_pil_clip import CLIPImageProcessorPil
    from transformers.models.florence2.processing_florence2 import Florence2Processor

    pictures = CLIPImageProcessorPil(size={"height": 16, "width": 16}, do_center_crop=False)
    pictures.image_seq_length = 4
    tokenizer = tiny_picture_tokenizer(adds_begin=True, extra_special_tokens={"image_token": "<image>"})
    return Florence2Processor(pictures, tokenizer, **options)


def tiny_instructblip(**options: Any) -> Any:
    """Every picture is 16×16 pixels and 4 tokens before the text, whose question a second tokenizer reads."""
    from transformers.models.blip.image_processing_pil_blip import BlipImageProcessorPil
    from transformers.models.instructblip.processing_instructblip import InstructBlipProcessor

    pictures = BlipImageProcessorPil(size={"height": 16, "width": 16})
    tokenizers = tiny_picture_tokenizer(adds_begin=True), tiny_picture_tokenizer(adds_begin=True)
    return InstructBlipProcessor(pictures, *tokenizers, **{"num_query_tokens": 4, **options})


def tiny_blip2(**options: Any) -> Any:
    """Every picture is 16×16 pixels and 4 tokens before the text."""
    from transformers.models.blip.image_processing_pil_blip import BlipImageProcessorPil
    from transformers.models.blip_2.processing_blip_2 import Blip2Processor

    pictures = BlipImageProcessorPil(size={"height": 16, "width": 16})
    return Blip2Processor(pictures, tiny_picture_tokenizer(adds_begin=True), **{"num_query_tokens": 4, **options})


def tiny_llava_onevision(**options: Any) -> Any:
    """A picture alone is written in tiles of 4 tokens, by its size; beside another it is one tile."""
    from transformers.models.llava_onevision.image_processing_pil_llava_onevision import LlavaOnevisionImageProcessorPil
    from transformers.models.llava_onevision.processing_llava_onevision import LlavaOnevisionProcessor

    class LlavaOnevisionPictures(LlavaOnevisionProcessor):
        """Without the part for videos, which needs torchvision."""

        @classmethod
        def get_attributes(cls) -> list[str]:
            return ["image_processor", "tokenizer"]

        def __init__(self, image_processor: Any, tokenizer: Any, chat_template: str) -> None:
            from transformers import ProcessorMixin

            self.num_image_tokens, self.vision_feature_select_strategy = 4, "full"
            self.vision_aspect_ratio = "anyres_max_9"
            self.image_token, self.image_token_id = "<image>", tokenizer.convert_tokens_to_ids("<image>")
            self.video_token, self.video_token_id = "<video>", None
            ProcessorMixin.__init__(self, image_processor, tokenizer, chat_template=chat_template)

    pictures = LlavaOnevisionImageProcessorPil(
        size={"height": 16, "width": 16}, image_grid_pinpoints=[[16, 32], [32, 16], [32, 32]]
    )
    template = QWEN.replace("<|image_pad|>", "<image>")
    return LlavaOnevisionPictures(pictures, tiny_picture_tokenizer(), **{"chat_template": template, **options})


FAMILIES: dict[str, Callable[..., Any]] = {
    "idefics3": tiny_idefics3,
    "llava": tiny_llava,
    "paligemma": tiny_paligemma,
    "qwen2_5_vl": tiny_qwen2_5_vl,
    "gemma3": tiny_gemma3,
    "chameleon": tiny_chameleon,
    "florence2": tiny_florence2,
    "instructblip": tiny_instructblip,
    "blip2": tiny_blip2,
    "llava_onevision": tiny_llava_onevision,
}


def picture(width: int = 20, height: int = 12, colour: tuple[int, int, int] = (200, 30, 40)) -> Image.Image:
    """A picture of one colour with a darker corner."""
    made = Image.new("RGB", (width, height), colour)
    made.paste((10, 10, 10), (0, 0, width // 2, height // 2))
    return made


def as_bytes(made: Image.Image, kind: str = "PNG", **options: Any) -> bytes:
    """A picture as the bytes of a file."""
    stream = io.BytesIO()
    made.save(stream, kind, **options)
    return stream.getvalue()


def save_picture(path: Path, width: int = 20, height: int = 12, **options: Any) -> Path:
    """Writes a picture; gives the path."""
    path.parent.mkdir(parents=True, exist_ok=True)
    picture(width, height, **options).save(path)
    return path
