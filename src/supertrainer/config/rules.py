"""Rules across components: what an operation needs, and what each component's schema states (`TargetModel.rules`)."""

from __future__ import annotations

from collections.abc import Iterator

from supertrainer.config.spine import COMPONENTS, Config
from supertrainer.config.tasks import is_pretraining
from supertrainer.core.errors import Problem
from supertrainer.core.placement import placement

NEEDS = {
    "train": ("model", "dataset", "trainer", "metric", "benchmark", "engine"),
    "infer": ("model", "inferencer", "engine"),
    "benchmark": ("model", "dataset", "benchmark", "engine", "metric"),
    "export": ("model", "trainer", "export"),
    "check": ("model", "dataset", "trainer"),
    "verify": ("model", "dataset", "trainer", "metric"),
}
NEEDS_OF_PRETRAINING = {
    "train": ("model", "dataset", "trainer"),
    "check": ("model", "dataset", "trainer"),
    "verify": ("model", "dataset", "trainer"),
}
_AFTER_TRAINING = ("infer", "benchmark", "export")
_OF_A_TRAINING = ("train", "export")  # an export is of a run whose config says what came after its training


def rule_problems(config: Config) -> Iterator[Problem]:
    """Everything that is wrong with a config whose nodes are right each by itself."""
    needs = NEEDS_OF_PRETRAINING if is_pretraining(config) else NEEDS
    for operation in dict.fromkeys((config.operation, *config.then)):
        if operation not in needs:
            yield Problem(
                f"operation={operation} with a model that is pretrained.",
                why="a pretraining ends with a plain language model in its run directory.",
                fix="model.source=runs/NAME under +experiment=infer_llm, benchmark_llm or train_llm; "
                "scripts/convert_dcp_to_hf.py writes any of its checkpoints in other forms.",
            )
            continue
        for name in [name for name in needs[operation] if vars(config)[name] is None]:
            yield Problem(f"{name}: operation={operation} needs one.", fix=f"choose one with {name}=OPTION.")
    for index, operation in enumerate(config.then):
        if operation not in _AFTER_TRAINING or config.operation not in _OF_A_TRAINING:
            yield Problem(
                f"then[{index}]={operation}: can't follow operation={config.operation}.",
                fix=f"then may list {', '.join(_AFTER_TRAINING)} after operation=train.",
            )
    if config.operation == "verify" and placement().processes > 1:
        yield Problem(
            f"operation=verify in {placement().processes} processes.",
            why="it compares one process with two, and starts those two itself.",
            fix="start it as a single process, without torchrun and with one task.",
        )
    if config.run.fresh and config.run.extend:
        yield Problem("run.fresh=true and run.extend=true exclude each other.", fix="choose one.")
    for name in COMPONENTS:
        node = vars(config)[name]
        if node is not None:
            yield from node.rules(config)
