"""A language model on a labelled split: its tokens told, some rows answered, and the same before it was trained."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from supertrainer.benchmark.base import spaced
from supertrainer.benchmark.llm import LlmBenchmark
from supertrainer.benchmark.llm_scores import LlmOutputs
from supertrainer.benchmark.results import BenchmarkResult
from supertrainer.benchmark.rows import Conversations
from supertrainer.config.build import build
from supertrainer.config.spine import Config
from supertrainer.core.errors import DataError, SupertrainerError
from supertrainer.core.files import read_json
from supertrainer.core.run_directory import RunDirectory
from supertrainer.data.chat.rendering import render_prompt
from supertrainer.data.chat.turns import as_text
from supertrainer.data.collation import IGNORED, EncodedRows
from supertrainer.inference.engines.hf import HfEngine
from supertrainer.inference.generation import position_limit
from supertrainer.inference.schema import GenerationConfig
from supertrainer.models.saving import TrainedModel
from supertrainer.models.sources import find_source
from supertrainer.operations.labelled import LazyColumn
from supertrainer.trainers.throughput import peak_memory_gib

log = logging.getLogger(__name__)


class Before(NamedTuple):
    """The model as it was before it was trained: what runs it, and what it is, in words."""

    engine: HfEngine
    source: str


def score_answers(
    config: Config,
    run: RunDirectory,
    *,
    split: str,
    engine: HfEngine,
    dataset: Any,
    rows: EncodedRows,
    facts: Mapping[str, Any],
) -> BenchmarkResult:
    """Scores a split of conversations; writes benchmark.json and predictions.jsonl.

    Args:
        split: which rows.
        engine: with the trained model.
        dataset: it has `conversation(split, number)`.
        rows: the split, encoded.
        facts: the metric, and what the result says of model and data.
    """
    trained, settings = engine.trained, config.benchmark
    train = None
    if settings.baselines and "train" in dataset.load():
        train = conversations(dataset, "train", dataset.model_rows("train", trained.tokenizer), trained=trained)
        train = _some(train, count=settings.baseline_rows)
    benchmark: LlmBenchmark = build(
        settings.model_copy(update={"split": split}), allowed=config.allow_targets, train=train, **facts
    )
    scored = conversations(dataset, split, rows, trained=trained)
    prompts = prompts_of(dataset, split, benchmark.answered_rows(scored), trained=trained)
    how: dict[str, Any] = {"prompts": prompts, "generation": settings.generation}
    if settings.before:
        with before_training(config, engine) as before:
            if before is not None:
                benchmark.take_before(scored, predictions=predictions(before.engine, rows, **how), source=before.source)
    start = engine.tokens
    return benchmark.run(
        scored,
        predictions=predictions(engine, rows, **how),
        directory=run,
        count_tokens=lambda: engine.tokens - start,
        peak_memory_gib=lambda: peak_memory_gib(engine.device),
    )


def predictions(
    engine: HfEngine, rows: EncodedRows, *, prompts: Mapping[int, Sequence[int]], generation: GenerationConfig
) -> Iterator[tuple[LlmOutputs, list[int]]]:
    """Losses of all rows with the answers to some: these are generated first.

    Args:
        rows: the split.
        prompts: by row number.
        generation: how they are answered.
    """
    numbers = list(prompts)
    answers = {
        numbers[place]: found[0] for place, found in engine.answers(list(prompts.values()), generation=generation)
    }
    for losses, batch in engine.token_losses(rows):
        yield LlmOutputs(losses, {row: answers[row] for row in batch if row in answers}), batch


def conversations(dataset: Any, split: str, rows: EncodedRows, *, trained: TrainedModel) -> Conversations:
    """A split as the benchmark takes it; nothing is read before it is asked for."""
    places = _places(dataset, split, trained)
    first = {place: number for number, place in reversed(list(enumerate(places)))}

    def labels(number: int) -> Any:
        given = rows[number]["labels"][1:]
        return given[given != IGNORED]

    def asked(number: int) -> str:
        talk = dataset.conversation(split, places[number])
        return as_text(talk.prompt or talk.messages)

    def answer(number: int) -> str | None:
        if first[places[number]] != number:
            return None  # a further part of a long conversation, which is answered once
        text: str | None = dataset.conversation(split, places[number]).answer_text
        return text

    count = len(rows)
    return Conversations(
        prompts=LazyColumn(asked, count),
        answers=LazyColumn(answer, count),
        labels=LazyColumn(labels, count),
        vocabulary=max(len(trained.tokenizer), int(trained.model.config.get_text_config().vocab_size)),  # type: ignore[union-attr, operator]
    )


def prompts_of(dataset: Any, split: str, numbers: Sequence[int], *, trained: TrainedModel) -> dict[int, list[int]]:
    """The token ids of the prompts of these rows; without those that leave no room for an answer, or that the template
    refuses without their answer.
    """
    limit, places = position_limit(trained.model), _places(dataset, split, trained)
    found: dict[int, list[int]] = {}
    refused: list[str] = []
    for number in numbers:
        talk = dataset.conversation(split, places[number])
        if talk.answer_text is None:
            continue
        try:
            found[number] = render_prompt(talk.prompt, trained.tokenizer, tools=talk.tools)
        except DataError as error:
            refused.append(error.problems[0].what)
    if refused:
        log.info("%d prompts aren't answered, for the first one %s", len(refused), refused[0])
    kept = {number: ids for number, ids in found.items() if limit is None or len(ids) < limit}
    if len(kept) < len(found):
        log.info("%d prompts are longer than the model's positions and aren't answered", len(found) - len(kept))
    return kept


@contextlib.contextmanager
def before_training(config: Config, engine: HfEngine) -> Iterator[Before | None]:
    """The model as it was before training: without its adapter, or from where training started; None where that isn't
    known or can't be read.
    """
    from peft import PeftModel

    trained = engine.trained
    if isinstance(trained.model, PeftModel):
        with trained.model.disable_adapter():
            yield Before(engine, "the same weights without the adapter, not trained here")
        return
    source = _started_from(config)
    other = None if source is None else _untrained(config, source, trained)
    yield None if other is None else Before(other, f"{source}, not trained here")


def _started_from(config: Config) -> str | None:
    """Where the weights were before training: what the run's config names."""
    if config.operation == "train":
        return config.model.source
    stored = find_source(config.model.source, revision=config.model.revision).directory.parent / "config.json"
    try:
        found: str | None = read_json(stored)["config"]["model"]["source"]
    except (OSError, ValueError, LookupError, TypeError):
        return None
    return found


def _untrained(config: Config, source: str, trained: TrainedModel) -> HfEngine | None:
    try:
        engine: HfEngine = build(config.engine, allowed=config.allow_targets, source=find_source(source))
        model = engine.trained.model
    except (SupertrainerError, OSError) as error:
        log.info("%s isn't scored beside the trained model: %s", source, str(error).splitlines()[0])
        return None
    held = model.get_input_embeddings().weight.shape[0]  # type: ignore[operator]
    if held < len(trained.tokenizer):
        log.info("%s isn't scored beside the trained model: it doesn't have all of its tokens", source)
        return None
    # With the trained model's tokenizer and template: both are asked the same.
    return HfEngine(config.engine, trained=TrainedModel(model, trained.tokenizer, (), trained.task, {}))


def _some(rows: Conversations, *, count: int) -> Conversations:
    """Evenly spaced rows of a split."""
    chosen = sorted(spaced(len(rows), count=count))
    return Conversations(
        prompts=LazyColumn(lambda place: rows.prompts[chosen[place]], len(chosen)),
        answers=LazyColumn(lambda place: rows.answers[chosen[place]], len(chosen)),
        labels=LazyColumn(lambda place: rows.labels[chosen[place]], len(chosen)),
        vocabulary=rows.vocabulary,
    )


def _places(dataset: Any, split: str, trained: TrainedModel) -> list[int]:
    """The conversation that each encoded row comes from: long ones may be left out or make several rows."""
    return list(dataset.encode(dataset.load()[split], trained.tokenizer)["row"])
