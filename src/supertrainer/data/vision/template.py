"""The chat template of a processor: which one it is, and in which form it takes a message with pictures."""

from __future__ import annotations

import functools
import importlib.resources
import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from supertrainer.core.errors import ConfigError
from supertrainer.data.chat.conversation import Message
from supertrainer.data.chat.question_prefix import set_question_prefix
from supertrainer.data.chat.rendering import CannotRender, render
from supertrainer.data.chat.template import apply_template_choice
from supertrainer.data.chat.template_arguments import TemplateArguments

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase, ProcessorMixin

Shape = Callable[[Message], Message]

_WORDS = "the text of a question"


@dataclass(frozen=True)
class Family:
    """What is special about processors that were made before there were chat templates.

    Attributes:
        template: their own way to write a question and its answer, as a template: `templates/<name>.jinja`.
        is_prefix: models read the prompt in both directions, and `token_type_ids` say where it ends.
        is_asked: the processor puts pictures before a text that names none; of some models something beside the
            language model reads the question too.
        is_encoder_decoder: an encoder reads pictures and question, and a decoder writes the answer.
        needs_a_picture: the model can't be called without one.
    """

    template: str | None = None
    is_prefix: bool = False
    is_asked: bool = False
    is_encoder_decoder: bool = False
    needs_a_picture: bool = False

    @property
    def begins_behind_pictures(self) -> bool:
        """Whether the token that begins a text stands behind the pictures; the template writes it."""
        return self.is_prefix or self.is_asked


_FAMILIES = {
    "Blip2Processor": Family("instructblip", is_asked=True, needs_a_picture=True),
    "ChameleonProcessor": Family("chameleon"),
    "Florence2Processor": Family("florence2", is_asked=True, is_encoder_decoder=True),
    "InstructBlipProcessor": Family("instructblip", is_asked=True, needs_a_picture=True),
    "PaliGemmaProcessor": Family("paligemma", is_prefix=True),
}


def family_of(processor: ProcessorMixin) -> Family:
    """What is special about a processor; nothing about most."""
    return _FAMILIES.get(type(processor).__name__, Family())


def set_template(
    processor: ProcessorMixin,
    tokenizer: PreTrainedTokenizerBase,
    *,
    choice: str | None,
    arguments: TemplateArguments | None,
    question_prefix: str | None,
    placeholder: str,
) -> None:
    """Gives a processor and its tokenizer the chosen template, so that it is saved with either.

    Args:
        choice: `dataset.chat_template`; null is the processor's own, else the tokenizer's, else the family's.
        arguments: what is written into the template; None leaves it as it is.
        question_prefix: `dataset.question_prefix`; null leaves it to the template.
        placeholder: what stands for a picture in a text.

    Raises:
        ConfigError: as `apply_template_choice`.
    """
    own = vars(processor).get("chat_template")
    family = family_of(processor).template
    if choice is None and own is not None:
        tokenizer.chat_template = own
    elif choice is None and tokenizer.chat_template is None and family is not None:
        files = importlib.resources.files("supertrainer.data.chat") / "templates"
        tokenizer.chat_template = _with_tasks((files / f"{family}.jinja").read_text(encoding="utf-8"), processor)
    apply_template_choice(tokenizer, choice, arguments=arguments)
    if question_prefix is not None:
        set_question_prefix(tokenizer, question_prefix, placeholder=placeholder)
    processor.chat_template = tokenizer.chat_template


def _with_tasks(template: str, processor: ProcessorMixin) -> str:
    """The template with the sentences that a processor has for its tasks' words, where it has some."""
    known: dict[str, Any] = vars(processor)
    for name, key in (("alone", "task_prompts_without_inputs"), ("with_input", "task_prompts_with_input")):
        template = template.replace(f"set {name} = {{}}", f"set {name} = {json.dumps(known.get(key, {}))}")
    return template


def message_shape(tokenizer: PreTrainedTokenizerBase, *, placeholder: str) -> Shape:
    """What makes a message one that the template takes: its content in parts, or as a text with placeholders.

    Raises:
        ConfigError: the template writes no place for a picture, either way.
    """
    asked: Message = {"role": "user", "content": [{"type": "image"}, {"type": "text", "text": _WORDS}]}
    said = ""
    for shape in (_as_parts, functools.partial(_as_text, placeholder=placeholder)):
        try:
            text = render([shape(asked)], tokenizer, add_generation_prompt=True).text
        except CannotRender as error:
            said = said or str(error)
            continue
        if text.count(_WORDS) == 1 and text.count(placeholder) == 1 and "'type'" not in text:
            return shape
    raise ConfigError(
        f"the chat template writes no {placeholder} for a picture" + (f" ({said})." if said else "."),
        why="the model would be asked about pictures that it doesn't see.",
        fix="dataset.chat_template: a template for pictures (a .jinja file), or null for the model's own.",
    )


def _as_parts(message: Message) -> Message:
    content = message["content"]
    return {**message, "content": [{"type": "text", "text": content}]} if isinstance(content, str) else message


def _as_text(message: Message, *, placeholder: str) -> Message:
    content = message["content"]
    if isinstance(content, str):
        return message
    pieces = [placeholder if part["type"] == "image" else part["text"] for part in content]
    return {**message, "content": "\n".join(pieces)}
