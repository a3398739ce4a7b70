"""A text before every question, written into the chat template: whatever reads the saved template asks with it."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

from supertrainer.core.errors import ConfigError

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

_MARK = "{#- question_prefix -#}"
_END = "{#- the template itself -#}"
_HEAD = re.compile(re.escape(_MARK) + r'\{%- set question_prefix = "([^"]*)" -%\}.*?' + re.escape(_END), re.DOTALL)
_PLAIN = re.compile(r"[A-Za-z0-9 <>/_.,:;?!()-]")
# Messages are changed before the template sees them. The prefix goes before the first words of a content: in parts
# before the first text, in one text behind the placeholders of pictures and the white space that they begin with.
_CODE = """
{%- set asked_with = namespace(messages=[], content=[], is_there=false) -%}
{%- for message in messages -%}
{%- if message.role != 'user' -%}
{%- set asked_with.messages = asked_with.messages + [message] -%}
{%- else -%}
{%- set asked_with.content = [] -%}{%- set asked_with.is_there = false -%}
{%- set is_text = message.content is string -%}
{%- for part in (message.content.split(placeholder) if is_text else message.content) -%}
{%- set text = part if is_text else part.text if part.type == 'text' else '' -%}
{%- if text.strip() and not asked_with.is_there -%}
{%- set asked_with.is_there = true -%}
{%- set lead = text[:text|length - text.lstrip()|length] -%}
{%- set text = lead ~ question_prefix ~ text.lstrip() -%}
{%- set asked_with.content = asked_with.content + [text if is_text else dict(part, text=text)] -%}
{%- else -%}
{%- set asked_with.content = asked_with.content + [part] -%}
{%- endif -%}
{%- endfor -%}
{%- set content = asked_with.content | join(placeholder) if is_text else asked_with.content -%}
{%- set asked_with.messages = asked_with.messages + [dict(message, content=content)] -%}
{%- endif -%}
{%- endfor -%}
{%- set messages = asked_with.messages -%}
"""


def set_question_prefix(tokenizer: PreTrainedTokenizerBase, prefix: str, *, placeholder: str) -> None:
    """Makes a tokenizer's template write a text before every question, in place of the one that it wrote before.

    Args:
        tokenizer: with its template.
        prefix: the text; empty: none.
        placeholder: what stands for a picture in a content that is one text.

    Raises:
        ConfigError: there is no template.
    """
    own = tokenizer.chat_template
    if own is None:
        raise ConfigError(
            f"dataset.question_prefix={prefix!r} with a model that has no chat template.",
            why="the template is what writes it before a question, and keeps it.",
            fix="dataset.chat_template=<one of those that ship, or a .jinja file>.",
        )
    names: Sequence[str] = list(own) if isinstance(own, dict) else ()
    changed = {name: _changed(own[name], prefix, placeholder=placeholder) for name in names}
    tokenizer.chat_template = changed or _changed(own, prefix, placeholder=placeholder)


def question_prefix_of(template: str | None) -> str:
    """What a template writes before every question; empty where it writes nothing of its own."""
    found = _HEAD.match(template or "")
    return "" if found is None else found[1].encode("ascii").decode("unicode-escape")


def prefix_length(template: str) -> int:
    """How many characters of a template are the code of such a text."""
    found = _HEAD.match(template)
    return 0 if found is None else found.end()


def _changed(template: str, prefix: str, *, placeholder: str) -> str:
    bare = _HEAD.sub("", template, count=1) if _HEAD.match(template) else template
    if not prefix:
        return bare
    names = "".join(
        f'{{%- set {name} = "{_escaped(text)}" -%}}'
        for name, text in (("question_prefix", prefix), ("placeholder", placeholder))
    )
    return f"{_MARK}{names}{_CODE}{_END}{bare}"


def _escaped(text: str) -> str:
    """As Jinja and Python read it between quotes: nothing that would end the text, or the template's own code."""
    return "".join(letter if _PLAIN.match(letter) else f"\\U{ord(letter):08x}" for letter in text)
