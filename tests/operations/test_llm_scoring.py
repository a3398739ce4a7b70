"""A model scored on conversations beside what it was before training: without its adapter, or from its source."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import datasets
import peft
import pytest
import torch

from supertrainer.benchmark.results import BenchmarkResult, DataFacts, ModelFacts
from supertrainer.benchmark.schema import LlmBenchmarkConfig
from supertrainer.core.run_directory import RunDirectory
from supertrainer.data.chat.conversation import Conversation, raw_text
from supertrainer.data.chat.rendering import render_prompt
from supertrainer.data.chat.turns import as_text
from supertrainer.data.collation import EncodedRows
from supertrainer.inference.engines.hf import HfEngine
from supertrainer.inference.engines.schema import HfEngineConfig
from supertrainer.metrics.causal_lm import CausalLmMetric
from supertrainer.metrics.schema import CausalLmMetricConfig
from supertrainer.models.loading import quiet_transformers
from supertrainer.models.saving import TrainedModel, load_trained
from supertrainer.operations.llm_scoring import conversations, prompts_of, score_answers
from tiny_chats import TEMPLATE, save_tiny_chat, tiny_chat_model, tiny_chat_tokenizer

ENGINE = HfEngineConfig(_target_="supertrainer.inference.engines.hf.HfEngine", batch_size=3)
TURNS = [(f"w{n} w{n + 1}", f"w{n + 2} w{n + 3} w{n + 4}") for n in range(8)]
FACTS = {
    "metric": CausalLmMetric(CausalLmMetricConfig(_target_="x")),
    "model": ModelFacts(source="tiny", parameters=10, trainable_parameters=10),
    "data": DataFacts(source="rows", rows={"test": 8}),
}


class Chats:
    """A dataset of two splits with the same conversations."""

    def __init__(self, places: Sequence[int] = ()) -> None:
        self.places = list(places)  # of the encoded rows, where some are left out or divided

    def load(self) -> dict[str, list[Any]]:
        return {"train": TURNS, "test": TURNS}

    def conversation(self, split: str, number: int) -> Conversation:
        asked, answered = TURNS[number]
        return Conversation(({"role": "user", "content": asked}, {"role": "assistant", "content": answered}))

    def encode(self, rows: list[Any], tokenizer: Any) -> dict[str, list[int]]:
        return {"row": self.places or list(range(len(rows)))}

    def model_rows(self, split: str, tokenizer: Any) -> EncodedRows:
        encoded: dict[str, list[list[int]]] = {"input_ids": [], "labels": []}
        for number, (_, answered) in enumerate(TURNS):
            prompt = render_prompt(self.conversation(split, number).prompt, tokenizer)
            answer = tokenizer(f"{answered} <|end|>", add_special_tokens=False)["input_ids"]
            encoded["input_ids"].append(prompt + answer)
            encoded["labels"].append([-100] * len(prompt) + answer)
        return EncodedRows(datasets.Dataset.from_dict(encoded))


def adapted(*, shift: float) -> torch.nn.Module:
    config = peft.LoraConfig(target_modules=["q_proj"], task_type="CAUSAL_LM")
    with quiet_transformers():
        model = peft.get_peft_model(tiny_chat_model(), config)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "lora_B" in name:
                parameter += shift
    return model.eval()


def scored(model: torch.nn.Module, directory: Path, *, source: str | None = None, **keys: Any) -> BenchmarkResult:
    trained = TrainedModel(model, tiny_chat_tokenizer(), (), "causal_lm", {})
    settings = {"split": "test", "generation": {"max_new_tokens": 5}, "generate_rows": 4, **keys}
    config: Any = SimpleNamespace(
        benchmark=LlmBenchmarkConfig(_target_="supertrainer.benchmark.llm.LlmBenchmark", **settings),
        allow_targets=(),
        engine=ENGINE,
        operation="train",
        model=SimpleNamespace(source=source, revision=None),
    )
    chats = Chats()
    return score_answers(
        config,
        RunDirectory(directory),
        split="test",
        engine=HfEngine(ENGINE, trained=trained),
        dataset=chats,
        rows=chats.model_rows("test", trained.tokenizer),
        facts=FACTS,
    )


def test_an_adapter_is_scored_beside_its_base(tmp_path: Path) -> None:
    result = scored(adapted(shift=0.2), tmp_path)
    before, unigram = result.baselines
    plain = scored(tiny_chat_model(), tmp_path / "..", predictions=False)
    assert before.metrics == plain.metrics
    assert before.metrics["loss"] != result.metrics["loss"]
    assert (before.name, unigram.name) == ("before training", "unigram")
    records = [json.loads(line) for line in (tmp_path / "predictions.jsonl").read_text().splitlines()]
    assert sum("before" in record for record in records) == 4
    assert any(record["before"] != record["predicted"] for record in records if "before" in record)
    assert all(record["tokens"] == 4 for record in records)


def test_a_fresh_adapter_is_its_base(tmp_path: Path) -> None:
    result = scored(adapted(shift=0.0), tmp_path)
    assert result.metrics == result.baselines[0].metrics


def test_full_weights_are_scored_beside_the_source_that_training_started_from(tmp_path: Path) -> None:
    source = save_tiny_chat(tmp_path / "base")
    result = scored(tiny_chat_model(seed=1), tmp_path, source=str(source))
    assert result.baselines[0].metrics == scored(load_trained(source).model, tmp_path).metrics
    assert result.baselines[0].metrics["loss"] != result.metrics["loss"]


@pytest.mark.parametrize("source", [None, "gone"])
def test_what_it_was_before_may_be_unknown(tmp_path: Path, source: str | None) -> None:
    given = source and str(tmp_path / source)
    result = scored(tiny_chat_model(), tmp_path, source=given)
    assert [baseline.name for baseline in result.baselines] == ["unigram"]


def test_what_is_not_wanted_is_not_scored(tmp_path: Path) -> None:
    result = scored(adapted(shift=0.2), tmp_path, before=False, baselines=False, generate_rows=0)
    assert result.baselines == ()
    assert result.metrics.keys() == {"loss", "perplexity", "accuracy"}


def test_encoded_rows_may_be_fewer_or_parts_of_conversations() -> None:
    trained = TrainedModel(tiny_chat_model(), tiny_chat_tokenizer(), (), "causal_lm", {})
    chats = Chats([1, 4, 4, 7, 0, 2, 3, 5])
    rows = conversations(chats, "test", chats.model_rows("test", trained.tokenizer), trained=trained)
    assert list(rows.prompts)[:4] == [TURNS[number][0] for number in (1, 4, 4, 7)]
    assert list(rows.answers)[:4] == [TURNS[1][1], TURNS[4][1], None, TURNS[7][1]]
    ids = prompts_of(chats, "test", [3], trained=trained)[3]
    assert trained.tokenizer.decode(ids).split()[2:4] == TURNS[7][0].split()


def test_a_prompt_that_the_template_refuses_is_not_answered(caplog: pytest.LogCaptureFixture) -> None:
    strict = f"{{% if messages[0].content == '{TURNS[4][0]}' %}}{{{{ raise_exception('no') }}}}{{% endif %}}{TEMPLATE}"
    trained = TrainedModel(tiny_chat_model(), tiny_chat_tokenizer(chat_template=strict), (), "causal_lm", {})
    with caplog.at_level("INFO"):
        found = prompts_of(Chats([1, 4, 7]), "test", [0, 1, 2], trained=trained)
    assert list(found) == [0, 2]
    assert caplog.messages == ["1 prompts aren't answered, for the first one the chat template refuses a prompt: no."]


def test_the_last_answer_is_the_reference() -> None:
    turns = [{"role": role, "content": text} for role, text in (("user", "a"), ("assistant", "b"), ("user", "c"))]
    talk = Conversation(tuple(turns))
    assert (talk.prompt, talk.answer_text) == (tuple(turns[:1]), "b")
    assert Conversation(tuple(turns[:1])).answer_text is None
    assert Conversation(tuple(turns[1:2])).answer_text is None  # nothing was asked
    assert raw_text("t").answer_text is None
    calling = {"role": "assistant", "content": "", "tool_calls": [{"function": {"name": "f", "arguments": {}}}]}
    assert Conversation((turns[0], calling)).answer_text is None, "a call is no empty text"
    assert (as_text(turns[:1]), as_text(turns[:2])) == ("a", "user: a\nassistant: b")
