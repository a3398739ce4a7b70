"""What a dataset's config refuses, in its own words."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from pydantic import ValidationError


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"splits": {"validation": 0.6, "test": 0.4}}, "validation 0.6 + test 0.4 leave no train rows."),
        ({"splits": {"validation": 1.5}}, "1.5 is no share of the train rows."),
        ({"splits": {"validation": 0.0}}, "0 is no share of the train rows."),
        ({"splits": {"train": 0.8}}, "Input should be a valid string"),
        ({"splits": {"valid": 0.1}}, "Extra inputs are not permitted"),
        ({"limits": {"train": 0}}, "Input should be greater than 0"),
        ({"labels": ["yes"]}, "['yes'] is no choice to learn."),
        ({"labels": {"0": "a", "1": "a"}}, "['a', 'a'] is no choice to learn."),
        ({"labels": ["a", "b", "a"]}, "'a' stands twice."),
        ({"labels": [True, False]}, "a label is true: YAML reads yes, no, on and off so. Fix: put it in quotes."),
        ({"columns": {"text": "label"}}, "column 'label' is named for two things."),
        ({"columns": {"text": "a", "text_pair": "a"}}, "column 'a' is named for two things."),
        ({"encoding": "utf-9"}, "Python knows no encoding 'utf-9'."),
        ({"csv": {"delimiter": '"'}}, "Fix: three different marks that end no line."),
        ({"csv": {"delimiter": "||"}}, "String should have at most 1 character"),
        ({"csv": {"column_names": ["a", "a"]}}, "column_names=['a', 'a'] names a column twice."),
        ({"max_length": 3}, "Input should be greater than or equal to 4"),
        ({"on_empty_text": "ignore"}, "Input should be 'error' or 'drop'"),
    ],
)
def test_a_faulty_setting_is_refused(settings: dict[str, Any], message: str, config: Callable[..., Any]) -> None:
    with pytest.raises(ValidationError) as raised:
        config("someone/reviews", **settings)
    assert message in str(raised.value)


def test_whole_numbers_are_label_names(config: Callable[..., Any]) -> None:
    assert config("someone/reviews", labels=[0, 1]).labels == ("0", "1")
    assert config("someone/reviews", labels={0: 5, "x": "y"}).labels == {"0": "5", "x": "y"}


def test_given_and_made_splits(config: Callable[..., Any]) -> None:
    splits = config("someone/reviews", splits={"validation": 0.25, "test": "last"}).splits
    assert (splits.given(), splits.made()) == ({"train": None, "test": "last"}, {"validation": 0.25})
