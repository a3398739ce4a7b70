"""A processor for an untrained vision-language model: its tokenizer from a list of words, its pictures of one size.

It is a function of the config alone, made in milliseconds, and saved with what is trained.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers
from transformers import Idefics3Processor, LlavaProcessor, PreTrainedTokenizerFast, ProcessorMixin
from transformers.models.idefics3.image_processing_pil_idefics3 import Idefics3ImageProcessorPil
from transformers.models.siglip.image_processing_pil_siglip import SiglipImageProcessorPil

from supertrainer.config.nearest import did_you_mean
from supertrainer.core.errors import ConfigError

_PAD, _END, _USER, _ASSISTANT, _IMAGE = "<|pad|>", "<|end|>", "<|user|>", "<|assistant|>", "<image>"
_SPECIAL = (_PAD, _END, _USER, _ASSISTANT, _IMAGE)
_OF_IDEFICS = ("<fake_token_around_image>", "<global-img>", "<end_of_utterance>")
_SPACE = "Ġ"  # how the byte-level alphabet writes a space
_PIXELS = ([0.5, 0.5, 0.5], [0.5, 0.5, 0.5])  # mean and deviation: values from -1 to 1

TEMPLATE = (
    "{% for message in messages %}"
    "{{ '<|' + ('assistant' if message.role == 'assistant' else 'user') + '|>' }}"
    "{% if message.role == 'assistant' %}{% generation %}"
    "{% if message.content is string %}{{ message.content }}"
    "{% else %}{% for part in message.content %}{{ part.text }}{% endfor %}{% endif %}"
    "{{ '<|end|>' }}{% endgeneration %}"
    "{% else %}"
    "{% if message.content is string %}{{ message.content }}"
    "{% else %}{% for part in message.content %}"
    "{% if part.type == 'image' %}{{ '<image>' }}{% else %}{{ part.text }}{% endif %}"
    "{% endfor %}{% endif %}"
    "{{ '<|end|>' }}{% endif %}"
    "{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|assistant|>' }}{% endif %}"
)


def make_processor(config: Mapping[str, Any], *, words: Sequence[str]) -> ProcessorMixin:
    """The processor of an untrained model.

    Args:
        config: `model.config`: model_type, and of vision_config image_size and patch_size.
        words: each is one token where it stands as a word of its own; any other text is written in bytes.

    Raises:
        ConfigError: the architecture's processor isn't made here, or the config lacks what it follows from.
    """
    maker = _MAKERS.get(config.get("model_type", ""))
    if maker is None:
        raise ConfigError(
            f"model.words with model.config.model_type={config.get('model_type')}: no processor of it is made here.",
            fix=f"{did_you_mean(str(config.get('model_type')), _MAKERS)} Or model.words=null and "
            "model.tokenizer=<a directory with a processor>.",
        )
    vision = config.get("vision_config") or {}
    if lacking := [key for key in ("image_size", "patch_size") if not isinstance(vision.get(key), int)]:
        raise ConfigError(
            f"model.config.vision_config.{lacking[0]} is not given.",
            why="the size of pictures and the number of their tokens follow from it.",
            fix="image_size=64 patch_size=8, say.",
        )
    processor = maker(config, vision, words)
    processor.chat_template = vars(processor)["tokenizer"].chat_template = TEMPLATE
    return processor


def words_tokenizer(words: Sequence[str], *, special: Sequence[str]) -> PreTrainedTokenizerFast:
    """A tokenizer with a token for each of the words, and for every byte.

    Its merges build each word from the front, and only behind a space, so that no merge of one word can break another;
    every piece of text begins with a space that isn't shown.
    """
    vocabulary = {
        token: number for number, token in enumerate([*special, *sorted(pre_tokenizers.ByteLevel.alphabet())])
    }
    as_bytes = pre_tokenizers.ByteLevel(add_prefix_space=True, use_regex=True)
    merges: dict[tuple[str, str], None] = {}
    for word in dict.fromkeys(words):
        for piece, _ in as_bytes.pre_tokenize_str(word):
            for end in range(2, len(piece) + 1) if piece.startswith(_SPACE) else ():
                merges[(piece[: end - 1], piece[end - 1])] = None
    for front, last in merges:
        vocabulary.setdefault(front + last, len(vocabulary))
    tokenizer = Tokenizer(models.BPE(vocabulary, list(merges)))
    tokenizer.pre_tokenizer = as_bytes
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([AddedToken(token, normalized=False, special=True) for token in special])
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        pad_token=_PAD,
        eos_token=_END,
        additional_special_tokens=[token for token in special if token not in (_PAD, _END)],
        model_input_names=["input_ids", "attention_mask"],
    )


def _idefics3(config: Mapping[str, Any], vision: Mapping[str, Any], words: Sequence[str]) -> ProcessorMixin:
    size, side = vision["image_size"], vision["image_size"] // vision["patch_size"]
    mean, deviation = _PIXELS
    pictures = Idefics3ImageProcessorPil(
        size={"longest_edge": size},
        max_image_size={"longest_edge": size},
        do_image_splitting=False,
        image_mean=mean,
        image_std=deviation,
    )
    tokenizer = words_tokenizer(words, special=(*_SPECIAL, *_OF_IDEFICS))
    return Idefics3Processor(pictures, tokenizer, image_seq_len=(side // config.get("scale_factor", 2)) ** 2)


def _llava(config: Mapping[str, Any], vision: Mapping[str, Any], words: Sequence[str]) -> ProcessorMixin:
    mean, deviation = _PIXELS
    square = {"height": vision["image_size"], "width": vision["image_size"]}
    return LlavaProcessor(
        SiglipImageProcessorPil(size=square, image_mean=mean, image_std=deviation),
        words_tokenizer(words, special=_SPECIAL),
        patch_size=vision["patch_size"],
        vision_feature_select_strategy=config.get("vision_feature_select_strategy", "default"),
        num_additional_image_tokens=0 if vision.get("model_type", "").startswith("siglip") else 1,
        image_token=_IMAGE,
    )


_Maker = Callable[[Mapping[str, Any], Mapping[str, Any], Sequence[str]], ProcessorMixin]
_MAKERS: Mapping[str, _Maker] = {"idefics3": _idefics3, "llava": _llava}
