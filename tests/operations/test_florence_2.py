"""Florence-2 through the whole program: checked, trained behind a prefix, merged, scored, asked and verified."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from supertrainer.data.chat.question_prefix import question_prefix_of
from supertrainer.models.saving import load_trained
from tiny_mllm import picture, save_mllm
from zygote import Zygote

TRAIN = [
    "+experiment=train_mllm", "model=mllm/hub", "model.source=source", "dataset=mllm/question_answer",
    "dataset.source=questions.jsonl", "dataset.max_length=64", "dataset.question_prefix='w9 '",
    "dataset.splits={train: null, validation: 0.2, test: 0.2}", "trainer.global_batch_size=8",
    "trainer.training_kwargs.per_device_train_batch_size=4", "trainer.training_kwargs.num_train_epochs=20",
    "trainer.training_kwargs.warmup_steps=1", "trainer.training_kwargs.learning_rate=5e-3",
    "benchmark.generation.max_new_tokens=4", "run.name=seen",
]  # fmt: skip
LORA = [
    "trainer/common/peft_kwargs@trainer.peft_kwargs=lora", "model.towers.vision=lora", "model.towers.projector=full",
]  # fmt: skip
INFER = ["+experiment=infer_mllm", "inferencer.input=questions.jsonl", "inferencer.generation.max_new_tokens=4"]


@pytest.fixture
def questions(tmp_path: Path) -> Path:
    """A model, and 40 questions of two lengths, each with an answer of one or two words that its words tell."""
    save_mllm(tmp_path / "source", "florence2")
    with (tmp_path / "questions.jsonl").open("w") as file:
        for n in range(40):
            picture(n, 20 + n).save(tmp_path / f"{n}.png")
            question = f"w5 w{n % 2}" if n % 4 < 2 else f"w5 w5 w{n % 2}"
            answer = "w20 w21" if n % 2 else "w30"
            print(json.dumps({"image": f"{n}.png", "question": question, "answer": answer}), file=file)
    return tmp_path


def output(place: Path) -> str:
    return (place / "output.txt").read_text()


def test_a_check_shows_what_the_decoder_learns(zygote: Zygote, questions: Path) -> None:
    assert zygote.run([*TRAIN, "operation=check"], directory=questions) == 0, output(questions)
    text = output(questions)
    assert text.splitlines()[-1] == "ready"
    assert "[picture: 17 tokens]<s> w9 w5 w0 </s>⟦w30 </s>⟧" in text


def test_a_model_is_trained_merged_scored_and_asked_with_its_prefix(
    zygote: Zygote, questions: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It learns the answers of its rows; the merged model, row by row, says what the adapter does in batches."""
    words = [*TRAIN, *LORA, "then=[export,benchmark]"]
    assert zygote.run(words, directory=questions) == 0, output(questions)
    run = questions / "runs" / "seen"
    assert json.loads((run / "report.json").read_text())["metrics"]["test"]["accuracy"] == 1.0
    assert json.loads((run / "export.json").read_text())["differences"]["original"]["greatest"] < 1e-4
    monkeypatch.chdir(questions)
    trained = load_trained(run)
    assert question_prefix_of(trained.tokenizer.chat_template) == "w9 "
    assert json.loads((run / "model" / "adapter_config.json").read_text())["task_type"] == "SEQ_2_SEQ_LM"
    assert trained.model.get_base_model().generation_config.forced_bos_token_id == 2  # type: ignore[operator]
    said = []
    for number, (source, size) in enumerate((("seen", 8), ("seen/merged", 1))):
        asked = [
            *INFER,
            f"model.source=runs/{source}",
            f"engine.batch_size={size}",
            f"inferencer.output={number}.jsonl",
        ]
        assert zygote.run(asked, directory=questions) == 0, output(questions)
        said.append([json.loads(line) for line in (questions / f"{number}.jsonl").read_text().splitlines()])
    assert said[1] == said[0]
    assert [row["predicted"] for row in said[0]] == [row["answer"] for row in said[0]]
    assert said[0][0]["prompt_tokens"] == 17 + 5  # <s>, the prefix, two words, </s>


@pytest.mark.slow  # trains some twenty times
@pytest.mark.parametrize("method", [[], LORA], ids=["full", "lora"])
def test_a_verification_holds(zygote: Zygote, questions: Path, method: list[str]) -> None:
    assert zygote.run([*TRAIN, *method, "operation=verify"], directory=questions) == 0, output(questions)
