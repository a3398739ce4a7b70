"""Scoring a tiny vision-language model on a split of questions about pictures."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from PIL import Image

import tiny_vision
from supertrainer.benchmark.mllm_scores import ShortSums
from supertrainer.benchmark.results import DataFacts, ModelFacts
from supertrainer.benchmark.schema import MllmBenchmarkConfig
from supertrainer.core.run_directory import RunDirectory
from supertrainer.data.mllm import MllmDataset
from supertrainer.data.schema import MllmDatasetConfig
from supertrainer.inference.engines.hf import HfEngine
from supertrainer.inference.engines.schema import HfEngineConfig
from supertrainer.inference.schema import GenerationConfig
from supertrainer.models.processors import save_reader
from supertrainer.operations.mllm_scoring import asked_of, blank_answers, score_pictures
from tiny_mllm import picture, tiny_mllm, tiny_processor

GENERATION = GenerationConfig(max_new_tokens=4)


@pytest.fixture
def engine(tmp_path: Path) -> HfEngine:
    """A tiny LLaVA that was never trained."""
    processor = tiny_processor("llava")
    processor.chat_template = processor.tokenizer.chat_template = tiny_vision.LLAVA
    tiny_mllm("llava").save_pretrained(tmp_path / "model")
    save_reader(processor, tmp_path / "model")
    return HfEngine(HfEngineConfig(_target_="x"), source=tmp_path / "model")


@pytest.fixture
def dataset(tmp_path: Path) -> MllmDataset:
    """Ten test questions, two about each of five pictures of one size; the train rows are about others."""
    for split, first in (("train", 10), ("test", 0)):
        rows = []
        for number in range(10):
            name = f"{split}{number % 5}.png"
            picture(first + number % 5).save(tmp_path / name)
            kind = "ab"[number % 2]
            rows.append({"image": name, "question": f"w{number // 5}", "answer": "w9", "question_type": kind})
        lines = "".join(json.dumps(row) + "\n" for row in rows)
        (tmp_path / f"{split}.jsonl").write_text(lines, encoding="utf-8")
    given: dict[str, Any] = {
        "_target_": "supertrainer.data.mllm.MllmDataset",
        "source": str(tmp_path),
        "splits": {"train": "train.jsonl", "test": "test.jsonl"},
        "max_length": 64,
    }
    return MllmDataset(MllmDatasetConfig.model_validate_json(json.dumps(given)), seed=1)


def score(directory: Path, engine: HfEngine, dataset: MllmDataset, **keys: Any) -> Any:
    target = "supertrainer.benchmark.mllm.MllmBenchmark"
    benchmark = MllmBenchmarkConfig(_target_=target, generation=GENERATION, **keys)
    config: Any = SimpleNamespace(benchmark=benchmark, allow_targets=())
    return score_pictures(
        config,
        RunDirectory(directory),
        split="test",
        engine=engine,
        dataset=dataset,
        rows=dataset.model_rows("test", engine.trained.processor),
        facts={
            "metric": None,
            "model": ModelFacts(source="tiny", parameters=1, trainable_parameters=1),
            "data": DataFacts(source="rows", rows={"test": 10}),
        },
    )


def test_evenly_spaced_rows_are_scored_and_shown(tmp_path: Path, engine: HfEngine, dataset: MllmDataset) -> None:
    result = score(tmp_path, engine, dataset, rows=5, sheet=4)
    assert result.rows == 5
    records = [json.loads(line) for line in (tmp_path / "predictions.jsonl").read_text().splitlines()]
    assert sorted(record["row"] for record in records) == [1, 3, 5, 7, 9]
    assert all(Path(record["pictures"][0]).name == f"test{record['row'] % 5}.png" for record in records)
    assert [one.name for one in result.baselines] == ["majority answer", "question only", "blank picture"]
    assert result.baselines[0].metrics["accuracy"] == 1.0
    assert {one.name: one.rows for one in result.per_type} == {"b": 5}
    with Image.open(tmp_path / "sheet.png") as sheet:
        assert sheet.format == "PNG"
    score(tmp_path, engine, dataset, rows=5, sheet=0, blank=False, baselines=False)
    assert not (tmp_path / "sheet.png").exists()


def test_all_that_people_answered_is_compared_with(tmp_path: Path, engine: HfEngine, dataset: MllmDataset) -> None:
    """Rows with one answer, and with ten of which another than the commonest is learnt."""
    rows = [json.loads(line) for line in (tmp_path / "test.jsonl").read_text().splitlines()]
    for row in rows[1::2]:
        row["answers"] = ["w8"] * 6 + ["w9"] * 4
    (tmp_path / "test.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    asked, _ = asked_of(MllmDataset(dataset.config, seed=1), "test", range(10), engine=engine)
    assert [tuple(texts) for texts in asked.references[:2]] == [("w9",), ("w9", *["w8"] * 6, *["w9"] * 3)]
    sums = ShortSums()
    for references, kind in zip(asked.references, asked.types, strict=True):
        sums.add("W8", references=references, kind=kind)
    assert {kind: scores["vqa_accuracy"] for kind, scores in sums.by_type().items()} == {"a": 0.0, "b": 1.0}


def test_grey_pictures_are_asked_about_once_a_question(engine: HfEngine, dataset: MllmDataset) -> None:
    _, prompts = asked_of(dataset, "test", range(10), engine=engine)
    grey = prompts.blank()
    each = dict(engine.answers(grey.ids, generation=GENERATION, batch_of=grey.batch))
    before = engine.tokens
    assert blank_answers(engine, prompts, generation=GENERATION) == [each[place][0].text.strip() for place in range(10)]
    assert engine.tokens - before < before / 3
