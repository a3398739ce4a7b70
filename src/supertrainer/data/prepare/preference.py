"""Pairs of a better and a worse answer to a prompt, and single answers that were liked or not."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from supertrainer.data.prepare.chat import MESSAGE_NAMES, PROMPT_NAMES, alpaca_prompt, first_of, messages_of, side
from supertrainer.data.prepare.labelled import object_of
from supertrainer.data.prepare.record import Raw, Row, RowFault, shown, text_of

TURN = "\n\nAssistant:"  # in the texts of Anthropic's hh-rlhf
_BOTH = {"1": True, "true": True, "1.0": True, "0": False, "false": False, "0.0": False}


def preference_converter(*, conversational: bool) -> Callable[[Raw], list[Row]]:
    """Rows with chosen and rejected.

    The prompt is its own column, an instruction with its input, the conversation before, or what both answers begin
    with: the same first messages, or the same text up to the last "\\n\\nAssistant:".
    """

    def convert(raw: Raw) -> list[Row]:
        values = object_of(raw)
        chosen = side(values.get("chosen"), "chosen", conversational=conversational, role="assistant")
        rejected = side(values.get("rejected"), "rejected", conversational=conversational, role="assistant")
        if chosen == rejected:
            raise RowFault("rejected", "is the same as chosen")
        prompt = _prompt(values, conversational=conversational)
        if prompt is None:
            split = _common_messages if conversational else _common_text
            prompt, chosen, rejected = split(chosen, rejected)
        elif conversational and chosen[: len(prompt)] == prompt == rejected[: len(prompt)]:
            chosen, rejected = chosen[len(prompt) :], rejected[len(prompt) :]  # both hold the whole conversation
        return [{"prompt": prompt, "chosen": chosen, "rejected": rejected}]

    return convert


def unpaired_converter(*, conversational: bool) -> Callable[[Raw], list[Row]]:
    """A prompt, a completion, and whether it is a good one."""

    def convert(raw: Raw) -> list[Row]:
        values = object_of(raw)
        label = _BOTH.get(str(values.get("label")).strip().lower())
        if label is None:
            raise RowFault("label", f"is neither true nor false but {shown(values.get('label'))}")
        prompt = side(values.get("prompt"), "prompt", conversational=conversational, role="user")
        completion = side(values.get("completion"), "completion", conversational=conversational, role="assistant")
        return [{"prompt": prompt, "completion": completion, "label": label}]

    return convert


def _prompt(values: Mapping[str, Any], *, conversational: bool) -> Any:
    if "instruction" in values:
        return side(alpaca_prompt(values), "instruction", conversational=conversational, role="user")
    if conversational and (name := first_of(MESSAGE_NAMES, list(values))):
        return messages_of(values[name], name)
    name = first_of(PROMPT_NAMES, [key for key, value in values.items() if value is not None])
    if name is None:
        return None
    return side(values[name], name, conversational=conversational, role="user")


def _common_messages(chosen: list[Any], rejected: list[Any]) -> tuple[Any, Any, Any]:
    same = 0
    while same < min(len(chosen), len(rejected)) and chosen[same] == rejected[same]:
        same += 1
    if not same or same == min(len(chosen), len(rejected)):
        what = "begin with different messages" if not same else "end where the other goes on"
        raise RowFault("prompt", f"is missing, and chosen and rejected {what}")
    return chosen[:same], chosen[same:], rejected[same:]


def _common_text(chosen: str, rejected: str) -> tuple[str, str, str]:
    cut = chosen.rfind(TURN)
    cut = cut + len(TURN) if cut >= 0 else 0
    if not cut or rejected[:cut] != chosen[:cut]:
        raise RowFault("prompt", f"is missing, and chosen and rejected don't share one up to the last {TURN.strip()!r}")
    return text_of(chosen[:cut], "prompt"), chosen[cut:], rejected[cut:]
