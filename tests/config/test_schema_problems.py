"""Every value that a schema refuses: told with the full key, the value, what is permitted, and the fix."""

from __future__ import annotations

import importlib
import json
import pkgutil
from collections.abc import Iterator
from typing import Any

import pytest
from pydantic import BaseModel, ValidationError

import supertrainer
from supertrainer.config.cluster import SlurmConfig
from supertrainer.config.schema_problems import schema_problems
from supertrainer.config.schema_types import find_place
from supertrainer.config.spine import Config
from supertrainer.config.strict import StrictModel, TargetModel
from supertrainer.data.streams.schema import StreamDatasetConfig
from supertrainer.trainers.pretrain_schema import PretrainTrainerConfig

TRAINER = {"_target_": "x", "global_batch_size": 8, "sequence_length": 16, "max_steps": 6, "learning_rate": 1e-2}
ODD: tuple[Any, ...] = (
    -1,
    0,
    1.5,
    10**12,
    float("nan"),
    float("inf"),
    "",
    "zap",
    True,
    None,
    [],
    ["zap"],
    [0],
    {},
    {"zap": 0},
)
WORDS_OF_PYDANTIC = ("Input should", "should have", "Value error", "Tuple", "Unable to")


def told(schema: type[BaseModel], tree: dict[str, Any], *, path: str) -> list[str]:
    with pytest.raises(ValidationError) as refused:
        schema.model_validate_json(json.dumps(tree))
    return [str(problem) for problem in schema_problems(refused.value, schema, path=path)]


@pytest.mark.parametrize(
    ("key", "value", "what", "fix"),
    [
        ("max_steps", 0, "max_steps=0: a whole number of at least 1 was expected.", "trainer.max_steps=1, say."),
        ("learning_rate", -1.0, "learning_rate=-1.0: a number above 0 was expected.", "give a number above 0."),
        ("learning_rate", float("nan"), "learning_rate=NaN: a number above 0 was expected.", "give a number above 0."),
        ("learning_rate", "1e-3", "learning_rate='1e-3': is text; a number above 0 was", "=0.001 without quotes."),
        ("micro_batch_size", 0, "=0: a whole number of at least 1 or null was expected.", "micro_batch_size=1, say."),
        ("betas", [0.9, 1.0], "betas[1]=1.0: a number from 0 and below 1 was expected.", "trainer.betas=[…] with a"),
        ("betas", [0.9], "trainer.betas[1]: is required.", "trainer.betas=[…] with 2 items or more."),
        ("betas", [0, 0, 0], "trainer.betas=[0, 0, 0]: a list of 2 was expected.", "give a list of 2."),
        ("guard", {"spike_sigmas": 0}, "trainer.guard.spike_sigmas=0: a number above 0 or null", "=6.0, say."),
        ("schedule", {"final_share": 2}, "final_share=2: a number from 0 to 1 was expected.", "final_share=1, say."),
        ("schedule", {"name": "cosin"}, "trainer.schedule.name='cosin': expected one of", "did you mean cosine?"),
        ("schedule", {"nme": "cosine"}, "trainer.schedule.nme='cosine': unknown key.", "did you mean name?"),
    ],
)  # fmt: skip
def test_a_refused_value_is_told(key: str, value: Any, what: str, fix: str) -> None:
    [text] = told(PretrainTrainerConfig, {**TRAINER, key: value}, path="trainer")
    assert what in text
    assert fix in text.partition("  Fix: ")[2]
    assert text.startswith("trainer.")


def test_a_key_below_a_name_of_the_user_s_own_is_told_in_full() -> None:
    sources = {"weight": {"path": "README.md", "weight": 0, "formt": "text"}}
    texts = told(StreamDatasetConfig, {"_target_": "x", "tokenizer": ".", "sources": sources}, path="dataset")
    assert texts[0].startswith("dataset.sources.weight.weight=0: a number above 0 was expected.")
    assert texts[0].endswith("Fix: dataset.sources.weight.weight=1.0, say.")
    assert texts[1].startswith("dataset.sources.weight.formt='text': unknown key.")
    assert texts[1].endswith("did you mean format?")


def test_a_form_of_text_is_shown_by_an_instance() -> None:
    [text] = told(SlurmConfig, {"mem_per_gpu": "12Q"}, path="cluster.slurm")
    assert "cluster.slurm.mem_per_gpu='12Q': text of the form ^[0-9]+[KMGT]?$, such as 16G or null was" in text


def schemas() -> Iterator[type[StrictModel]]:
    """Every config class of the product."""
    names = [found.name for found in pkgutil.walk_packages(supertrainer.__path__, "supertrainer.")]
    for name in names:
        if name.endswith("schema") or name.startswith("supertrainer.config."):
            importlib.import_module(name)
    waiting: list[type[StrictModel]] = [StrictModel]
    while waiting:
        schema = waiting.pop()
        waiting += schema.__subclasses__()
        if schema not in (StrictModel, TargetModel) and schema.__module__.startswith("supertrainer."):
            yield schema


@pytest.mark.parametrize("schema", sorted(set(schemas()), key=lambda schema: f"{schema.__module__}.{schema.__name__}"))
def test_whatever_a_schema_refuses_has_a_fix(schema: type[StrictModel]) -> None:
    for name, field in schema.model_fields.items():
        key = field.alias or name
        for value in ODD:
            try:
                schema.model_validate_json(json.dumps({key: value}))
            except ValidationError as error:
                for problem in schema_problems(error, schema, path="node"):
                    assert problem.fix, problem
                    assert not any(word in str(problem) for word in WORDS_OF_PYDANTIC), problem


def test_places_are_found_through_unions_lists_and_mappings() -> None:
    assert find_place(Config, ("run", "seed")).takes == ("a whole number from 0 to 4294967295",)
    found = find_place(StreamDatasetConfig, ("sources", "function-after[f(), dict]", "a", "weight"))
    assert (found.parts, found.takes) == (("sources", "a", "weight"), ("a number above 0",))
    assert not find_place(StreamDatasetConfig, ("sources", "a", "waight")).known
