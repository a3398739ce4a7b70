"""A vision-language model through the whole program: trained, scored, merged, checked and verified."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
import torch

from supertrainer.models.saving import load_trained
from tiny_vision import save_picture
from zygote import Zygote

TINY_MLLM = [
    "+experiment=train_mllm",
    "mode=toy",
    "model.config.vision_config.hidden_size=32",
    "model.config.vision_config.intermediate_size=48",
    "model.config.text_config.hidden_size=32",
    "model.config.text_config.intermediate_size=48",
    "dataset=mllm/messages",
    "dataset.source=chats.jsonl",
    "dataset.max_length=128",
    "dataset.splits={train: null, validation: 0.2, test: 0.2}",
    "trainer.global_batch_size=8",
    "trainer.training_kwargs.per_device_train_batch_size=4",
    "trainer.training_kwargs.per_device_eval_batch_size=4",
    "benchmark.generation.max_new_tokens=4",
    "run.name=seen",
]
LORA = [
    "trainer/common/peft_kwargs@trainer.peft_kwargs=lora",
    "model.towers.vision=lora",
    "model.towers.projector=full",
]
UNSIZED = [word for word in TINY_MLLM if not word.startswith("model.config")]
COLOURS = ("black", "blue", "brown", "gray", "green", "red", "teal", "yellow")


def write_chats(place: Path, *, count: int = 40) -> Path:
    """Rows with no, one or two pictures of several sizes, and answers of one to five words."""
    with (place / "chats.jsonl").open("w") as file:
        for n in range(count):
            sides = [(20 + 8 * k + n, 40 + n) for k in range(n % 3)]
            names = [f"pictures/{n}-{k}.png" for k in range(n % 3)]
            for name, (width, height) in zip(names, sides, strict=True):
                save_picture(place / name, width, height, colour=(6 * n, 255 - 6 * n, 90))
            asked = [{"type": "image"} for _ in names] + [
                {"type": "text", "text": f"what is in {'the ' * (n % 4)}image"}
            ]
            answer = " ".join(COLOURS[(n + k) % 8] for k in range(1 + n % 5))
            turns = [{"role": "user", "content": asked}, {"role": "assistant", "content": answer}]
            print(json.dumps({"images": names, "messages": turns}), file=file)
    return place


@pytest.fixture
def with_pictures(tmp_path: Path) -> Path:
    return write_chats(tmp_path)


def output(place: Path) -> str:
    return (place / "output.txt").read_text()


def test_a_check_shows_the_tokens_of_pictures_and_what_is_learnt(zygote: Zygote, with_pictures: Path) -> None:
    assert zygote.run([*TINY_MLLM, "operation=check"], directory=with_pictures) == 0, output(with_pictures)
    text = output(with_pictures)
    assert text.splitlines()[-1] == "ready"
    rows = [json.loads(line) for line in (with_pictures / "chats.jsonl").read_text().splitlines()]
    told = [int(count.replace(",", "")) for count in re.findall(r"([\d,]+) of pictures", text)]
    assert sum(told) == 13 * (19 + 1) + 13 * (2 * 19 + 1)  # 16 and three marks each, and the mark of the asker's turn
    assert "[picture: 16 tokens]" in text
    answers = {row["messages"][1]["content"] for row in rows}
    learnt = re.findall("⟦(.*?)⟧", text)
    assert len(learnt) == 3
    assert {piece.removesuffix("<|end|>").strip() for piece in learnt} <= answers
    assert "vision: layers × 2" in text


def test_a_model_is_trained_scored_adapted_and_merged(
    zygote: Zygote, with_pictures: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """First every weight of an untrained one, then an adapter on what came of it; texts need no pictures."""
    monkeypatch.chdir(with_pictures)
    assert zygote.run(TINY_MLLM, directory=with_pictures) == 0, output(with_pictures)
    run = with_pictures / "runs" / "seen"
    report = json.loads((run / "report.json").read_text())
    assert report["model"]["method"] == "full"
    assert {"accuracy", "vqa_accuracy"} <= report["metrics"]["test"].keys()
    assert (run / "model" / "processor_config.json").is_file()
    words = [*UNSIZED, "model=mllm/hub", "model.source=runs/seen", *LORA, "run.name=adapted", "then=[export]"]
    assert zygote.run(words, directory=with_pictures) == 0, output(with_pictures)
    adapted = with_pictures / "runs" / "adapted"
    assert (adapted / "model" / "adapter_model.safetensors").is_file()
    exported = json.loads((adapted / "export.json").read_text())
    assert exported["compared_on"] == "8 validation rows"
    assert exported["differences"]["original"]["greatest"] < 1e-4
    trained, merged = load_trained(adapted), load_trained(adapted / "merged")
    tokens = trained.tokenizer("what is in the image", return_tensors="pt")
    text_model = merged.model.model.text_model  # type: ignore[union-attr]
    with torch.no_grad():
        alone = merged.model.lm_head(text_model(**tokens).last_hidden_state)  # type: ignore[operator]
        assert torch.equal(merged.model(**tokens).logits, alone)
        torch.testing.assert_close(trained.model(**tokens).logits, alone, rtol=0, atol=1e-4)


@pytest.mark.slow  # trains some twenty times
@pytest.mark.parametrize("method", [[], LORA], ids=["full", "lora"])
def test_a_verification_holds(zygote: Zygote, with_pictures: Path, method: list[str]) -> None:
    assert zygote.run([*TINY_MLLM, *method, "operation=verify"], directory=with_pictures) == 0, output(with_pictures)
