"""A model's processor, asked for what its tokenizer can't tell: the tokens that stand for a picture, and its numbers.

Families write a picture in their own way: so many tokens of one kind, rows and columns of tiles, breaks between rows.
None of it is known here. The processor is called with nothing but a picture, a plain one of the same size, and what it
writes for it is taken over. So the tokens of every row are known from headers, and of a batch it is checked that the
processor writes as many for the pictures themselves.
"""

from __future__ import annotations

import contextlib
import itertools
import warnings
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from PIL import Image

from supertrainer.core.errors import ConfigError
from supertrainer.data.chat.conversation import Conversation
from supertrainer.data.chat.question_prefix import question_prefix_of
from supertrainer.data.chat.rendering import CannotRender
from supertrainer.data.chat.template import template_text
from supertrainer.data.chat.template_arguments import TemplateArguments
from supertrainer.data.vision.template import family_of, message_shape, set_template

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase, ProcessorMixin

Size = tuple[int, int]
# What a processor gives about tokens. The rest is about pictures.
TOKEN_KEYS = ("input_ids", "attention_mask", "token_type_ids", "mm_token_type_ids", "labels", "offset_mapping")
# Tokens follow from sizes: the values of a plain picture needn't be right. A third of the time.
_BY_SIZE: dict[str, Any] = {"do_normalize": False, "do_rescale": False, "resample": int(Image.Resampling.NEAREST)}
# If these become the same tokens, pictures of any size do: the processor brings all to one size.
_PROBES: tuple[Size, ...] = ((64, 64), (48, 960), (960, 48), (1600, 1200))
_PER_TOKEN = "cross_attention_mask"  # models that look at pictures beside the text


@dataclass(frozen=True)
class Expansion:
    """What stands in a text for one picture.

    Attributes:
        text: written in place of the placeholder.
        count: how many of its tokens become states of the picture.
    """

    text: str
    count: int


class PictureProcessor:
    """A processor with its template set.

    Args:
        processor: of the model; its template and its tokenizer's become the chosen one.
        chat_template: `dataset.chat_template`.
        question_prefix: `dataset.question_prefix`; null: what the template has of it.
        arguments: what is written into the template; None: what it has of them.

    Raises:
        ConfigError: there is no template, or the processor can't be used so.
    """

    def __init__(
        self,
        processor: ProcessorMixin,
        *,
        chat_template: str | None,
        question_prefix: str | None = None,
        arguments: TemplateArguments | None = None,
    ) -> None:
        tokenizer = vars(processor).get("tokenizer")
        if tokenizer is None:
            raise ConfigError(
                f"{type(processor).__name__} has no tokenizer of its own.",
                why="rows with pictures need the model's whole processor.",
                fix="a model of the group model=mllm/….",
            )
        self.processor = processor
        self.tokenizer: PreTrainedTokenizerBase = tokenizer
        self.placeholder = _placeholder(processor)
        self.family = family_of(processor)
        set_template(
            processor,
            tokenizer,
            choice=chat_template,
            arguments=arguments,
            question_prefix=question_prefix,
            placeholder=self.placeholder,
        )
        self.question_prefix = question_prefix_of(template_text(tokenizer))
        self._shape = message_shape(tokenizer, placeholder=self.placeholder)
        self._expansions: dict[Size, Expansion] = {}
        self._same: Expansion | None = None
        self._by_row = False  # whether a picture is written otherwise beside others
        self._rows: dict[tuple[Size, ...], list[str]] = {}
        self.picture_token = 0
        self.types: dict[str, dict[int, int]] = {}  # name of a column -> token id -> its type, where it isn't 0
        self._probe()

    def shaped(self, conversation: Conversation) -> Conversation:
        """A conversation as the template takes it: content in parts, or as a text with placeholders."""
        return Conversation(tuple(self._shape(message) for message in conversation.messages), conversation.tools)

    def expansion(self, size: Size) -> Expansion:
        """What stands for a picture of this size, (width, height).

        Raises:
            CannotRender: the processor refuses a picture of this size, with its own words.
        """
        if self._same is not None:
            return self._same
        found = self._expansions.get(size)
        if found is None:
            found = self._expansions[size] = self._read_expansion(self._call([[_plain(size)]], **_BY_SIZE))
        return found

    def expand(self, text: str, sizes: Sequence[Size]) -> tuple[str, list[tuple[int, int, int]]]:
        """Puts what stands for pictures into a text.

        Args:
            sizes: of the pictures of its placeholders, in their order.

        Returns:
            The text, and of each picture the place of its placeholder in the text that was given, and its first and
            last character (not included) in the one that is returned.

        Raises:
            CannotRender: there are more or fewer placeholders than pictures, or a picture is refused.
        """
        pieces = text.split(self.placeholder)
        if len(pieces) - 1 != len(sizes):
            raise CannotRender(
                f"the text has {len(pieces) - 1} times {self.placeholder} for {len(sizes)} pictures (a message "
                "that holds it written out, or a template that leaves pictures out)"
            )
        written, places, read = [pieces[0]], [], len(pieces[0])
        length = read
        for piece, stands in zip(pieces[1:], self._texts(sizes), strict=True):
            places.append((read, length, length + len(stands)))
            written += [stands, piece]
            read += len(self.placeholder) + len(piece)
            length += len(stands) + len(piece)
        return "".join(written), places

    def _texts(self, sizes: Sequence[Size]) -> Sequence[str]:
        """What stands for each picture of a row."""
        if not self._by_row or len(sizes) < 2:
            return [self.expansion(size).text for size in sizes]
        key = tuple(sizes)
        if key not in self._rows:
            self._rows[key] = self._read_row(key)
        return self._rows[key]

    def _read_row(self, sizes: Sequence[Size]) -> list[str]:
        """What the processor writes for several pictures of one row, with an end of text between them."""
        end, token = self.tokenizer.eos_token, self.tokenizer.eos_token_id
        text = str(end).join([self.placeholder] * len(sizes))
        ids = _lists(self._call([[_plain(size) for size in sizes]], text=text, **_BY_SIZE)["input_ids"])[0]
        groups = [list(run) for is_end, run in itertools.groupby(ids, key=lambda found: found == token) if not is_end]
        texts = [self._text_of(self.stripped(group)) for group in groups]
        return [text for text in texts if text]

    def numbers(
        self, rows: Sequence[Sequence[Image.Image]], *, questions: Sequence[str]
    ) -> tuple[dict[str, torch.Tensor], list[int]]:
        """What a model gets of pictures.

        Args:
            rows: the pictures of rows that have some.
            questions: of these rows, for processors that read them.

        Returns:
            `pixel_values` and what else the family has (sizes, grids, masks), in the order of rows and pictures; and
            how many tokens of each row have to stand for them.

        Raises:
            CannotRender: the processor refuses a picture.
        """
        found = self._call(rows, questions=questions)
        counts = [sum(token == self.picture_token for token in ids) for ids in _lists(found["input_ids"])]
        if self.family.is_asked:  # a text for every picture
            ends = list(itertools.accumulate(map(len, rows)))
            counts = [sum(counts[end - len(row) : end]) for row, end in zip(rows, ends, strict=True)]
        return self._of_pictures(found), counts

    def numbers_of_none(self) -> dict[str, torch.Tensor]:
        """What a model gets of a batch of texts alone: nothing, or where it can't be called so, a plain picture, whose
        states go nowhere since no token stands for it.
        """
        return self._of_pictures(self._blank) if self.family.needs_a_picture else {}

    def _of_pictures(self, called: Any) -> dict[str, torch.Tensor]:
        kept = {name: value for name, value in called.items() if name not in TOKEN_KEYS}
        numbers = {name: value for name, value in kept.items() if isinstance(value, torch.Tensor)}
        if not numbers:
            raise self._unfit(f"it gives no tensor of pictures but {', '.join(kept) or 'nothing'}")
        return numbers

    def settings(self) -> dict[str, Any]:
        """What tokens of pictures follow from, beside their sizes: for the key of a cache."""
        return {"processor": self.processor.to_json_string(), "expansion": self._read_expansion(self._blank).text}

    def written_by_processor(self, text: str, sizes: Sequence[Size]) -> list[int]:
        """The ids that the processor itself gives for a text with placeholders, and plain pictures; see `stripped`."""
        return self.stripped(_lists(self._call([[_plain(size) for size in sizes]], text=text)["input_ids"])[0])

    def _probe(self) -> None:
        """Learns what stands for a picture, and whether its size matters."""
        try:
            self._blank = self._call([[_plain(_PROBES[0])]])
        except CannotRender as error:
            raise self._unfit(str(error)) from None
        if _PER_TOKEN in self._blank:
            raise self._unfit("its models look at pictures beside the text, not between its tokens")
        ids = self.stripped(_lists(self._blank["input_ids"])[0])
        own = getattr(self.tokenizer, "image_token_id", None)  # tokenizers answer for tokens of their own
        told = [token for token in (own, vars(self.processor).get("image_token_id")) if token in ids]
        self.picture_token = told[0] if told else Counter(ids).most_common(1)[0][0] if ids else -1
        if self.picture_token not in ids:
            raise self._unfit(f"it writes nothing in place of {self.placeholder}")
        found = self._read_expansion(self._blank)
        self._expansions[_PROBES[0]] = found
        for name in ("token_type_ids", "mm_token_type_ids"):
            if name in self._blank and not self.family.is_prefix:
                pairs = zip(_lists(self._blank["input_ids"])[0], _lists(self._blank[name])[0], strict=True)
                self.types[name] = {token: kind for token, kind in pairs if kind}
        with contextlib.suppress(CannotRender):  # a size that is refused says that sizes matter
            if all(self.expansion(size) == found for size in _PROBES[1:]):
                self._same = found
        if self._same is None and self.tokenizer.eos_token is not None and not self.family.is_asked:
            large = _PROBES[-1]
            self._by_row = self._read_row([large, large]) != [self.expansion(large).text] * 2

    def _read_expansion(self, called: Any) -> Expansion:
        ids = self.stripped(_lists(called["input_ids"])[0])
        return Expansion(self._text_of(ids), sum(token == self.picture_token for token in ids))

    def _text_of(self, ids: list[int]) -> str:
        """Ids as the text that becomes them again."""
        decoded: str = self.tokenizer.decode(ids, skip_special_tokens=False, clean_up_tokenization_spaces=False)
        for text in (decoded, "".join(self.tokenizer.convert_ids_to_tokens(ids))):
            if self.tokenizer(text, add_special_tokens=False, verbose=False)["input_ids"] == ids:
                return text
        raise self._unfit("what it writes for a picture isn't a text of its tokenizer")

    def stripped(self, ids: list[int]) -> list[int]:
        """Tokens without those that a processor puts around any text."""
        tokenizer = self.tokenizer
        around = {tokenizer.bos_token_id, tokenizer.eos_token_id, tokenizer.pad_token_id, tokenizer.sep_token_id}
        if self.family.is_prefix:
            around |= {*tokenizer("\n", add_special_tokens=False)["input_ids"]}
        first, last = 0, len(ids)
        while first < last and ids[first] in around:
            first += 1
        while last > first and ids[last - 1] in around:
            last -= 1
        return ids[first:last]

    def _call(
        self,
        rows: Sequence[Sequence[Image.Image]],
        *,
        text: str | None = None,
        questions: Sequence[str] | None = None,
        **of_pictures: Any,
    ) -> Any:
        texts = [self.placeholder * len(pictures) for pictures in rows] if text is None else [text]
        images: list[Any] = [list(pictures) for pictures in rows]
        if self.family.is_asked:
            asked = [""] * len(rows) if self.family.is_encoder_decoder else questions or [""] * len(rows)
            texts = [question for question, pictures in zip(asked, rows, strict=True) for _ in pictures]
            images = [picture for pictures in rows for picture in pictures]
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", DeprecationWarning)  # PaliGemma's makes an array of a tensor
                return self.processor(
                    text=texts,
                    images=images,
                    padding=True,
                    return_tensors="pt",
                    add_special_tokens=self.family.is_asked,  # who reads the question wants its own
                    **of_pictures,
                )
        # Image processors raise these on sizes that they don't take.
        except (ValueError, TypeError, IndexError, ZeroDivisionError, RuntimeError) as error:
            raise CannotRender(f"{type(self.processor).__name__} says: {error}") from None

    def _unfit(self, what: str) -> ConfigError:
        return ConfigError(
            f"{type(self.processor).__name__} can't be trained with: {what}.",
            why="the tokens of pictures have to stand between those of the text.",
            fix="a model such as SmolVLM, Idefics3, LLaVA, PaliGemma, Gemma 3 or Qwen2.5-VL.",
        )


def _placeholder(processor: ProcessorMixin) -> str:
    known: dict[str, Callable[[Any], Any]] = vars(processor)  # type: ignore[assignment]
    token = known.get("image_token") or known.get("boi_token")
    if token is None:
        raise ConfigError(
            f"{type(processor).__name__} has no token that stands where a picture does.",
            fix="a model such as SmolVLM, Idefics3, LLaVA, PaliGemma, Gemma 3 or Qwen2.5-VL.",
        )
    return str(token)


def _plain(size: Size) -> Image.Image:
    return Image.new("RGB", size, (127, 127, 127))


def _lists(values: Any) -> list[list[int]]:
    found: list[list[int]] = values.tolist() if isinstance(values, torch.Tensor) else [list(row) for row in values]
    return found
