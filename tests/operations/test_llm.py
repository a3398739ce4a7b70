"""A language model through the whole program: trained on conversations, scored, asked, checked and verified."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tiny_chats import TEMPLATE, save_tiny_chat, tiny_chat_tokenizer
from zygote import Zygote

TINY_LLM = [
    "+experiment=train_llm",
    "mode=toy",
    "model=llm/hub",
    "model.source=base",
    "dataset=llm/messages",
    "dataset.source=chats.jsonl",
    "dataset.max_length=64",
    "dataset.splits={train: null, validation: 0.2, test: 0.2}",
    "trainer.global_batch_size=8",
    "trainer.sample_rows=2",
    "trainer.sample_tokens=4",
    "benchmark.generate_rows=4",
    "benchmark.generation.max_new_tokens=4",
    "run.name=chat",
]


@pytest.fixture
def with_chats(place: Path) -> Path:
    save_tiny_chat(place / "base")
    tiny_chat_tokenizer(chat_template=TEMPLATE.replace("%}<|{{", "%}{{ style }} <|{{")).save_pretrained(place / "base")
    with (place / "chats.jsonl").open("w") as file:
        for n in range(40):
            asked, answered = f"w{n} w{n + 1}", f"w{n + 2} w{n + 3} w{n + 4}"
            turns = [{"role": "user", "content": asked}, {"role": "assistant", "content": answered}]
            print(json.dumps({"messages": turns}), file=file)
    return place


def output(place: Path) -> str:
    return (place / "output.txt").read_text()


def test_a_language_model_is_trained_scored_merged_and_asked(zygote: Zygote, with_chats: Path) -> None:
    styled = "dataset.template_kwargs={style: w9}"
    assert zygote.run([*TINY_LLM, styled, "then=[export]"], directory=with_chats) == 0, output(with_chats)
    run = with_chats / "runs" / "chat"
    report = json.loads((run / "report.json").read_text())
    assert report["model"]["method"] == "qlora"
    assert {"loss", "perplexity", "accuracy", "exact_match"} <= report["metrics"]["test"].keys()
    assert any("not trained here" in baseline["method"] for baseline in report["baselines"])
    assert {json.loads(line)["step"] for line in (run / "samples.jsonl").read_text().splitlines()} == {3, 6}
    assert (run / "merged" / "model.safetensors").is_file()
    assert not (run / "merged" / "adapter_config.json").exists()
    assert (run / "merged" / "chat_template.jinja").read_bytes() == (run / "model" / "chat_template.jinja").read_bytes()
    (with_chats / "asked.jsonl").write_text('{"prompt": "w1 w2"}\n{"prompt": "w5 w6 w7"}\n')
    asking = ["+experiment=infer_llm", "inferencer.input=asked.jsonl", "inferencer.generation.max_new_tokens=4"]
    for name in ("chat", "chat/merged"):
        answered = f"answers-{name.replace('/', '-')}.jsonl"
        words = [*asking, f"model.source=runs/{name}", f"inferencer.output={answered}"]
        assert zygote.run(words, directory=with_chats) == 0, output(with_chats)
    first, second = ((with_chats / f"answers-{name}.jsonl").read_text() for name in ("chat", "chat-merged"))
    assert first == second
    assert [len(row) for row in map(json.loads, first.splitlines())] == [5, 5]
    asked = "<s> w9 <|user|> w1 w2 <|end|> <|assistant|>"
    assert json.loads(first.splitlines()[0])["prompt_tokens"] == len(asked.split()), "as the model was trained"
    scoring = ["+experiment=benchmark_llm", "model.source=runs/chat", *TINY_LLM[4:8], "run.name=scored"]
    assert zygote.run([*scoring, "dataset.template_kwargs={style: w8}"], directory=with_chats) == 2
    assert "Fix: dataset.chat_template=null dataset.template_date=null" in output(with_chats)
    template = run / "model" / "chat_template.jinja"
    template.write_text(template.read_text().replace("<|{{", "<{{"))
    assert zygote.run([*asking, "model.source=runs/chat", "run.fresh=true"], directory=with_chats) == 2
    assert "the model was trained with the chat template" in output(with_chats)


def test_a_check_shows_what_is_learnt(zygote: Zygote, with_chats: Path) -> None:
    assert zygote.run([*TINY_LLM, "operation=check"], directory=with_chats) == 0, output(with_chats)
    text = output(with_chats)
    assert text.splitlines()[-1] == "ready"
    assert "⟦" in text


def test_a_check_counts_packs_as_training_does(zygote: Zygote, with_chats: Path) -> None:
    """24 texts of ten tokens, six a pack, fill four packs of 64."""
    words = [*TINY_LLM, "trainer.packing=packed"]
    for operation in ("check", "train"):
        assert zygote.run([*words, f"operation={operation}"], directory=with_chats) == 2
        assert "the training texts fill 4 packs, fewer than the 8" in output(with_chats)
    words += [
        "run.name=pairs",
        "operation=check",
        "trainer.global_batch_size=2",
        "trainer.training_kwargs.per_device_train_batch_size=1",
    ]
    assert zygote.run(words, directory=with_chats) == 0, output(with_chats)
    assert "4: 2 epochs of 2" in output(with_chats)


@pytest.mark.slow  # trains some twenty times
@pytest.mark.parametrize("packing", ["none", "packed"])
def test_a_verification_holds(zygote: Zygote, with_chats: Path, packing: str) -> None:
    words = [*TINY_LLM, "operation=verify", f"trainer.packing={packing}", "dataset.max_length=32"]
    assert zygote.run(words, directory=with_chats) == 0, output(with_chats)
