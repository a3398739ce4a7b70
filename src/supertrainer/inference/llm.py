"""Language models: prompts or conversations in, answers out."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from supertrainer.core.errors import ConfigError, DataError, Problem, raise_all
from supertrainer.data.chat.asking import AskedColumns, Form, asked_in_row, usual_columns
from supertrainer.data.chat.control_tokens import ControlRows, ControlTokens
from supertrainer.data.chat.rendering import render_prompt, surplus_begins
from supertrainer.data.prepare.record import RowFault
from supertrainer.inference.base import SHOWN, InferenceResult, TaskInferencer
from supertrainer.inference.engines.hf import HfEngine
from supertrainer.inference.generation import Answer, position_limit
from supertrainer.inference.reading import Row, Rows
from supertrainer.inference.schema import LlmInferencerConfig
from supertrainer.models.saving import TrainedModel

log = logging.getLogger(__name__)

TOLD_EVERY = 20  # answers


class LlmInferencer(TaskInferencer):
    """Answers the prompts of a file with a trained language model and the chat template that is stored with it."""

    config: LlmInferencerConfig
    text_key = "inferencer.columns.prompt"

    def __init__(self, config: LlmInferencerConfig, *, engine: HfEngine) -> None:
        """
        Args:
            config: file, columns, how text is generated.
            engine: runs the trained model.
        """
        super().__init__(config)
        self.engine = engine
        self._columns = AskedColumns(config.columns.messages or config.columns.prompt or "prompt")
        self._row = 0  # of the file, among those with a prompt: each has random numbers of its own

    def run(self, *, directory: Path) -> InferenceResult:
        self._row = 0
        return super().run(directory=directory)

    def text_columns(self) -> list[str]:
        named = self.config.columns
        return [self._columns.text, *(name for name in (named.system, named.tools) if name is not None)]

    def added_columns(self) -> Mapping[str, type]:
        return answer_columns(several=self.config.generation.num_samples > 1)

    def is_text(self, value: Any) -> bool:
        return isinstance(value, str | list)

    def predict_rows(self, rows: Sequence[Row]) -> list[Row]:
        prompts = [self.prompt_of(row) for row in rows]
        generation, first_row = self.config.generation, self._row
        self._row += len(rows)
        found = self.engine.answers(prompts, generation=generation, first_row=first_row)
        return [answer_cells(answers) for answers in in_order(found, count=len(prompts), what="prompts")]

    def prompt_of(self, row: Row) -> list[int]:
        """The token ids of a row's prompt.

        Raises:
            RowFault: its conversation isn't one; names the field.
            DataError: the template refuses it.
        """
        tokenizer = self._trained.tokenizer
        if self.config.plain_text:
            ids: list[int] = tokenizer(row[self._columns.text])["input_ids"]
            ids = ids[surplus_begins(ids, tokenizer) :]
            return ids[:-1] if len(ids) > 1 and ids[-1] == tokenizer.eos_token_id else ids
        talk = asked_in_row(row, self._columns, system=self.config.system)
        return render_prompt(talk.messages, tokenizer, tools=talk.tools)

    @property
    def _trained(self) -> TrainedModel:
        trained = self.engine.trained
        if trained.task != "causal_lm":
            raise ConfigError(
                f"inferencer=llm with a model that was trained for {trained.task}.",
                why="it doesn't write text.",
                fix="inferencer=bert, or model.source=<a language model>.",
            )
        return trained

    def _input(self) -> Rows:
        rows = super()._input()
        if not self.config.plain_text:
            require_template(self._trained, wanted=self.config.chat_template)
        first = next((row for chunk in rows for _, row in chunk), {})
        self._columns = self._asked(first, rows)
        return rows

    def _asked(self, first: Row, rows: Rows) -> AskedColumns:
        """The columns that are named, or that the file has under the usual names."""
        named = self.config.columns
        known: list[tuple[str, Form]] = [] if named.messages is None else [(named.messages, "messages")]
        known += [] if named.prompt is None else [(named.prompt, "prompt")]
        known = known or ([] if self.config.plain_text else usual_columns(first))
        if len(known) > 1:
            names = [name for name, _ in known]
            raise DataError(
                f"{rows.path.name} has the columns {' and '.join(names)}.",
                why="a row is one or the other.",
                fix=", or ".join(
                    f"inferencer.columns.{'prompt' if form == 'prompt' else 'messages'}={name}" for name, form in known
                )
                + ".",
            )
        text, form = known[0] if known else ("prompt", "prompt")
        usual = {name: name if name in first else None for name in ("system", "tools")}
        return AskedColumns(
            text=text,
            form=form,
            system=named.system or usual["system"],
            tools=named.tools or usual["tools"],
            from_arrow=rows.format == "parquet",
        )

    def _has_text(self, row: Row) -> bool:
        value = row.get(self._columns.text)
        return bool(value.strip()) if isinstance(value, str) else bool(value)

    def _check(self, rows: Rows) -> None:
        super()._check(rows)
        limit = position_limit(self._trained.model)
        wrong: list[Problem] = []
        long: list[str] = []
        control, tokens = ControlRows(), ControlTokens(self._trained.tokenizer)
        for place, row in ((place, row) for chunk in rows for place, row in chunk if self._has_text(row)):
            try:
                length = len(self.prompt_of(row))
                if not self.config.plain_text:
                    control.add(place, tokens.within(asked_in_row(row, self._columns).messages))
            except RowFault as fault:
                wrong.append(Problem(f"{place}: {fault.field} {fault.what}.", fix="mend the row, or leave it out."))
                continue
            except DataError as error:
                [problem] = error.problems
                wrong.append(Problem(f"{place}: {problem.what}", problem.why, problem.fix))
                continue
            if limit is not None and length >= limit:
                long.append(f"{place} ({length:,})")
        raise_all(DataError, problems_of_rows(wrong, long, limit=limit, what="conversations"))
        for line in control.lines():
            log.info(line)


def in_order(found: Iterable[tuple[int, Sequence[Answer]]], *, count: int, what: str) -> list[Sequence[Answer]]:
    """Answers by the numbers of their prompts, and a line in the log now and then.

    Args:
        found: numbers with answers, as an engine gives them.
        count: of the prompts; each is answered.
        what: they are, for the log.
    """
    answers: dict[int, Sequence[Answer]] = {}
    for number, given in found:
        answers[number] = given
        if len(answers) % TOLD_EVERY == 0:
            log.info("%d of %d %s answered", len(answers), count, what)
    return [answers[number] for number in range(count)]


def answer_columns(*, several: bool) -> dict[str, type]:
    """The columns that answers add, and what they hold; a list of texts where a prompt has several answers."""
    kind = list if several else str
    return {"predicted": kind, "finish_reason": kind, "prompt_tokens": int, "new_tokens": int}


def answer_cells(answers: Sequence[Answer]) -> Row:
    """What the answers to one prompt add to its row."""
    several = len(answers) > 1
    texts, finishes = [answer.text for answer in answers], [answer.finish for answer in answers]
    return {
        "predicted": texts if several else texts[0],
        "finish_reason": finishes if several else finishes[0],
        "prompt_tokens": answers[0].prompt_tokens,
        "new_tokens": sum(len(answer.tokens) for answer in answers),
    }


def problems_of_rows(wrong: Sequence[Problem], long: Sequence[str], *, limit: int | None, what: str) -> list[Problem]:
    """What is told of faulty rows: the first few, and how many more there are.

    Args:
        wrong: what is wrong with single rows.
        long: places of rows that leave no room for an answer, with their tokens.
        limit: the model's positions.
        what: what the further rows are not.
    """
    told = list(wrong[:SHOWN])
    if len(wrong) > SHOWN:
        told.append(Problem(f"{len(wrong) - SHOWN:,} more rows are no {what}."))
    if long:
        more = f" and {len(long) - SHOWN:,} more" if len(long) > SHOWN else ""
        told.append(
            Problem(
                f"prompts of more tokens than the model's {limit:,} positions: {', '.join(long[:SHOWN])}{more}.",
                why="no position is left for an answer.",
                fix="shorten them.",
            )
        )
    return told


PLAIN_TEXT = "inferencer.plain_text=true goes on with the texts as they stand."


def require_template(trained: TrainedModel, *, wanted: str | None, otherwise: str = PLAIN_TEXT) -> None:
    """Refuses a model without a chat template, and one with another than is asked for.

    Args:
        trained: the model and its tokenizer.
        wanted: the template's text, or the path of a file that holds it; None: whatever is stored with the model.
        otherwise: what can be done with a model that has none.

    Raises:
        ConfigError: with what to do.
    """
    stored = trained.tokenizer.chat_template
    if stored is None:
        raise ConfigError(
            "the model has no chat template.",
            why="none is stored with its tokenizer, so it wasn't trained on conversations here.",
            fix=otherwise,
        )
    if wanted is None:
        return
    path = Path(wanted)
    text = path.read_text(encoding="utf-8") if len(wanted) < 500 and path.is_file() else wanted
    if text.strip() != str(stored).strip():
        raise ConfigError(
            f"chat_template={wanted[:60]!r} isn't the one that is stored with the model.",
            why="a model answers worse in another format than the one that it was trained in.",
            fix="leave chat_template out: the stored one is used.",
        )
