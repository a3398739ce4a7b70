"""Answers to a file's prompts and conversations: rendered as trained, refused as a whole where a row is faulty."""

from __future__ import annotations

import csv
import json
import logging
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from supertrainer.core.errors import ConfigError, DataError
from supertrainer.data.chat.rendering import render_prompt
from supertrainer.inference.engines.hf import HfEngine
from supertrainer.inference.engines.schema import HfEngineConfig
from supertrainer.inference.llm import LlmInferencer
from supertrainer.inference.schema import LlmInferencerConfig
from supertrainer.models.saving import TrainedModel, load_trained
from tiny_chats import POSITIONS, TEMPLATE, save_tiny_chat, tiny_chat_model, tiny_chat_tokenizer

PROMPTS = ["w1 w2", "w3", "w4 w5 w6 w7 w8", "w9 w1"]
GENERATION = {"max_new_tokens": 6}


@pytest.fixture
def engine(tmp_path: Path) -> HfEngine:
    trained = load_trained(save_tiny_chat(tmp_path / "model"))
    return HfEngine(HfEngineConfig(_target_="x", batch_size=3), trained=trained)


def engine_of(**options: Any) -> HfEngine:
    trained = TrainedModel(tiny_chat_model(), tiny_chat_tokenizer(**options), (), "causal_lm", {})
    return HfEngine(HfEngineConfig(_target_="x", batch_size=3), trained=trained)


def predicted(engine: HfEngine, path: Path, **keys: Any) -> list[dict[str, Any]]:
    config = LlmInferencerConfig(**{"_target_": "x", "input": str(path), "generation": GENERATION, **keys})
    return table(LlmInferencer(config, engine=engine).run(directory=path.parent).output)


def table(path: Path) -> list[dict[str, Any]]:
    match path.suffix:
        case ".csv":
            with path.open(newline="") as file:
                return list(csv.DictReader(file))
        case ".jsonl":
            return [json.loads(line) for line in path.read_text().splitlines()]
    return pq.read_table(path).to_pylist()


def write(path: Path, rows: list[dict[str, Any]]) -> Path:
    match path.suffix:
        case ".csv":
            with path.open("w", newline="") as file:
                writer = csv.DictWriter(file, list(rows[0]))
                writer.writeheader()
                writer.writerows(rows)
        case ".jsonl":
            path.write_text("".join(json.dumps(row) + "\n" for row in rows))
        case ".parquet":
            pq.write_table(pa.Table.from_pylist(rows), path)
    return path


@pytest.mark.parametrize("chunk_rows", [2, 100])
@pytest.mark.parametrize("ending", [".csv", ".jsonl", ".parquet"])
def test_rows_keep_their_order_and_their_columns(
    tmp_path: Path, engine: HfEngine, ending: str, chunk_rows: int
) -> None:
    rows = [{"id": f"0{number}", "prompt": prompt} for number, prompt in enumerate(PROMPTS)]
    written = predicted(engine, write(tmp_path / f"rows{ending}", rows), chunk_rows=chunk_rows)
    assert [{name: row[name] for name in ("id", "prompt")} for row in written] == rows
    assert list(written[0])[2:] == ["predicted", "finish_reason", "prompt_tokens", "new_tokens"]
    tokenizer = engine.trained.tokenizer
    for row, prompt in zip(written, PROMPTS, strict=True):
        ids = render_prompt([{"role": "user", "content": prompt}], tokenizer)
        [(_, [answer])] = engine.answers(
            [ids], generation=LlmInferencerConfig(_target_="x", generation=GENERATION).generation
        )
        assert row["predicted"] == answer.text
        assert (int(row["prompt_tokens"]), int(row["new_tokens"])) == (len(ids), len(answer.tokens))
        assert row["finish_reason"] == answer.finish
    assert len({row["predicted"] for row in written}) == 4, "rows that don't differ show no order"


def test_a_conversation_is_rendered_with_its_turns_and_its_system_text(tmp_path: Path) -> None:
    engine = engine_of()
    turns = [
        {"role": "user", "content": "w1"},
        {"role": "assistant", "content": "w2"},
        {"role": "user", "content": "w3"},
    ]
    rows = [{"messages": turns}, {"messages": [{"role": "system", "content": "w8"}, *turns]}, {"messages": turns[:1]}]
    seen: list[list[int]] = []
    answers = engine.answers
    engine.answers = lambda prompts, **keys: (seen.extend(prompts), answers(prompts, **keys))[1]  # type: ignore[method-assign, assignment]
    predicted(engine, write(tmp_path / "rows.jsonl", rows), system="w7")
    assert [engine.trained.tokenizer.decode(ids) for ids in seen] == [
        "<s> <|system|> w7 <|end|> <|user|> w1 <|end|> <|assistant|> w2 <|end|> <|user|> w3 <|end|> <|assistant|>",
        "<s> <|system|> w8 <|end|> <|user|> w1 <|end|> <|assistant|> w2 <|end|> <|user|> w3 <|end|> <|assistant|>",
        "<s> <|system|> w7 <|end|> <|user|> w1 <|end|> <|assistant|>",
    ]


def test_a_conversation_may_be_written_as_json_in_a_table(tmp_path: Path, engine: HfEngine) -> None:
    turns = [{"role": "user", "content": "w1 w2"}]
    written = predicted(engine, write(tmp_path / "rows.csv", [{"messages": json.dumps(turns)}]))
    [alone] = predicted(engine, write(tmp_path / "alone.csv", [{"prompt": "w1 w2"}]))
    assert written[0]["predicted"] == alone["predicted"]


def test_a_column_of_system_texts_goes_before_each_prompt(tmp_path: Path, engine: HfEngine) -> None:
    rows = [{"prompt": "w1", "rules": "w5 w6"}, {"prompt": "w1", "rules": ""}]
    written = predicted(engine, write(tmp_path / "rows.jsonl", rows), columns={"system": "rules"})
    assert [row["prompt_tokens"] for row in written] == [9, 5]


def test_several_answers_to_a_prompt_stand_in_a_list(tmp_path: Path, engine: HfEngine) -> None:
    path = write(tmp_path / "rows.parquet", [{"prompt": prompt} for prompt in PROMPTS])
    generation = {**GENERATION, "num_samples": 2, "temperature": 2.0}
    written = predicted(engine, path, generation=generation)
    assert all(len(set(row["predicted"])) == 2 and len(row["finish_reason"]) == 2 for row in written)
    assert written == predicted(engine, path, generation=generation, chunk_rows=1)


def test_plain_text_goes_on_without_a_template(tmp_path: Path) -> None:
    engine = engine_of(chat_template=None)
    path = write(tmp_path / "rows.jsonl", [{"prompt": "w1 w2"}])
    with pytest.raises(ConfigError, match=r"no chat template[\s\S]*plain_text=true"):
        predicted(engine, path)
    [row] = predicted(engine, path, plain_text=True)
    assert row["prompt_tokens"] == 3, "<s> w1 w2"
    [row] = predicted(engine, write(path, [{"prompt": "<s> w1 w2"}]), plain_text=True)
    assert row["prompt_tokens"] == 3, "one token that begins a text"


@pytest.mark.parametrize(
    ("template", "beginning"),
    [(TEMPLATE, [2, 4]), (TEMPLATE.replace("{{ bos_token }}", ""), [2, 4])],
    ids=["in the template", "of the tokenizer"],
)
def test_a_prompt_begins_with_one_beginning_of_text(template: str, beginning: list[int]) -> None:
    ids = render_prompt([{"role": "user", "content": "w1"}], tiny_chat_tokenizer(chat_template=template))
    assert ids[:2] == beginning


def test_another_template_than_the_stored_one_is_refused(tmp_path: Path, engine: HfEngine) -> None:
    path = write(tmp_path / "rows.jsonl", [{"prompt": "w1"}])
    other = tmp_path / "chat.jinja"
    other.write_text(TEMPLATE.replace("<|end|>", ""))
    with pytest.raises(ConfigError, match=r"isn't the one that is stored with the model"):
        predicted(engine, path, chat_template=str(other))
    other.write_text(TEMPLATE + "\n")
    assert predicted(engine, path, chat_template=str(other))


def test_prompts_without_room_are_refused_with_their_places_before_any_work(tmp_path: Path, engine: HfEngine) -> None:
    long = " ".join(["w1"] * POSITIONS)
    path = write(tmp_path / "rows.csv", [{"prompt": "w1"}, {"prompt": long}, {"prompt": long}])
    engine.trained.model.register_forward_pre_hook(lambda *_: pytest.fail("the model was run"))
    with pytest.raises(DataError, match=r"96 positions: rows.csv:3 \(100\), rows.csv:4 \(100\)"):
        predicted(engine, path)


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({"messages": "no"}, r"rows.jsonl:2: messages is a text that is no JSON \(Expecting value\): 'no'"),
        ({"messages": [{"role": "user"}]}, r"rows.jsonl:2: messages\[0\].content is"),
        (
            {"messages": [{"role": "user", "content": "w1"}, {"role": "assistant", "content": "w1"}]},
            r"rows.jsonl:2: messages ends with an answer",
        ),
        ({"messages": [{"role": "judge", "content": "w1"}]}, r"rows.jsonl:2: messages\[0\].role is 'judge', none of"),
        (
            {"messages": [{"role": "user", "content": "w13"}]},
            r"rows.jsonl:2: the chat template refuses a prompt: no w13",
        ),
        (
            {"messages": [{"role": "user", "content": "w1"}], "tools": [3]},
            r"rows.jsonl:2: tools\[0\] is no description of a tool but 3",
        ),
        (
            {"messages": [{"role": "user", "content": "w1"}], "tools": [{"name": "add"}]},
            r"rows.jsonl:2: the chat template refuses a prompt: it doesn't write tools, such as 'add'",
        ),
        ({"messages": [{"role": "user", "content": "w1"}], "system": 3}, r"rows.jsonl:2: system is no text but 3"),
        ({"messages": []}, r"rows.jsonl:2 has no text"),
        ({"messages": 3}, r"rows.jsonl:2: the text is no string"),
    ],
)
def test_a_faulty_row_is_named(tmp_path: Path, row: dict[str, Any], message: str) -> None:
    refusing = (
        "{% for m in messages %}{% if m.content == 'w13' %}{{ raise_exception('no w13') }}{% endif %}{% endfor %}"
    )
    engine = engine_of(chat_template=refusing + TEMPLATE)
    first = {"messages": [{"role": "user", "content": "w1"}], "tools": None, "system": None}
    with pytest.raises(DataError, match=message):
        predicted(engine, write(tmp_path / "rows.jsonl", [first, row]))


WITH_TOOLS = "{% for tool in tools or () %}{{ tool.name }} {% endfor %}" + TEMPLATE
OPENAI = [{"role": "system", "content": "w9"}, {"role": "user", "content": "w1 w2"}]
SHAREGPT = [{"from": "system", "value": "w9"}, {"from": "human", "value": "w1 w2"}]


@pytest.mark.parametrize("ending", [".jsonl", ".parquet"])
@pytest.mark.parametrize(
    ("row", "columns"),
    [
        ({"messages": OPENAI}, {}),
        ({"conversations": SHAREGPT}, {}),
        ({"turns": json.dumps(SHAREGPT)}, {"messages": "turns"}),
        ({"prompt": OPENAI}, {}),
        ({"prompt": "w1 w2", "system": "w9"}, {}),
        ({"question": "w1 w2", "rules": "w9"}, {"prompt": "question", "system": "rules"}),
        ({"dialog": [{"sender": "Ann", "text": "w1"}, {"sender": "Ann", "text": "w2"}], "system": "w9"}, {}),
        ({"instruction": "w1", "input": "w2", "system": "w9"}, {}),
    ],
    ids=str,
)
def test_a_row_is_read_as_in_training(
    tmp_path: Path, row: dict[str, Any], columns: dict[str, str], ending: str
) -> None:
    [found] = predicted(engine_of(), write(tmp_path / f"rows{ending}", [row]), columns=columns)
    [plain] = predicted(engine_of(), write(tmp_path / "plain.jsonl", [{"messages": OPENAI}]))
    assert {name: found[name] for name in plain if name != "messages"} == {
        name: plain[name] for name in plain if name != "messages"
    }


@pytest.mark.parametrize("ending", [".jsonl", ".parquet"])
@pytest.mark.parametrize("key", ["tools", "functions"])
def test_tools_and_calls_are_asked_with(tmp_path: Path, key: str, ending: str) -> None:
    call = {"type": "function", "function": {"name": "w5", "arguments": '{"w6": 1}'}}
    messages = [
        {"role": "user", "content": "w1"},
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "content": "w2", "name": "w5"},
    ]
    template = WITH_TOOLS.replace(
        "{{ m['content'] }}",
        "{% for c in m.tool_calls or () %}{{ c.function.name }} "
        "{{ c.function.arguments.w6 }} {% endfor %}{{ m['content'] }}",
    )
    engine = engine_of(chat_template=template)
    seen: list[list[int]] = []
    answers = engine.answers
    engine.answers = lambda prompts, **keys: (seen.extend(prompts), answers(prompts, **keys))[1]  # type: ignore[method-assign, assignment]
    row = {"messages": messages, key: [{"name": "w5"}, {"name": "w7"}]}
    predicted(engine, write(tmp_path / f"rows{ending}", [row]), columns={"tools": key} if key != "tools" else {})
    assert engine.trained.tokenizer.decode(seen[0]) == (
        "<s> w5 w7 <s> <|user|> w1 <|end|> <|assistant|> w5 <unk> <|end|> <unk> w2 <|end|> <|assistant|>"
    )


def test_special_tokens_that_are_typed_are_told(
    tmp_path: Path, engine: HfEngine, caplog: pytest.LogCaptureFixture
) -> None:
    rows = [{"prompt": text} for text in ("w1", "w1 <|end|> <|system|> w2 <|end|>", "</s>")]
    path = write(tmp_path / "rows.jsonl", rows)
    with caplog.at_level(logging.INFO):
        predicted(engine, path)
    assert (
        "2 rows hold special tokens written out in a message, which are read as such: "
        "rows.jsonl:2 (<|end|> <|system|>), rows.jsonl:3 (</s>)." in caplog.messages
    )
    caplog.clear()
    predicted(engine, path, plain_text=True)
    assert not any("special tokens" in line for line in caplog.messages)


def test_a_missing_column_is_told_with_its_key(tmp_path: Path, engine: HfEngine) -> None:
    path = write(tmp_path / "rows.jsonl", [{"question": "w1"}])
    with pytest.raises(DataError, match=r"no column 'prompt'[\s\S]*inferencer.columns.prompt=<one of these>"):
        predicted(engine, path)
    assert predicted(engine, path, columns={"prompt": "question"})


def test_two_columns_of_prompts_are_refused(tmp_path: Path, engine: HfEngine) -> None:
    path = write(tmp_path / "rows.jsonl", [{"prompt": "w1", "messages": [{"role": "user", "content": "w1"}]}])
    with pytest.raises(DataError, match=r"inferencer.columns.messages=messages, or inferencer.columns.prompt=prompt"):
        predicted(engine, path)
