"""Prompts with none, one and two pictures of several sizes, for tiny vision-language models."""

from __future__ import annotations

from typing import Any

import tiny_vision
from supertrainer.data.chat.conversation import Conversation
from supertrainer.data.vision.pictures import PictureStore
from supertrainer.data.vision.processing import PictureProcessor
from supertrainer.data.vision.prompts import PicturePrompts, picture_prompt
from tiny_mllm import picture, tiny_mllm, tiny_processor

TEMPLATES = {"qwen2_5_vl": tiny_vision.QWEN, "gemma3": tiny_vision.GEMMA, "florence2": None}  # None: the family's own
SHAPES = (0, ()), (1, (28,)), (2, (56, 28)), (3, (70,)), (4, ()), (1, (42, 56))


def tiny_asked(family: str) -> tuple[Any, PicturePrompts]:
    """A model and its prompts: of mixed lengths, and with pictures that only their own row has."""
    processor = tiny_processor(family)
    processor.chat_template = processor.tokenizer.chat_template = TEMPLATES.get(family, tiny_vision.LLAVA)
    reading = PictureProcessor(processor, chat_template=None)
    store = PictureStore(max_pixels=10_000, background="white")
    prompts = []
    for number, (words, sizes) in enumerate(SHAPES):
        references = [
            store.keep(tiny_vision.as_bytes(picture(5 * number + place, size))) for place, size in enumerate(sizes)
        ]
        asked = {"type": "text", "text": " ".join(["w5"] * words + [f"w{number}"])}
        message = {"role": "user", "content": [*({"type": "image"} for _ in references), asked]}
        prompts.append(
            picture_prompt(
                Conversation((message,)),
                pictures=references,
                sizes=[(size, size) for size in sizes],
                place=f"row {number}",
                processor=reading,
            )
        )
    # A decoder whose output is its input's embedding says its own last word again, whatever it is asked.
    keys = {"tie_word_embeddings": False} if family == "florence2" else {}
    return tiny_mllm(family, **keys), PicturePrompts(prompts, store, reading, processor.tokenizer.pad_token_id)
