"""A benchmark of answers about pictures, by hand: scores by type, what is known without seeing, the sheet."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from supertrainer.benchmark.answer_baselines import without_pictures
from supertrainer.benchmark.console import print_benchmark
from supertrainer.benchmark.mllm import MllmBenchmark
from supertrainer.benchmark.page.worst import read_worst
from supertrainer.benchmark.results import DataFacts, ModelFacts
from supertrainer.benchmark.rows import PictureQuestions
from supertrainer.benchmark.schema import MllmBenchmarkConfig
from supertrainer.benchmark.sheet import Tile, draw_sheet
from supertrainer.core.run_directory import RunDirectory
from supertrainer.inference.generation import Answer
from supertrainer.metrics.causal_lm import CausalLmMetric
from supertrainer.metrics.schema import CausalLmMetricConfig
from supertrainer.metrics.short_answers import plain_answer, short_answer_scores


def asked(*rows: tuple[str, str, str], numbers: tuple[int, ...] | None = None) -> PictureQuestions:
    """Rows of question, answer and type."""
    return PictureQuestions(
        questions=[question for question, _, _ in rows],
        references=[(answer,) for _, answer, _ in rows],
        types=[kind for _, _, kind in rows],
        pictures=[["a.png"]] * len(rows),
        numbers=numbers or tuple(range(len(rows))),
    )


TRAIN = asked(
    ("Is it red?", "no", "yes/no"),
    ("is it red", "No.", "yes/no"),
    ("is it red?", "yes", "yes/no"),
    ("what is it?", "circle", "shape"),
    ("how many?", "two", "number"),
)
TEST = asked(
    ("is it red?", "yes", "yes/no"),
    ("What is it?", "a circle", "shape"),
    ("is it blue?", "no", "yes/no"),
    ("how many?", "2", "number"),
    numbers=(3, 7, 11, 15),
)
SAID = ("Yes.", "the square", "no", "two")


def test_the_baselines_see_questions_alone() -> None:
    majority, looked_up = without_pictures(TRAIN, test=TEST)
    assert (majority.name, list(majority.answers)) == ("majority answer", ["no"] * 4)
    assert (looked_up.name, list(looked_up.answers)) == ("question only", ["no", "circle", "no", "2"])
    assert "3 of 4" in looked_up.method  # is it blue? was never asked


@pytest.mark.parametrize(
    ("said", "references", "wanted"),
    [
        ("The Two!", ["2"], 1.0),
        ("cat", ["dog"], 0.0),
        ("a", ["A"], 1.0),
        ("cat", ["cat"] * 4 + ["dog"] * 6, 1.0),
        ("cat", ["cat"] * 3 + ["dog"] * 7, (3 * 2 / 3 + 7) / 10),
        ("cat", ["cat"] + ["dog"] * 9, (9 / 3) / 10),
        ("cat", ["cat", "dog"], 0.5),
    ],
)
def test_soft_accuracy_is_that_of_the_vqa_evaluation(said: str, references: list[str], wanted: float) -> None:
    assert short_answer_scores(said, references=references)["vqa_accuracy"] == pytest.approx(wanted)


def test_an_answer_is_right_that_anyone_gave() -> None:
    references = ["dog", "cat", "the cat"]
    scores = [short_answer_scores(said, references=references)["accuracy"] for said in ("cat", "dog", "cow")]
    assert scores == [1.0, 1.0, 0.0]


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("An  apple, none", "apple 0"),
        ("1,000 (people)", "1000 people"),
        ("black/white", "black white"),
        ("red , blue", "red blue"),
        ("1.50 a.m.", "1.50 am"),
        ("10:30", "10:30"),
        ("DON’T", "don't"),
        ("couldn'tve", "couldn't've"),
        ("we're", "we're"),
        ("were", "were"),
        ("5%", "5%"),
        ("«Ja».", "ja"),
        ("赤。", "赤"),
        ("the", "the"),
        ("?!", "?!"),
    ],
)
def test_the_normal_form_of_answers(text: str, wanted: str) -> None:
    assert plain_answer(text) == wanted


def test_of_ten_answers_all_count_by_type_and_the_best_for_the_words(tmp_path: Path) -> None:
    """Four of ten say cat, which is right for nine in ten of the choices of nine; one says dog."""
    ten = ("cat",) * 4 + ("dog",) + ("small cat",) * 5
    rows = PictureQuestions(["what?"] * 3, [ten] * 3, ["animal", "animal", "other"], [["a.png"]] * 3, (0, 1, 2))
    answers = [Answer(said, (5,), "stop", 4, ended=True) for said in ("Cat.", "a dog", "small cats")]
    benchmark = MllmBenchmark(
        MllmBenchmarkConfig(_target_="x", baselines=False),
        metric=CausalLmMetric(CausalLmMetricConfig(_target_="x")),
        model=ModelFacts(source="tiny", parameters=10, trainable_parameters=10),
        data=DataFacts(source="rows", rows={"test": 3}),
    )
    result = benchmark.run(rows, predictions=[(answers, [0, 1, 2])], directory=RunDirectory(tmp_path))
    types = {one.name: one.metrics for one in result.per_type}
    assert types["animal"] == {"accuracy": 1.0, "vqa_accuracy": pytest.approx((1.0 + 0.3) / 2)}
    assert types["other"] == {"accuracy": 0.0, "vqa_accuracy": 0.0}
    records = [json.loads(line) for line in (tmp_path / "predictions.jsonl").read_text().splitlines()]
    assert records[0]["references"] == list(ten)
    assert [record["answer_f1"] for record in records] == [1.0, pytest.approx(2 / 3, abs=1e-6), 0.5]


def scored(directory: Path, **config: Any) -> Any:
    benchmark = MllmBenchmark(
        MllmBenchmarkConfig(_target_="x", **config),
        metric=CausalLmMetric(CausalLmMetricConfig(_target_="x")),
        model=ModelFacts(source="tiny", parameters=10, trainable_parameters=10),
        data=DataFacts(source="rows", rows={"test": 20}),
        train=TRAIN,
    )
    benchmark.take_without_pictures(TEST)
    benchmark.take_blank(TEST, answers=["no", "circle", "no", "3"], seconds=0.1)
    answers = [Answer(f" {said}", (5, 3), "stop", 4, ended=True) for said in SAID]
    predictions = [([answers[2], answers[0]], [2, 0]), ([answers[1], answers[3]], [1, 3])]
    return benchmark.run(TEST, predictions=predictions, directory=RunDirectory(directory))


def test_accuracy_stands_beside_what_is_known_without_seeing(tmp_path: Path) -> None:
    result = scored(tmp_path)
    assert result.main_metric == "accuracy"
    assert {one.name: one.metrics["accuracy"] for one in result.baselines} == {
        "majority answer": 0.25,
        "question only": 0.75,
        "blank picture": 0.5,
    }
    assert (result.metrics["accuracy"], result.metrics["vqa_accuracy"], result.metrics["ended"]) == (0.75, 0.75, 1.0)
    assert "exact_match" not in result.metrics
    assert set(result.definitions) == set(result.metrics)


def test_scores_are_told_by_type_of_question(tmp_path: Path) -> None:
    result = scored(tmp_path)
    told = {one.name: (one.rows, one.metrics["accuracy"], one.baselines) for one in result.per_type}
    assert told["yes/no"] == (2, 1.0, {"majority answer": 0.5, "question only": 0.5, "blank picture": 0.5})
    assert told["shape"] == (1, 0.0, {"majority answer": 0.0, "question only": 1.0, "blank picture": 1.0})
    assert list(told) == ["number", "shape", "yes/no"]
    stream = io.StringIO()
    print_benchmark(result, directory="runs/x", stream=stream)
    assert "shape      1" in stream.getvalue()


def test_records_and_samples_name_rows_of_the_whole_split(tmp_path: Path) -> None:
    result = scored(tmp_path, samples=2)
    records = [json.loads(line) for line in (tmp_path / "predictions.jsonl").read_text().splitlines()]
    assert sorted(record["row"] for record in records) == [3, 7, 11, 15]
    assert [sample.row for sample in result.samples] == [7, 15]
    [wrong] = read_worst(records).mistakes
    assert (wrong.row, wrong.texts) == (7, ("What is it?",))
    assert [told.value for told in wrong.told] == ["a circle", "the square", "shape", "a.png"]


def test_a_sheet_frames_right_rows_green_and_wrong_ones_red() -> None:
    plain = Image.new("RGB", (20, 10), "white")
    tile = {"pictures": [plain, plain], "question": "$x$ what?", "true": "a", "predicted": ""}
    shares = []
    for is_right in (True, False):
        drawn = Image.open(io.BytesIO(draw_sheet([Tile(row=1, is_right=is_right, **tile)], title="t")))  # type: ignore[arg-type]
        colours = [colour for _, colour in drawn.convert("RGB").getcolors(1 << 20) or []]
        shares.append([(0x2F, 0x85, 0x5A) in colours, (0xC5, 0x30, 0x30) in colours])
    assert shares == [[True, False], [False, True]]
    assert draw_sheet([Tile(row=1, is_right=True, **{**tile, "pictures": []})], title="t")  # type: ignore[arg-type]
