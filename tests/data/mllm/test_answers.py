"""What several people answered: which answer is learnt, which are kept, and every malformed list with its row."""

from __future__ import annotations

import json
from typing import Any

import pytest

from supertrainer.core.errors import DataError

NET = [{"answer": "net", "answer_id": 1}, {"answer": "a net", "answer_id": 2}, {"answer": "net", "answer_id": 3}]


@pytest.mark.parametrize(
    ("cells", "learnt", "references"),
    [
        ({"answers": ["racket", "net", "net"]}, "net", ["net", "racket", "net"]),
        ({"answers": NET}, "net", ["net", "a net", "net"]),
        ({"answers": NET, "multiple_choice_answer": "net"}, "net", ["net", "a net", "net"]),
        ({"answers": ["a", "b"], "answer": "b"}, "b", ["b", "a"]),
        ({"answers": ["a", "b"], "answer": "c"}, "c", ["a", "b"]),
        ({"answers": ["a", "b"], "answer": None}, "a", ["a", "b"]),
        ({"answers": None, "answer": "c"}, "c", []),
        ({"answers": [2, 2.5, True]}, "2", ["2", "2.5", "yes"]),
        ({"answers": {"text": ["x", "y", "y"]}}, "y", ["y", "x", "y"]),
        ({"answers": '["x", "y"]'}, "x", ["x", "y"]),
        ({"answer": "[x]"}, "[x]", []),
        ({"answers": ["x"]}, "x", []),
    ],
)
def test_of_several_answers_the_commonest_is_learnt_and_all_are_kept(
    cells: dict[str, Any], learnt: str, references: list[str], dataset: Any
) -> None:
    data = dataset([{"image": "small.png", "question": "What?", **cells}])
    assert json.loads(data.load()["train"][0]["messages"])[1]["content"] == learnt
    assert data.load()["train"][0]["references"] == references


def test_the_answers_of_several_people_may_have_a_column_of_another_name_and_are_counted(dataset: Any) -> None:
    row = {"image": "small.png", "question": "What?", "answer": "x", "people": ["y", "x"]}
    data = dataset([row, {**row, "people": ["x", "x", "z"]}], columns={"answers": "people"})
    assert data.load()["train"]["references"] == [["x", "y"], ["x", "x", "z"]]
    assert "Answers of a question: 2 in 1, 3 in 1: train." in data.load().report.notes


@pytest.mark.parametrize(
    ("answers", "said"),
    [
        ([], "answers is a list without an answer"),
        (["net", None], "answers[1] is missing"),
        (["net", " "], "answers[1] is empty"),
        (["net", ["racket"]], "answers[1] is no text but ['racket']"),
        ([{"answer": "net"}, {"word": "net"}], "answers[1] has no answer or text: {'word': 'net'}"),
        ([{"answer": None}], "answers[0].answer is missing"),
        ({"text": []}, "answers.text is a list without an answer"),
        ({"start": [1]}, "answers has no answer or text: {'start': [1]}"),
        ('["net"', "answers is a text that is no JSON"),
    ],
)
def test_a_malformed_list_of_answers_is_named_with_its_row(answers: Any, said: str, dataset: Any) -> None:
    good, other = {"question": "Red?", "answers": ["no", "yes"]}, {"question": "Blue?", "answers": answers}
    with pytest.raises(DataError) as caught:
        dataset([good, other]).load()
    assert "rows that are no conversation of their layout (1): train.jsonl:2 (" in str(caught.value)
    assert said in str(caught.value)
