"""Keys that belong to a head: misspelt, of a wrong type, or of another head than the one that is trained."""

from __future__ import annotations

import pytest

from supertrainer.config.command import parse_command
from supertrainer.config.front_door import compose_command
from supertrainer.config.groups import read_groups
from supertrainer.config.validate import validate
from supertrainer.core.errors import ConfigError

ROWS = "dataset.source=README.md"
EXPERIMENTS = {
    "sequence_classification": ["+experiment=train_bert"],
    "multi_label": ["+experiment=train_bert/multi_label", ROWS],
    "regression": ["+experiment=train_bert/regression"],
    "token_classification": ["+experiment=train_bert/tokens", ROWS],
    "masked_lm": ["+experiment=train_bert/masked_lm"],
}


def refused(*words: str) -> str:
    composed = compose_command(parse_command(list(words)), environment={}, groups=read_groups(()))
    with pytest.raises(ConfigError) as caught:
        validate(composed, environment={})
    return str(caught.value)


@pytest.mark.parametrize("task", EXPERIMENTS)
def test_misspelt_keys_are_told_together_whatever_the_head(task: str) -> None:
    told = refused(
        *EXPERIMENTS[task],
        "trainer.training_kwargs.learning_ratee=1e-4",
        "trainer.class_wieghts=balanced",
        "model.tsk=regression",
        "dataset.masking.probabilty=0.2",
        "dataset.long_textss=stride",
        "metric.mian=loss",
    )
    for name in ("learning_rate", "class_weights", "task", "probability", "long_texts", "main"):
        assert f"did you mean {name}?" in told


@pytest.mark.parametrize("task", EXPERIMENTS)
def test_numbers_written_as_texts_are_told_at_the_boundary_whatever_the_head(task: str) -> None:
    told = refused(
        *EXPERIMENTS[task],
        "trainer.training_kwargs.learning_rate='1e-4'",
        "dataset.masking.probability='0.15'",
        "dataset.max_length='128'",
        "trainer.global_batch_size='16'",
    )
    assert "learning_rate='1e-4' (str): TrainingArguments takes a float." in told
    assert "dataset.masking.probability='0.15': is text; a number above 0 and below 1 was expected." in told
    assert "dataset.max_length='128': is text; a whole number of at least 4 or null was expected." in told
    assert "trainer.global_batch_size='16': is text; a whole number of at least 1 was expected." in told


def test_a_threshold_and_a_class_weight_are_numbers() -> None:
    told = refused(*EXPERIMENTS["multi_label"], "metric.threshold='0.5'", "trainer.class_weights={UK: '2'}")
    assert "metric.threshold='0.5': is text; a number above 0 and below 1 was expected." in told
    assert "trainer.class_weights.UK='2': is text; a number above 0 was expected." in told


@pytest.mark.parametrize("task", EXPERIMENTS)
def test_a_bare_variable_of_the_shell_changes_no_head(task: str) -> None:
    words = [*EXPERIMENTS[task], "dataset.source=tests"]
    shell = {"MODEL": "x", "TASK": "regression", "JOB_NAME": "x", "METRIC": "x", "CLASS_WEIGHTS": "balanced"}
    composed = [
        compose_command(parse_command(words), environment=given, groups=read_groups(())) for given in ({}, shell)
    ]
    assert composed[0].tree == composed[1].tree
