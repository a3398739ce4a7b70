"""Which chat template a tokenizer has: the model's own, one that ships, or a file; and that it stays the same one."""

from __future__ import annotations

import hashlib
import importlib.resources
import json
import logging
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

from supertrainer.core.errors import ConfigError
from supertrainer.data.chat.template_arguments import TemplateArguments, arguments_of, set_template_arguments
from supertrainer.data.schema import TEMPLATES

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

log = logging.getLogger(__name__)
TEMPLATE_KEY = "chat_template"  # of what a training notes: the template's hash
NAMES = ", ".join(TEMPLATES)
# Tokens that a shipped template writes as such; the others only need the tokenizer's own begin and end.
_MARKERS = {
    "chatml": ("<|im_start|>", "<|im_end|>"),
    "gemma": ("<start_of_turn>", "<end_of_turn>"),
    "llama3": ("<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>"),
}
_ENDS = {"alpaca": "eos_token", "plain": "eos_token", "mistral": "eos_token"}
_BEGINS = ("gemma", "llama3", "mistral")


def apply_template_choice(
    tokenizer: PreTrainedTokenizerBase, choice: str | None, *, arguments: TemplateArguments | None = None
) -> str:
    """Sets the chosen template on a tokenizer, so that it is saved with it. The same choice again changes nothing.

    Line ends become "\\n": a template is read back so, and Jinja renders both alike.

    Args:
        choice: `dataset.chat_template`: a name of `TEMPLATES`, the path of a .jinja file, or None for the tokenizer's
            own.
        arguments: what is written into the template; None leaves it as it is.

    Returns:
        The SHA-256 of the template (see `template_hash`).

    Raises:
        ConfigError: there is no template, the tokenizer lacks tokens that the chosen one writes, or the template
            doesn't read the arguments.
    """
    before = tokenizer.chat_template
    if choice is None:
        own = before
        tokenizer.chat_template = (
            {name: _plain_lines(text) for name, text in own.items()}
            if isinstance(own, dict)
            else _plain_lines(own)
            if own is not None
            else None
        )
    else:
        text = template_source(choice)
        if choice in TEMPLATES:
            _require_tokens(tokenizer, choice)
        tokenizer.chat_template = text
    if arguments is not None and tokenizer.chat_template is not None:
        bare = template_hash(tokenizer)
        set_template_arguments(tokenizer, arguments)
        _tell_change(bare, before, tokenizer)
    return template_hash(tokenizer)


def _tell_change(bare: str, before: Any, tokenizer: PreTrainedTokenizerBase) -> None:
    """Tells the hash that a template has with its arguments, where it didn't have them already."""
    found = template_hash(tokenizer)
    if found != bare and tokenizer.chat_template != before:
        noted = arguments_of(template_text(tokenizer))
        told = [f"{name}={value!r}" for name, value in noted.values.items()]
        told += [] if noted.date is None else [f"the date {noted.date}"]
        log.info("The chat template %s keeps %s, and is %s with it.", bare[:12], ", ".join(told), found[:12])


def template_source(choice: str) -> str:
    """The text of a shipped template, or of a file.

    Raises:
        ConfigError: neither is there.
    """
    if choice in TEMPLATES:
        files = importlib.resources.files("supertrainer.data.chat") / "templates"
        return (files / f"{choice}.jinja").read_text(encoding="utf-8")
    try:
        return _plain_lines(Path(choice).expanduser().read_bytes().decode())
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(
            f"dataset.chat_template={choice} can't be read: {error}.",
            fix=f"one of {NAMES}, or the path of a .jinja file.",
        ) from None


def template_text(tokenizer: PreTrainedTokenizerBase, *, tools: bool = False) -> str:
    """The template that a conversation is rendered with; models may have one of its own for tools.

    Raises:
        ConfigError: the tokenizer has none.
    """
    own = tokenizer.chat_template
    if isinstance(own, dict):
        own = own["tool_use"] if tools and "tool_use" in own else own.get("default")
    if own is None:
        raise ConfigError(
            "the tokenizer of this model has no chat template.",
            why="it says how the turns of a conversation become one text.",
            fix=f"dataset.chat_template: one of {NAMES}, or a .jinja file (alpaca and plain fit every model).",
        )
    text: str = own
    return text


def template_hash(tokenizer: PreTrainedTokenizerBase) -> str:
    """SHA-256 of the tokenizer's template, as 64 hexadecimal digits: what a run notes and inference compares.

    Raises:
        ConfigError: the tokenizer has none.
    """
    own = tokenizer.chat_template
    text = json.dumps(own, sort_keys=True) if isinstance(own, dict) else template_text(tokenizer)
    return hashlib.sha256(_plain_lines(text).encode()).hexdigest()


def require_same_template(
    noted: str | None,
    tokenizer: PreTrainedTokenizerBase,
    *,
    fix: str = "restore chat_template.jinja of the trained model, or train again with the new one.",
) -> None:
    """Checks that a tokenizer has the template that a model was trained with.

    Args:
        noted: `template_hash` at the time of training; None where the model was trained without one.
        fix: what mends it.

    Raises:
        ConfigError: it has another one, or none.
    """
    found = None if tokenizer.chat_template is None else template_hash(tokenizer)
    if noted is None or noted == found:
        return
    raise ConfigError(
        f"the model was trained with the chat template {noted[:12]}, and its tokenizer has "
        f"{'none' if found is None else found[:12]}.",
        why="a model answers badly to prompts that look otherwise than in training.",
        fix=fix,
    )


def has_answer_marks(template: str) -> bool:
    """Whether a template marks what the assistant says with {% generation %}."""
    return re.search(r"\{%-?\s*generation\s*-?%\}", template) is not None


def _require_tokens(tokenizer: PreTrainedTokenizerBase, name: str) -> None:
    """Refuses a template whose marks would be ordinary text: generation would not stop at them."""
    vocabulary = tokenizer.get_vocab()
    missing = [token for token in _MARKERS.get(name, ()) if token not in vocabulary]
    missing += ["one that ends a text (eos_token)"] if name in _ENDS and tokenizer.eos_token is None else []
    missing += ["one that begins a text (bos_token)"] if name in _BEGINS and tokenizer.bos_token is None else []
    if missing:
        raise ConfigError(
            f"dataset.chat_template={name}: the tokenizer of this model has no token {' and '.join(missing)}.",
            why="it would be read as ordinary letters, and the model's answers would not end at it.",
            fix="dataset.chat_template=null (the model's own), or alpaca or plain, which need an end of text only.",
        )


def _plain_lines(text: str) -> str:
    return text.replace("\r\n", "\n").replace("\r", "\n")
