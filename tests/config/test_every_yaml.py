"""Every shipped YAML composes, validates and binds; precedence holds for every experiment and mode."""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from typing import get_args

import pytest
from omegaconf import OmegaConf

from supertrainer.config.command import Command
from supertrainer.config.front_door import compose_command
from supertrainer.config.groups import config_directory, describe, read_groups
from supertrainer.config.identity import flat_keys
from supertrainer.config.spine import COMPONENTS, Config
from supertrainer.config.targets import load_target, schema_class
from supertrainer.config.tasks import EncoderTask, Task
from supertrainer.config.validate import validate
from supertrainer.metrics.schema import METRIC_OPTIONS
from supertrainer.trainers.steps import schedule_depends_on_length

GROUPS = read_groups()
MODES = GROUPS.options["mode"]


def config_of(*overrides: str, environment: dict[str, str] | None = None) -> Config:
    environment = environment or {}
    composed = compose_command(Command(overrides=overrides), environment=environment, groups=GROUPS)
    return validate(composed, environment=environment)


def given_by_hand(experiment: str) -> list[str]:
    """What an experiment leaves for its user to give."""
    text = Path(config_directory(), f"experiment/{experiment}.yaml").read_text()
    given = ["model.source=some/model"] if "/hub\n" in text else []
    given += ["dataset.source=README.md"] if "dataset.source=" in text else []
    return [*given, "inferencer.input=pyproject.toml"] if "inferencer.input" in text else given


@pytest.mark.parametrize(("experiment", "mode"), list(itertools.product(GROUPS.experiments, MODES)))
def test_an_experiment_composes_in_every_mode_and_the_mode_holds(experiment: str, mode: str) -> None:
    config = config_of(f"+experiment={experiment}", f"mode={mode}", *given_by_hand(experiment))
    assert config.run.experiment == experiment
    assert config.run.mode == mode
    own = config_directory() / "mode" / "common" / experiment.split("/")[0] / f"{mode}.yaml"
    mode_tree = OmegaConf.load(own if own.is_file() else config_directory() / "mode" / f"{mode}.yaml")
    dumped = OmegaConf.create(config.dump())
    for key in leaves(mode_tree):
        wanted = OmegaConf.to_container(mode_tree)
        for part in key.split("."):
            wanted = wanted[part]
        if OmegaConf.select(dumped, key.split(".")[0]) is not None and not str(wanted).startswith("${"):
            assert OmegaConf.select(dumped, key) == wanted, key


def leaves(tree: object, path: str = "") -> list[str]:
    found = []
    for key, value in OmegaConf.to_container(tree).items() if path == "" else tree.items():
        below = f"{path}.{key}" if path else str(key)
        if key == "defaults":
            continue
        found += leaves(value, below) if isinstance(value, dict) else [below]
    return found


@pytest.mark.parametrize("mode", MODES)
def test_the_command_line_beats_a_mode_with_values_and_with_group_choices(mode: str) -> None:
    config = config_of(
        "+experiment=train_bert",
        f"mode={mode}",
        "trainer.training_kwargs.logging_steps=77",
        "run.seed=5",
        "tracker=tensorboard",
        "trainer/common/model_kwargs@trainer.model_kwargs=eager",
    )
    assert config.trainer.training_kwargs["logging_steps"] == 77
    assert config.run.seed == 5
    assert config.tracker.target.endswith("TensorBoardTracker")
    assert config.trainer.model_kwargs.attn_implementation == "eager"


@pytest.mark.parametrize("experiment", GROUPS.experiments)
def test_an_experiment_binds_its_classes(experiment: str) -> None:
    config = config_of(f"+experiment={experiment}", *given_by_hand(experiment))
    for name in COMPONENTS:
        node = vars(config)[name]
        if node is not None:
            assert load_target(node.target, path=name, allowed=()).__name__ == node.target.rpartition(".")[2]


@pytest.mark.parametrize("experiment", GROUPS.experiments)
def test_an_experiment_says_what_it_is(experiment: str) -> None:
    assert describe(GROUPS.files[f"experiment/{experiment}"])


@pytest.mark.parametrize("name", sorted(name for name in GROUPS.files if name.split("/")[0] in ("model", "dataset")))
def test_every_model_and_dataset_fits_its_experiment(name: str) -> None:
    group, _, option = name.partition("/")
    missing = {"source": "README.md", "path": "README.md"} if group == "dataset" else {}
    tree = OmegaConf.load(GROUPS.files[name])
    absent = {
        key: missing.get(key.rpartition(".")[2], "value")
        for key, value in flat_keys(OmegaConf.to_container(tree))
        if value == "???"
    }
    experiment = f"train_{option.split('/')[0]}"
    if experiment in GROUPS.experiments:
        given = [f"{group}.{key}={value}" for key, value in absent.items()]
        assert config_of(f"+experiment={experiment}", f"{group}={option}", *given) is not None
        return
    for key, value in absent.items():
        OmegaConf.update(tree, key, value)
    schema = schema_class(tree["_target_"], path=group, allowed=())
    assert schema.model_validate_json(json.dumps(OmegaConf.to_container(tree))) is not None


@pytest.mark.parametrize(
    "name",
    sorted(
        name
        for name in GROUPS.files
        if (name.startswith("trainer/common/") or name.split("/")[0] in ("tracker", "engine", "metric"))
    ),
)
def test_every_part_is_accepted_where_it_belongs(name: str) -> None:
    if name.startswith("trainer/common/"):
        _, _, block, option = name.split("/")
        adapter = ["trainer/common/peft_kwargs@trainer.peft_kwargs=lora"] if block == "bitsandbytes_kwargs" else []
        chosen = f"trainer/common/{block}@trainer.{block}={option}"
        assert config_of("+experiment=train_bert", chosen, *adapter) is not None
    else:
        group, _, option = name.partition("/")
        heads = {option: task for task, option in reversed(METRIC_OPTIONS.items())}  # the first of those that share one
        task = heads.get(option) if group == "metric" else None
        experiment = "train_llm" if task == "causal_lm" else "train_bert"
        head = [f"model.task={task}"] if task is not None else []
        assert config_of(f"+experiment={experiment}", f"{group}={option}", *head) is not None


def test_the_recipe_of_language_models_is_accepted() -> None:
    config = config_of("+experiment=train_llm", "trainer=llm/default")
    assert config.trainer.target.endswith("LlmTrainer")
    assert config.trainer.method == "qlora"
    assert not schedule_depends_on_length(config.trainer.training_kwargs)


@pytest.mark.parametrize(
    "option", ["bert", "roberta", "deberta_v3", "modernbert", "xlm_r", "mbert", "arabert", "camelbert"]
)
@pytest.mark.parametrize("task", get_args(EncoderTask))
def test_an_encoder_of_the_hub_takes_every_head(option: str, task: Task) -> None:
    config = config_of(
        "+experiment=train_bert", f"model=bert/{option}", f"model.task={task}", f"metric={METRIC_OPTIONS[task]}"
    )
    assert config.model.source.count("/") == 1


def test_a_command_line_group_beats_values_of_experiment_and_environment(tmp_path: Path) -> None:
    environment = {
        "SUPERTRAINER__TRAINER__MODEL_KWARGS__ATTN_IMPLEMENTATION": "sdpa",
        "SUPERTRAINER__RUN__SEED": "9",
        "SUPERTRAINER__TRACKER": "tensorboard",
        "JOB_NAME": "x",
        "RUN__SEED": "1",
    }
    config = config_of(
        "+experiment=train_bert", "trainer/common/model_kwargs@trainer.model_kwargs=eager", environment=environment
    )
    assert config.trainer.model_kwargs.attn_implementation == "eager"
    assert config.run.seed == 9
    assert config.tracker.target.endswith("TensorBoardTracker")
    config = config_of("+experiment=train_bert", "tracker=none", "run.seed=3", environment=environment)
    assert config.trainer.model_kwargs.attn_implementation == "sdpa"
    assert config.run.seed == 3
    assert config.tracker.target.endswith("NoTracker")


def test_an_environment_variable_beats_the_mode() -> None:
    config = config_of(
        "+experiment=train_bert", "mode=toy", environment={"SUPERTRAINER__TRAINER__TRAINING_KWARGS__LOGGING_STEPS": "3"}
    )
    assert config.trainer.training_kwargs["logging_steps"] == 3


def test_an_environment_variable_chooses_a_part() -> None:
    config = config_of("+experiment=train_bert", environment={"SUPERTRAINER__TRAINER__MODEL_KWARGS": "eager"})
    assert config.trainer.model_kwargs.attn_implementation == "eager"
