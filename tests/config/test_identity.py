"""What makes two commands the same run."""

from __future__ import annotations

import pytest

from supertrainer.config.command import Command
from supertrainer.config.front_door import compose_command
from supertrainer.config.groups import read_groups
from supertrainer.config.identity import differences, identity
from supertrainer.config.validate import validate


def identity_of(*overrides: str) -> dict[str, object]:
    command = Command(overrides=("+experiment=train_bert", "trainer.training_kwargs.eval_strategy=epoch", *overrides))
    return identity(validate(compose_command(command, environment={}, groups=read_groups()), environment={}))


@pytest.mark.parametrize(
    "override",
    [
        "run.name=other",
        "run.root=elsewhere",
        "tracker=tensorboard",
        "trainer.training_kwargs.per_device_train_batch_size=2",
        "trainer.training_kwargs.save_steps=7",
        "trainer.training_kwargs.logging_steps=1",
        "trainer.keep_last=5",
        "metric.main=accuracy",
    ],
)
def test_what_a_run_computes_does_not_depend_on(override: str) -> None:
    assert identity_of(override) == identity_of()


@pytest.mark.parametrize(
    ("override", "key"),
    [
        ("run.seed=1", "run.seed"),
        ("trainer.global_batch_size=64", "trainer.global_batch_size"),
        ("trainer.training_kwargs.learning_rate=3e-5", "trainer.training_kwargs.learning_rate"),
        ("dataset.max_length=64", "dataset.max_length"),
        ("trainer.model_kwargs.attn_implementation=eager", "trainer.model_kwargs.attn_implementation"),
    ],
)
def test_another_run_differs_in_its_key(override: str, key: str) -> None:
    assert list(differences(identity_of(), identity_of(override))) == [key]


def test_what_ranks_checkpoints_belongs_to_a_run_that_keeps_the_best() -> None:
    best = identity_of("trainer.select=best", "metric.main=macro_f1")
    assert differences(best, identity_of("trainer.select=best", "metric.main=accuracy")) == {
        "metric.main": ("macro_f1", "accuracy")
    }
