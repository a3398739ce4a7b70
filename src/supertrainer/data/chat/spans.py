"""Which characters of a rendered conversation are answers: what the model has to say after the generation prompt.

A template that marks answers with {% generation %} is believed; the token that ends a turn, and white space that the
prompt of a generation ends before, are added where the marks leave them out. Otherwise answers are found, with two
renders of the conversation and a few of its beginnings:

- the texts of the messages are framed by characters that no text has, and rendered again. Without the frames the text
  has to be the same, else they say nothing. So the place of every message's text is known, also in a template that
  trims white space or leaves out the thoughts of earlier turns.
- an answer begins where the prompt of its generation ends: the text between the message before and the answer (a head)
  is learnt from a real prompt, and looked for again in later conversations.
- it ends with the token that ends the turn (a close), learnt the same way; white space after that token isn't said by
  the model.

What can't be found so is refused; no mask is guessed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from supertrainer.data.chat.conversation import Conversation, Message
from supertrainer.data.chat.frames import FRAME, OPEN, SHUT, STOP, framed
from supertrainer.data.chat.rendering import CannotRender, Rendered, Span, cut, render, require_whole
from supertrainer.data.chat.template import has_answer_marks, template_text

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

_MADE_UP: tuple[Message, Message] = (
    {"role": "user", "content": "a"},
    {"role": "assistant", "content": f"{OPEN}0{STOP}"},
)


class AnswerFinder:
    """Finds answers; what it learns of a template in one conversation serves the next.

    Args:
        tokenizer: has the template.
        shape: makes a message whose content is a text one that the template takes.
    """

    def __init__(
        self, tokenizer: PreTrainedTokenizerBase, *, shape: Callable[[Message], Message] = lambda message: message
    ) -> None:
        self._tokenizer = tokenizer
        self._shape = shape
        added = (token.content for token in tokenizer.added_tokens_decoder.values())
        self._specials = tuple({*tokenizer.all_special_tokens, *added})
        self._heads: dict[str, list[str]] = {}  # role of the message before -> texts between its end and an answer
        self._closes: list[str] = []  # texts between the end of an answer's own text and the end of its turn
        self._ends = self._turn_ends()
        self._gap = self._gap_before_marks()

    @property
    def ends_turns(self) -> bool:
        """Whether the template writes a token after an answer, or may: what it does with others isn't known."""
        return self._ends != []

    def find(self, conversation: Conversation, wanted: Sequence[int]) -> tuple[str, list[Span]]:
        """Renders a conversation.

        Args:
            wanted: numbers of the assistant's messages whose spans are asked for, ascending.

        Returns:
            The text, and the span of each of these answers.

        Raises:
            CannotRender: the template refuses the conversation, or an answer can't be found in the text.
        """
        marked = has_answer_marks(template_text(self._tokenizer, tools=bool(conversation.tools)))
        rendered = self._render(conversation, conversation.messages, with_marks=marked)
        require_whole(conversation, rendered.text, self._tokenizer)
        spans = self._marked(conversation, rendered, wanted) or self._derived(conversation, rendered.text, wanted)
        before = 0
        for number, (start, end) in zip(wanted, spans, strict=True):
            if not before <= start < end <= len(rendered.text):
                raise _lost(number, rendered.text)
            before = end
        return rendered.text, spans

    def _marked(self, conversation: Conversation, rendered: Rendered, wanted: Sequence[int]) -> list[Span]:
        """The template's own marks, where there is one for every answer."""
        merged: list[Span] = []
        for start, end in rendered.marked:
            if merged and merged[-1][1] == start:
                merged[-1] = (merged[-1][0], end)
            elif start < end:
                merged.append((start, end))
        answers = conversation.answers
        if len(merged) != len(answers):
            return []
        of = dict(zip(answers, merged, strict=True))
        spans = []
        for number in wanted:
            start, end = of[number]
            start -= len(self._gap) * rendered.text.endswith(self._gap, 0, start)
            spans.append((start, self._with_end(rendered.text, end)))
        return spans

    def _with_end(self, text: str, end: int) -> int:
        return next((end + len(token) for token in self._ends or () if text.startswith(token, end)), end)

    def _turn_ends(self) -> list[str] | None:
        """The special token after an answer, behind white space too, from a conversation made up for it; None where the
        template refuses that.
        """
        try:
            text = render([self._shape(message) for message in _MADE_UP], self._tokenizer).text
        except CannotRender:
            return None
        after = text.rpartition(_MADE_UP[1]["content"])[2]
        bare = after.lstrip()
        white = after[: len(after) - len(bare)]
        return [white + token for token in sorted(self._specials, key=len, reverse=True) if bare.startswith(token)][:1]

    def _gap_before_marks(self) -> str:
        """White space between the prompt of a generation and what the template marks: the model has to say it too."""
        asked, said = (self._shape(message) for message in _MADE_UP)
        if not has_answer_marks(template_text(self._tokenizer)):
            return ""
        try:
            whole = render((asked, said), self._tokenizer, with_marks=True)
            prompt = render((asked,), self._tokenizer, add_generation_prompt=True).text
        except CannotRender:
            return ""
        start = next((start for start, end in whole.marked if start < end), 0)
        gap = whole.text[len(prompt) : start]
        return gap if whole.text.startswith(prompt) and gap.isspace() else ""

    def _derived(self, conversation: Conversation, text: str, wanted: Sequence[int]) -> list[Span]:
        places = self._places(conversation, text)
        spans: dict[int, Span] = {}
        for number in reversed(wanted):  # the last turn is the one that no template rewrites: the others learn from it
            start = self._start(conversation, number, text, places)
            end = None if start is None else self._end(conversation, number, text, places, start=start)
            if start is None or end is None:
                raise _lost(number, text)
            spans[number] = (start, end)
        return [spans[number] for number in wanted]

    def _places(self, conversation: Conversation, text: str) -> dict[tuple[str, int], int]:
        """Where the texts of messages begin and end: (OPEN or SHUT, number) -> place; empty where unknown."""
        if any(mark in text for mark in (OPEN, SHUT, STOP)):
            return {}
        try:
            other = self._render(conversation, framed(conversation.messages)).text
        except CannotRender:
            return {}
        places: dict[tuple[str, int], int] = {}
        twice: set[tuple[str, int]] = set()
        plain: list[str] = []
        read = length = 0
        for frame in FRAME.finditer(other):
            plain.append(other[read : frame.start()])
            length += frame.start() - read
            read = frame.end()
            key = (frame[1], int(frame[2]))
            twice |= {key} & places.keys()
            places[key] = length
        if "".join([*plain, other[read:]]) != text:
            return {}
        return {key: place for key, place in places.items() if key not in twice}

    def _start(
        self, conversation: Conversation, number: int, text: str, places: dict[tuple[str, int], int]
    ) -> int | None:
        """Where the prompt of an answer ends."""
        own = places.get((OPEN, number))
        if number == 0:
            return own
        before = conversation.messages[number - 1]
        shut, trail = places.get((SHUT, number - 1)), _trail(before)
        heads = self._heads.setdefault(before["role"], [])
        if shut is not None:
            for head in heads:
                for found in (trail + head, head):
                    if text.startswith(found, shut) and (own is None or shut + len(found) <= own):
                        return shut + len(found)
        prompt = self._beginning(conversation, number, add_generation_prompt=True)
        if prompt is None or not text.startswith(prompt):
            return own
        if shut is not None and not trail and len(prompt) >= shut:
            _learn(heads, text[shut : len(prompt)])
        return len(prompt)

    def _end(
        self, conversation: Conversation, number: int, text: str, places: dict[tuple[str, int], int], *, start: int
    ) -> int | None:
        """Where the turn of an answer ends."""
        message = conversation.messages[number]
        shut, trail = None if message.get("tool_calls") else places.get((SHUT, number)), _trail(message)
        if shut is not None:
            for close in self._closes:
                for found in (trail + close, close):
                    if text.startswith(found, shut):
                        return shut + len(found)
        whole = self._beginning(conversation, number + 1, add_generation_prompt=False)
        if whole is not None and text.startswith(whole):
            end = start + len(self._without_white(text[start : len(whole)]))
            if shut is not None and not trail and end >= shut:
                _learn(self._closes, text[shut:end])
            return end
        if shut is not None:
            return self._with_end(text, shut)
        # Calls without a text of their own, written otherwise than as a last turn: up to the end before the next text.
        followed = places.get((OPEN, number + 1))
        if followed is None:
            return None
        ends = ((text.rfind(close, start, followed), close) for close in (*self._closes, *(self._ends or ())))
        return next((place + len(close) for place, close in ends if place > start), None)

    def _without_white(self, text: str) -> str:
        stripped = text.rstrip()
        return stripped if stripped.endswith(self._specials) else text

    def _beginning(self, conversation: Conversation, count: int, *, add_generation_prompt: bool) -> str | None:
        messages = conversation.messages[:count]
        try:
            return self._render(conversation, messages, add_generation_prompt=add_generation_prompt).text
        except CannotRender:
            return None

    def _render(
        self,
        conversation: Conversation,
        messages: Sequence[Message],
        *,
        add_generation_prompt: bool = False,
        with_marks: bool = False,
    ) -> Rendered:
        return render(
            messages,
            self._tokenizer,
            tools=conversation.tools,
            add_generation_prompt=add_generation_prompt,
            with_marks=with_marks,
        )


def _trail(message: Message) -> str:
    content = message["content"]
    text: str = content if isinstance(content, str) else content[-1].get("text", "")
    return text[len(text.rstrip()) :] if text.strip() else ""


def _learn(known: list[str], text: str) -> None:
    if text and text not in known:  # an empty one would fit everywhere
        known.append(text)
        known.sort(key=len, reverse=True)


def _lost(number: int, text: str) -> CannotRender:
    return CannotRender(f"messages[{number}], an answer, can't be found in the text that it writes:\n{cut(text)}")
