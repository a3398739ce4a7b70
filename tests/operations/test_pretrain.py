"""A decoder through the whole program: checked, trained, interrupted, extended, read by plain transformers."""

from __future__ import annotations

import json
import random
import signal
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from tiny_decoders import decoder_tokenizer
from tiny_runs import TINY_PRETRAIN
from zygote import Zygote

NOUNS = ["sun", "moon", "star", "sea", "wind", "river", "mountain", "harbour", "lantern", "garden", "winter", "shadow"]


@pytest.fixture
def with_texts(tmp_path: Path) -> Path:
    """A directory with 60 texts of made-up words."""
    draw = random.Random(3)
    (tmp_path / "texts").mkdir()
    for number in range(60):
        words = (draw.choice(NOUNS) for _ in range(draw.randint(20, 120)))
        (tmp_path / "texts" / f"{number}.txt").write_text(" ".join(words))
    return tmp_path


def output(place: Path) -> str:
    return (place / "output.txt").read_text()


def run(zygote: Zygote, place: Path, *words: str) -> int:
    environment = {"XDG_CACHE_HOME": str(place / "cache")}
    return zygote.run([*TINY_PRETRAIN, *words], directory=place, environment=environment)


def weights(place: Path, name: str) -> dict[str, torch.Tensor]:
    return load_file(place / "runs" / name / "model" / "model.safetensors")


def test_a_decoder_is_pretrained_and_goes_on_with_texts_in_plain_transformers(zygote: Zygote, with_texts: Path) -> None:
    for name in ("a", "b"):
        (with_texts / "texts" / f"{name}.txt").write_text(" \n")
    assert run(zygote, with_texts, "trainer.max_steps=60") == 0, output(with_texts)
    report = json.loads((with_texts / "runs/small/report.json").read_text())
    assert report["metrics"]["validation"]["loss"] < report["baselines"][0]["metrics"]["loss"] + 1.0
    assert [sample["text"] for sample in report["samples"]] == ["ROMEO:", "To be, or not to be"]
    rows = [json.loads(line) for line in (with_texts / "runs/small/metrics.jsonl").read_text().splitlines()]
    assert [row["step"] for row in rows if "loss" in row] == list(range(1, 61))
    assert (with_texts / "runs/small/plots/loss.png").is_file()
    assert any("odd documents that were met: 2 empty" in note for note in report["notes"])
    (with_texts / "asked.jsonl").write_text('{"prompt": "sun moon"}\n')
    asking = [
        "+experiment=infer_llm",
        "model.source=runs/small",
        "inferencer.plain_text=true",
        "inferencer.input=asked.jsonl",
    ]
    words = [*asking, "inferencer.generation.max_new_tokens=4", "inferencer.output=answers.jsonl"]
    assert zygote.run(words, directory=with_texts) == 0, output(with_texts)
    assert json.loads((with_texts / "answers.jsonl").read_text())["new_tokens"] == 4


def test_a_check_shows_the_table_the_tokens_and_what_is_learnt(zygote: Zygote, with_texts: Path) -> None:
    assert run(zygote, with_texts, "operation=check") == 0, output(with_texts)
    text = output(with_texts)
    assert text.splitlines()[-1] == "ready"
    assert "parametrization: mup from width 16, weight decay independent" in text
    assert "1,536 in the run" in text  # 12 steps of 4 rows of 32 tokens
    assert "<|begin_of_text|>⟦" in text  # a document's beginning is asked of nobody
    assert not (with_texts / "runs").exists()


def test_an_interrupted_run_and_an_extended_one_equal_the_run_left_alone(zygote: Zygote, with_texts: Path) -> None:
    assert run(zygote, with_texts, "run.name=whole") == 0, output(with_texts)
    logged = with_texts / "runs/small/metrics.jsonl"

    def some_steps_done() -> bool:
        return logged.is_file() and logged.read_text().count('"loss"') >= 3

    environment = {"XDG_CACHE_HOME": str(with_texts / "cache")}
    code = zygote.run(
        TINY_PRETRAIN,
        directory=with_texts,
        environment=environment,
        kill_when=some_steps_done,
        signal_number=signal.SIGINT,
    )
    assert code in (0, 130), output(with_texts)
    assert run(zygote, with_texts) == 0, output(with_texts)
    for name, tensor in weights(with_texts, "whole").items():
        assert torch.equal(weights(with_texts, "small")[name], tensor), name
    assert run(zygote, with_texts, "run.name=short", "trainer.max_steps=5") == 0, output(with_texts)
    assert run(zygote, with_texts, "run.name=short") == 2
    assert "run.extend=true goes on with it" in output(with_texts)
    assert run(zygote, with_texts, "run.name=short", "run.extend=true") == 0, output(with_texts)
    for name, tensor in weights(with_texts, "whole").items():
        assert torch.equal(weights(with_texts, "short")[name], tensor), name


def test_a_changed_file_is_refused(zygote: Zygote, with_texts: Path) -> None:
    assert run(zygote, with_texts, "trainer.max_steps=2") == 0, output(with_texts)
    (with_texts / "texts" / "7.txt").write_text("something else")
    assert run(zygote, with_texts, "run.extend=true") == 2
    assert "texts/7.txt" in output(with_texts).splitlines()[-1] or "7.txt" in output(with_texts)


def test_an_odd_document_in_the_middle_leaves_a_run_that_goes_on(zygote: Zygote, with_texts: Path) -> None:
    draw = random.Random(5)
    lines = [json.dumps({"text": " ".join(draw.choices(NOUNS, k=60))}) for _ in range(80)]
    lines[33] = '{"text": "sun'
    (with_texts / "odd.jsonl").write_text("\n".join(lines))
    decoder_tokenizer().save_pretrained(with_texts / "tokenizer")
    words = [
        "dataset=pretrain/jsonl",
        "dataset.sources.text.path=odd.jsonl",
        "dataset.tokenizer_training=null",
        "dataset.tokenizer=tokenizer",
        "trainer.eval_every=0",
        "trainer.save_every=2",
        "trainer.max_steps=40",
        "trainer.sample_prompts=[]",
    ]
    assert run(zygote, with_texts, *words, "dataset.on_broken=error") == 2, output(with_texts)
    told = output(with_texts)
    assert "odd.jsonl:34 of dataset.sources.text: no JSON" in told
    assert "Fix: dataset.on_broken=drop, with which a run that has begun goes on" in told
    assert "begins another run with its weights" in told
    newest = max(int(folder.name[5:]) for folder in (with_texts / "runs/small/checkpoints").glob("step-*"))
    assert newest >= 1
    assert run(zygote, with_texts, *words, "dataset.on_broken=drop") == 0, output(with_texts)
    assert f"step-{newest:08d}" in output(with_texts).rpartition("going on from ")[2]
    assert run(zygote, with_texts, *words, "dataset.on_broken=drop", "run.name=whole") == 0, output(with_texts)
    for name, tensor in weights(with_texts, "whole").items():
        assert torch.equal(weights(with_texts, "small")[name], tensor), name
    assert run(zygote, with_texts, *words, "dataset.on_broken=replace") == 2
    assert "dataset.on_broken: 'drop' there, 'replace' here" in output(with_texts)
    source = f"model.source={with_texts}/runs/whole/checkpoints/step-00000040"
    begun = [*words, source, "trainer.learning_rate=1e-4", "run.name=begun", "trainer.max_steps=2"]
    assert run(zygote, with_texts, *begun) == 0, output(with_texts)


@pytest.mark.parametrize(
    ("word", "said"),
    [
        ("operation=infer", "a pretraining ends with a plain language model"),
        ("trainer.sequence_length=1024", "model.max_length=512"),
        ("trainer.schedule.warmup_steps=20", "the run would end before the rate has risen"),
        ("model.num_heads=3", "num_heads=2"),
        ("dataset.sources.text.path=nowhere/*.txt", "nowhere is not there"),
        ("trainer.max_step=3", "did you mean max_steps?"),
    ],
)
def test_a_mistake_is_told_before_anything_is_written(zygote: Zygote, with_texts: Path, word: str, said: str) -> None:
    assert run(zygote, with_texts, word) == 2
    assert said in output(with_texts)
    assert not (with_texts / "runs").exists()
