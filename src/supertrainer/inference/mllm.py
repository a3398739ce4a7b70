"""Vision-language models: questions about pictures, or conversations with them, in; answers out."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from supertrainer.core.errors import ConfigError, DataError, Problem, raise_all
from supertrainer.data.chat.control_tokens import ControlRows, ControlTokens
from supertrainer.data.chat.conversation import Conversation
from supertrainer.data.images import PictureFault
from supertrainer.data.prepare.record import RowFault
from supertrainer.data.vision.layouts import PICTURE_NAMES
from supertrainer.data.vision.pictures import PictureReader, PictureStore
from supertrainer.data.vision.processing import PictureProcessor
from supertrainer.data.vision.prompts import PicturePrompts, Prompt, asked_in_row, picture_prompt
from supertrainer.inference.base import InferenceResult, TaskInferencer
from supertrainer.inference.engines.hf import HfEngine
from supertrainer.inference.generation import position_limit
from supertrainer.inference.llm import answer_cells, answer_columns, in_order, problems_of_rows
from supertrainer.inference.reading import Row, Rows
from supertrainer.inference.schema import MllmInferencerConfig
from supertrainer.models.saving import TrainedModel

log = logging.getLogger(__name__)
ASKED = ("messages", "conversations", "question", "prompt")
CONVERSATIONS = ASKED[:2]


class MllmInferencer(TaskInferencer):
    """Answers a file's questions about pictures with a trained model and the chat template that is stored with it."""

    config: MllmInferencerConfig
    text_key = "inferencer.columns.prompt"

    def __init__(self, config: MllmInferencerConfig, *, engine: HfEngine) -> None:
        """
        Args:
            config: file, columns, where pictures are, how text is generated.
            engine: runs the trained model.
        """
        super().__init__(config)
        self.engine = engine
        self._column = config.columns.messages or config.columns.prompt or "question"
        self._images = config.columns.images or ()
        self._folder = Path(config.image_root or ".").expanduser()
        self._processor: PictureProcessor | None = None
        self._from_arrow = False
        self._row = 0  # of the file, among those with a question: each has random numbers of its own

    def run(self, *, directory: Path) -> InferenceResult:
        self._row = 0
        return super().run(directory=directory)

    def text_columns(self) -> list[str]:
        return [self._column]

    def added_columns(self) -> Mapping[str, type]:
        return answer_columns(several=self.config.generation.num_samples > 1)

    def is_text(self, value: Any) -> bool:
        return isinstance(value, str | list)

    def predict_rows(self, rows: Sequence[Row]) -> list[Row]:
        store = self._store()
        reader = self._reader(store)
        prompts = PicturePrompts(
            [self._prompt(row, "a row", store=store, reader=reader) for row in rows],
            store,
            self.processor,
            self._trained.tokenizer.pad_token_id,
        )
        generation, first_row = self.config.generation, self._row
        self._row += len(rows)
        answered = self.engine.answers(prompts.ids, generation=generation, first_row=first_row, batch_of=prompts.batch)
        found = in_order(answered, count=len(rows), what="questions")
        return [answer_cells([replace(answer, text=answer.text.strip()) for answer in answers]) for answers in found]

    @property
    def processor(self) -> PictureProcessor:
        """Of the trained model, with its own template."""
        if self._processor is None:
            processor = self._trained.processor
            assert processor is not None, "a vision-language model is read with its processor"
            self._processor = PictureProcessor(processor, chat_template=None)
        return self._processor

    @property
    def _trained(self) -> TrainedModel:
        trained = self.engine.trained
        if trained.task != "image_text_to_text":
            raise ConfigError(
                f"inferencer=mllm with a model that was trained for {trained.task}.",
                why="it doesn't read pictures.",
                fix="inferencer=llm or bert, or model.source=<a vision-language model>.",
            )
        return trained

    def _input(self) -> Rows:
        rows, columns = super()._input(), self.config.columns
        self._from_arrow = rows.format == "parquet"
        if self.config.image_root is None:
            self._folder = rows.path.parent
        first = next((row for chunk in rows for _, row in chunk), {})
        if columns.prompt is None and columns.messages is None:
            self._column = next((name for name in ASKED if name in first), self._column)
        if columns.images is None:
            self._images = tuple(name for name in PICTURE_NAMES if name in first)[:1]
        return rows

    def _column_problems(self, first: Row, name: str) -> list[Problem]:
        columns = self.config.columns
        named = [*(("images", image) for image in self._images), ("system", columns.system), ("tools", columns.tools)]
        return super()._column_problems(first, name) + [
            Problem(
                f"{name} has no column {column!r}. It has: {', '.join(first)}.",
                fix=f"inferencer.columns.{key}=<one of these>.",
            )
            for key, column in named
            if column is not None and column not in first
        ]

    def _has_text(self, row: Row) -> bool:
        value = row.get(self._column)
        return bool(value.strip()) if isinstance(value, str) else bool(value)

    def _check(self, rows: Rows) -> None:
        """Reads every row, and decodes every picture, before the first is answered."""
        super()._check(rows)
        limit = position_limit(self._trained.model)
        wrong: list[Problem] = []
        long: list[str] = []
        control, tokens = ControlRows(), ControlTokens(self._trained.tokenizer)
        for place, row, store, reader in self._with_pictures(rows):
            try:
                prompt = self._prompt(row, place, store=store, reader=reader)
                for reference in prompt["pictures"]:
                    _require_whole(reference, store)
                control.add(place, tokens.within(self._asked(row, reader)[0].messages))
            except (RowFault, _BrokenPicture) as error:
                told = f"{error.field} {error.what}" if isinstance(error, RowFault) else str(error)
                wrong.append(Problem(f"{place}: {told}.", fix="mend the row, or leave it out."))
                continue
            except DataError as error:
                wrong += [Problem(f"{place}: {one.what}", one.why, one.fix) for one in error.problems]
                continue
            if limit is not None and len(prompt["input_ids"]) >= limit:
                long.append(f"{place} ({len(prompt['input_ids']):,})")
        raise_all(DataError, problems_of_rows(wrong, long, limit=limit, what="questions with usable pictures"))
        for line in control.lines():
            log.info(line)

    def _with_pictures(self, rows: Rows) -> Iterator[tuple[str, Row, PictureStore, PictureReader]]:
        for chunk in rows:
            store = self._store()  # holds the pictures of a chunk that are no files
            reader = self._reader(store)
            yield from ((place, row, store, reader) for place, row in chunk if self._has_text(row))

    def _prompt(self, row: Row, place: str, *, store: PictureStore, reader: PictureReader) -> Prompt:
        conversation, pictures = self._asked(row, reader)
        sizes = []
        for reference in pictures:
            try:
                sizes.append(store.size(reference))
            except PictureFault as error:
                raise _BrokenPicture(reference, store, error) from None
        return picture_prompt(conversation, pictures=pictures, sizes=sizes, place=place, processor=self.processor)

    def _asked(self, row: Row, reader: PictureReader) -> tuple[Conversation, list[str]]:
        columns = self.config.columns
        return asked_in_row(
            row,
            reader,
            text=self._column,
            is_conversation=columns.messages is not None or (columns.prompt is None and self._column in CONVERSATIONS),
            images=self._images,
            system=row.get(columns.system or "system") or self.config.system,
            tools=row.get(columns.tools or "tools"),
            from_arrow=self._from_arrow,
        )

    def _store(self) -> PictureStore:
        return PictureStore(max_pixels=self.config.max_pixels, background=self.config.background)

    def _reader(self, store: PictureStore) -> PictureReader:
        return store.reader(None, root=self._folder, pattern=self.config.image_pattern)


class _BrokenPicture(Exception):
    """A picture of a row can't be used."""

    def __init__(self, reference: str, store: PictureStore, fault: PictureFault) -> None:
        super().__init__(f"the picture {store.describe(reference)}".rstrip() + f" {fault}")


def _require_whole(reference: str, store: PictureStore) -> None:
    try:
        store.image(reference)
    except PictureFault as error:
        raise _BrokenPicture(reference, store, error) from None
