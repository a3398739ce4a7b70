"""A vision-language model on a labelled split: its questions answered, with their pictures and with grey ones."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from supertrainer.benchmark.base import spaced
from supertrainer.benchmark.mllm import MllmBenchmark
from supertrainer.benchmark.mllm_scores import MAIN
from supertrainer.benchmark.results import BenchmarkResult
from supertrainer.benchmark.rows import PictureQuestions
from supertrainer.benchmark.sheet import Tile, draw_sheet
from supertrainer.config.build import build
from supertrainer.config.spine import Config
from supertrainer.core.errors import DataError
from supertrainer.core.files import write_atomic
from supertrainer.core.run_directory import RunDirectory
from supertrainer.data.chat.conversation import Conversation, read_conversation, text_in
from supertrainer.data.chat.turns import as_text
from supertrainer.data.collation import EncodedRows
from supertrainer.data.mllm import size_pairs
from supertrainer.data.vision.prompts import PicturePrompts, picture_prompt
from supertrainer.inference.engines.hf import HfEngine
from supertrainer.inference.generation import Answer, position_limit
from supertrainer.inference.schema import GenerationConfig
from supertrainer.metrics.short_answers import short_answer_scores
from supertrainer.trainers.throughput import peak_memory_gib

log = logging.getLogger(__name__)

SHEET = "sheet.png"
TOLD_EVERY = 1_000  # answers


def score_pictures(
    config: Config,
    run: RunDirectory,
    *,
    split: str,
    engine: HfEngine,
    dataset: Any,
    rows: EncodedRows,
    facts: Mapping[str, Any],
) -> BenchmarkResult:
    """Scores a split of questions about pictures; writes benchmark.json, predictions.jsonl and sheet.png.

    Args:
        split: which rows.
        engine: with the trained model.
        dataset: an `MllmDataset`.
        rows: the split, encoded.
        facts: the metric, and what the result says of model and data.

    Raises:
        DataError: no row has an answer to compare with.
    """
    settings, source = config.benchmark, dataset.load()[split]
    wanted = len(rows) if settings.rows is None else settings.rows
    origins = list(dataset.encode(source, engine.trained.processor)["row"])  # too long rows may be left out
    numbers = sorted({origins[place] for place in spaced(len(rows), count=wanted)})
    scored, prompts = asked_of(dataset, split, numbers, engine=engine)
    train = None
    if settings.baselines and "train" in dataset.load():
        train = questions_of(dataset.load()["train"], range(len(dataset.load()["train"])), store=dataset.store)
    benchmark: MllmBenchmark = build(
        settings.model_copy(update={"split": split}), allowed=config.allow_targets, train=train, **facts
    )
    benchmark.take_without_pictures(scored)
    if settings.blank and any(prompt["pictures"] for prompt in prompts.prompts):
        started = time.perf_counter()
        answers = blank_answers(engine, prompts, generation=settings.generation)
        benchmark.take_blank(scored, answers=answers, seconds=time.perf_counter() - started)
    start, found = engine.tokens, dict[int, str]()
    result = benchmark.run(
        scored,
        predictions=predictions(engine, prompts, generation=settings.generation, kept=found),
        directory=run,
        count_tokens=lambda: engine.tokens - start,
        peak_memory_gib=lambda: peak_memory_gib(engine.device),
    )
    write_sheet(run, scored, prompts=prompts, answers=found, count=settings.sheet, title=_title(result))
    return result


def predictions(
    engine: HfEngine, prompts: PicturePrompts, *, generation: GenerationConfig, kept: dict[int, str]
) -> Iterator[tuple[list[Answer], list[int]]]:
    """The answers as they come, with the numbers of their prompts.

    Args:
        kept: takes the text of every answer, by number.
    """
    for number, answers in engine.answers(prompts.ids, generation=generation, batch_of=prompts.batch):
        kept[number] = answers[0].text.strip()
        if len(kept) % TOLD_EVERY == 0:
            log.info("%d of %d questions answered", len(kept), len(prompts.prompts))
        yield [answers[0]], [number]


def blank_answers(engine: HfEngine, prompts: PicturePrompts, *, generation: GenerationConfig) -> list[str]:
    """What the model answers to grey pictures. Of prompts with the same tokens and sizes one is asked."""
    keys = [
        (prompt["input_ids"].tobytes(), prompt["question"], tuple(prompts.sizes(number)))
        for number, prompt in enumerate(prompts.prompts)
    ]
    first = {key: number for number, key in reversed(list(enumerate(keys)))}
    asked = prompts.some(sorted(first.values())).blank()
    places = {number: place for place, number in enumerate(sorted(first.values()))}
    found = dict(engine.answers(asked.ids, generation=generation, batch_of=asked.batch))
    return [found[places[first[key]]][0].text.strip() for key in keys]


def asked_of(
    dataset: Any, split: str, numbers: Sequence[int], *, engine: HfEngine
) -> tuple[PictureQuestions, PicturePrompts]:
    """Rows of a split as the benchmark takes them, and as the engine does; without those that have no answer to
    compare with, and those that leave the model no room for one.

    Raises:
        DataError: no row is left.
    """
    rows = dataset.load()[split].select(numbers)[:]
    processor, limit = dataset.processor(engine.trained.processor), position_limit(engine.trained.model)
    prompts, kept, long = [], [], 0
    for place, (messages, tools) in enumerate(zip(rows["messages"], rows["tools"], strict=True)):
        talk = read_conversation(messages, tools)
        if talk.answer_text is None:
            continue
        prompt = picture_prompt(
            talk,
            pictures=rows["pictures"][place],
            sizes=size_pairs(rows["sizes"][place]),
            place=rows["source_row"][place],
            processor=processor,
        )
        if limit is not None and len(prompt["input_ids"]) >= limit:
            long += 1
            continue
        prompts.append(prompt)
        kept.append(numbers[place])
    if long:
        log.info("%d prompts are longer than the model's positions and aren't answered", long)
    if not kept:
        raise DataError(
            f"no row of {split} has a question with an answer to compare with.", fix="benchmark.split=<another one>."
        )
    pad_token_id = engine.trained.tokenizer.pad_token_id
    scored = questions_of(dataset.load()[split], kept, store=dataset.store)
    return scored, PicturePrompts(prompts, dataset.store, processor, pad_token_id)


def questions_of(rows: Any, numbers: Sequence[int], *, store: Any) -> PictureQuestions:
    """Rows of a loaded split as the benchmark takes them; all have an answer or are left out.

    Args:
        store: of the dataset, which knows the files of pictures.
    """
    columns = rows.select(numbers)[:]
    talks = [read_conversation(*texts) for texts in zip(columns["messages"], columns["tools"], strict=True)]
    there = [place for place, talk in enumerate(talks) if talk.answer_text is not None]
    return PictureQuestions(
        questions=[_as_text(talks[place]) for place in there],
        references=[columns["references"][place] or (str(talks[place].answer_text),) for place in there],
        types=[columns["question_type"][place] for place in there],
        pictures=[list(map(store.describe, columns["pictures"][place])) for place in there],
        numbers=[numbers[place] for place in there],
    )


def write_sheet(
    run: RunDirectory,
    rows: PictureQuestions,
    *,
    prompts: PicturePrompts,
    answers: Mapping[int, str],
    count: int,
    title: str,
) -> None:
    """Writes sheet.png: rows with their pictures, evenly spaced; removes an older one where none is wanted.

    Args:
        rows: the split.
        prompts: of the rows.
        answers: of the model, by place in `rows`.
        count: rows of the sheet.
        title: above them.
    """
    path = run.path / SHEET
    if not count:
        path.unlink(missing_ok=True)
        return
    tiles = [
        Tile(
            row=rows.numbers[place],
            pictures=[prompts.store.image(reference) for reference in prompts.prompts[place]["pictures"]],
            question=rows.questions[place],
            true=rows.references[place][0],
            predicted=answers[place],
            is_right=short_answer_scores(answers[place], references=rows.references[place])[MAIN] == 1.0,
        )
        for place in sorted(spaced(len(rows), count=count))
    ]
    write_atomic(path, draw_sheet(tiles, title=title))


def _title(result: BenchmarkResult) -> str:
    return f"{result.split}: {result.metrics[MAIN]:.1%} of {result.rows:,} answers right"


def _as_text(conversation: Conversation) -> str:
    """What is asked, as a text to read: without pictures, and of several turns each behind its role."""
    asked = conversation.prompt or conversation.messages
    return as_text([{**message, "content": text_in(message)} for message in asked])
