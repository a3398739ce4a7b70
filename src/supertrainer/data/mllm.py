"""Conversations, questions and captions with pictures, for a vision-language model."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from supertrainer.config.tasks import Task
from supertrainer.core.errors import ConfigError
from supertrainer.data.chat.conversation import Conversation, read_conversation
from supertrainer.data.chat.encoding import trained_answers
from supertrainer.data.chat.template_arguments import TemplateArguments
from supertrainer.data.conversations import MALFORMED, NO_ANSWER, ConversationDataset
from supertrainer.data.findings import Findings, Kind
from supertrainer.data.images import PictureFault
from supertrainer.data.preview import TextView, text_views
from supertrainer.data.rows import Rows
from supertrainer.data.schema import MllmDatasetConfig
from supertrainer.data.tables import RawRows
from supertrainer.data.tokenization import resolve_max_length
from supertrainer.data.validation import RowChecks
from supertrainer.data.vision import layouts
from supertrainer.data.vision.encoding import PictureJob
from supertrainer.data.vision.pictures import PictureStore
from supertrainer.data.vision.processing import PictureProcessor, Size
from supertrainer.data.vision.prompts import picture_prompt
from supertrainer.data.vision.rows import PictureRows

if TYPE_CHECKING:
    import datasets
    from transformers import ProcessorMixin

BROKEN = Kind(
    "rows with pictures that can't be used",
    why="they would stop the training when their turn comes.",
    fix="mend or replace the files, or dataset.on_broken_pictures=drop.",
    short="with pictures that can't be used",
)
KEPT = ("messages", "tools", "pictures", "sizes", "question_type", "references", "identity")


class MllmDataset(ConversationDataset[MllmDatasetConfig]):
    """Rows for a vision-language model. What the other tasks call a tokenizer is the model's processor here.

    Args:
        config: source, splits, layout, pictures, template, what is learnt, and policies.
        seed: the run's seed, for made splits and limits where the config has no `split_seed`.
        label_names: there are none.
        task: what the rows are for.

    Raises:
        ConfigError: the model doesn't read pictures.
    """

    def __init__(
        self,
        config: MllmDatasetConfig,
        *,
        seed: int,
        label_names: Sequence[str] | None = None,
        task: Task = "image_text_to_text",
    ) -> None:
        super().__init__(config, seed=seed)
        if task != "image_text_to_text":
            raise ConfigError(
                f"the dataset holds pictures with text, and the model is for {task}.",
                fix="a model of the group model=mllm/…, or a dataset of dataset=llm/… or bert/….",
            )
        self.task: Task = task
        self.store = PictureStore(max_pixels=config.max_pixels, background=config.background)
        self._processors: list[tuple[Any, PictureProcessor]] = []

    @property
    def text_columns(self) -> list[str]:
        """Rows are told apart by what is said and by their pictures."""
        return ["messages", "identity"]

    @property
    def wanted_columns(self) -> list[str]:
        return layouts.wanted(self.config)

    def to_rows(self, raw: RawRows, *, where: str, findings: Findings) -> Rows:
        return layouts.to_rows(raw, config=self.config, store=self.store, where=where, findings=findings)

    def check(self, splits: Mapping[str, Rows], checks: RowChecks) -> dict[str, Rows]:
        """Leaves out, or notes, rows that aren't of their layout, with unusable pictures, or without an answer."""
        return {split: self._checked(split, rows, checks) for split, rows in splits.items()}

    def _checked(self, split: str, rows: Rows, checks: RowChecks) -> Rows:
        config = self.config
        malformed = {index: fault for index, fault in enumerate(rows.columns["fault"]) if fault}
        broken = {index: fault for index, fault in enumerate(rows.columns["picture_fault"]) if fault}
        broken |= self._undecodable(rows, skip=malformed.keys() | broken.keys())
        silent: dict[int, str] = {}
        for index, text in enumerate(rows.columns["messages"]):
            if index not in malformed and config.train_on != "all":
                silent |= {} if trained_answers(read_conversation(text), config.train_on) else {index: ""}
        checks.treat(split, rows, malformed, kind=MALFORMED, policy=config.on_malformed_rows)
        checks.treat(split, rows, broken, kind=BROKEN, policy=config.on_broken_pictures)
        checks.treat(split, rows, silent, kind=NO_ANSWER, policy=config.on_nothing_to_learn)
        kept = rows.without(malformed.keys() | broken.keys() | silent.keys())
        for what, counts in (
            ("Pictures of a row", Counter(map(len, kept.columns["pictures"]))),
            ("Answers of a question", Counter(filter(None, map(len, kept.columns["references"])))),
            ("Types of questions", Counter(filter(None, kept.columns["question_type"]))),
        ):
            told = ", ".join(f"{name} in {count:,}" for name, count in sorted(counts.items()))
            checks.findings.remark(f"{what}: {told}", place=split) if counts else None
        return Rows({key: kept.columns[key] for key in KEPT}, kept.places)

    def _undecodable(self, rows: Rows, *, skip: Any) -> dict[int, str]:
        """Decodes pictures of a split, evenly spaced, up to `dataset.decode_check`: row -> what is wrong."""
        users: dict[str, list[int]] = {}
        for index, references in enumerate(rows.columns["pictures"]):
            for reference in references if index not in skip else ():
                users.setdefault(reference, []).append(index)
        names, most = list(users), self.config.decode_check
        if most is not None and len(names) > most:
            names = [names[place] for place in np.linspace(0, len(names) - 1, most).astype(int)] if most else []
        faults: dict[int, str] = {}
        for name in names:
            try:
                self.store.image(name)
            except PictureFault as error:
                faults |= dict.fromkeys(users[name], f"{self.store.describe(name) or 'picture'} {error}".strip())
        return faults

    def unit_keys(self, rows: Rows, checks: RowChecks) -> list[bytes]:
        """Rows about the same pictures stay on one side of made splits."""
        own = checks.keys(rows)
        about = rows.columns["identity"]
        return [key if name == "none" else name.encode() for key, name in zip(own, about, strict=True)]

    def to_dataset(self, rows: Rows) -> datasets.Dataset:
        """`messages` and `tools` as JSON texts, `pictures` (references for `store`), `sizes` (width and height of each,
        one after the other), `question_type` (empty where there is none), `references` (what several people answered,
        the one that is learnt first; empty where there is one answer), `source_row`.
        """
        import datasets

        text = datasets.Value("string")
        kinds = {"pictures": datasets.List(text), "sizes": datasets.List(datasets.Value("int32"))}
        kinds["references"] = datasets.List(text)
        columns = {key: rows.columns[key] for key in KEPT if key != "identity"} | {"source_row": rows.places}
        features = datasets.Features({key: kinds.get(key, text) for key in columns})
        return datasets.Dataset.from_dict(columns, features=features)

    def fingerprint(self) -> dict[str, Any]:
        """As for every dataset, and a hash over the pictures of the rows."""
        return {**super().fingerprint(), "pictures": self.store.fingerprint()}

    def processor(self, processor: ProcessorMixin) -> PictureProcessor:
        """The model's processor with the template of the config set; the same one again gives the same object."""
        for known, made in self._processors:
            if known is processor:
                return made
        config = self.config
        made = PictureProcessor(
            processor,
            chat_template=config.chat_template,
            question_prefix=config.question_prefix,
            arguments=TemplateArguments.of(config),
        )
        self._processors.append((processor, made))
        return made

    def prompt(self, split: str, number: int, processor: ProcessorMixin) -> dict[str, Any]:
        """What a generation gets of a row: `input_ids` (T,), ending where the answer begins; `pictures`, `question`.

        `vision.prompts.PicturePrompts` makes a batch of several, padded on the left.

        Raises:
            DataError: the template refuses the row.
        """
        row = self.load()[split][number]
        return picture_prompt(
            self.conversation(split, number),
            pictures=row["pictures"],
            sizes=size_pairs(row["sizes"]),
            place=row["source_row"],
            processor=self.processor(processor),
        )

    def model_rows(self, split: str, tokenizer: Any) -> PictureRows:
        """A split as a model takes it. The train rows are given only if the rows of every split can be.

        Args:
            tokenizer: the model's processor.

        Raises:
            ConfigError, DataError: as `encode`, for all splits at once.
        """
        self.require_encodable(split, tokenizer)
        rows = self.load()[split]
        return PictureRows(self.encode(rows, tokenizer), rows, store=self.store, processor=self.processor(tokenizer))

    def views(self, split: str, count: int, tokenizer: Any) -> list[TextView]:
        """The first rows of a split as text, with what is learnt of it, and how many tokens each picture has."""
        rows, source = self.model_rows(split, tokenizer), self.load()[split]
        numbers = list(range(min(count, len(rows))))
        places = self._places(self.encode(source, tokenizer), source, numbers)
        pictures = self.processor(tokenizer)
        return text_views(
            rows, numbers, tokenizer=pictures.tokenizer, places=places, picture_token=pictures.picture_token
        )

    def contents(self, rows: datasets.Dataset) -> Iterable[str]:
        yield from super().contents(rows)
        yield from map(str, rows["sizes"])

    def job(self, rows: datasets.Dataset, tokenizer: Any, *, talks: Sequence[Conversation]) -> PictureJob:
        pictures = self.processor(tokenizer)
        return PictureJob(
            config=self.config,
            tokenizer=pictures.tokenizer,
            max_length=resolve_max_length(self.config.max_length, pictures.tokenizer),
            split=self._split_of(rows) or "rows",
            places=rows["source_row"],
            pictures=pictures,
            sizes=list(map(size_pairs, rows["sizes"])),
        )


def size_pairs(sizes: Sequence[int]) -> list[Size]:
    """Width and height of each picture, of a row's `sizes`."""
    return list(zip(sizes[::2], sizes[1::2], strict=True))
