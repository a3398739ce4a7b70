"""Keys that go to third-party classes, read from their installed source."""

from __future__ import annotations

import inspect
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest

from supertrainer.config.passthrough import Parameter, Passthrough, parameters
from supertrainer.core.errors import MissingDependencyError

TRAINING = Passthrough(
    "transformers", "training_args.py", "TrainingArguments", refused={"output_dir": "run.root says where runs go."}
)


def problems(**values: Any) -> list[str]:
    return [str(problem) for problem in TRAINING.problems(values, path="trainer.training_kwargs")]


def test_a_misspelt_key_is_named_with_the_nearest() -> None:
    assert problems(learning_ratee=1e-4) == [
        "trainer.training_kwargs.learning_ratee=0.0001: TrainingArguments has no parameter 'learning_ratee'.\n"
        "  Fix: did you mean learning_rate?"
    ]


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("learning_rate", "1e-4"),
        ("num_train_epochs", True),
        ("max_steps", 1.5),
        ("per_device_train_batch_size", "8"),
        ("bf16", 1),
        ("lr_scheduler_type", "liner"),
        ("eval_strategy", "step"),
        ("optim", "adamw_torhc"),
        ("eval_strategy", False),
    ],
)
def test_a_wrong_value_is_refused(key: str, value: object) -> None:
    [problem] = problems(**{key: value})
    assert problem.startswith(f"trainer.training_kwargs.{key}={value!r} ")


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("learning_rate", 1e-4),
        ("learning_rate", 1),
        ("num_train_epochs", 3),
        ("lr_scheduler_type", "cosine"),
        ("warmup_steps", 0.1),
        ("logging_dir_is_gone", None),
        ("lr_scheduler_kwargs", {"min_lr": 0.1}),
        ("optim_args", None),
    ],
)
def test_a_right_value_passes(key: str, value: object) -> None:
    if key == "logging_dir_is_gone":
        assert "logging_dir" not in parameters("transformers", "training_args.py", "TrainingArguments")
    else:
        assert problems(**{key: value}) == []


def test_a_key_that_is_set_elsewhere_says_where() -> None:
    [problem] = problems(output_dir="out")
    assert problem.endswith("Fix: run.root says where runs go.")


def test_every_problem_is_reported() -> None:
    assert len(problems(learning_ratee=1, bf16=1, output_dir="x")) == 3


@pytest.mark.slow
@pytest.mark.parametrize(
    ("package", "file", "class_name"),
    [
        ("transformers", "training_args.py", "TrainingArguments"),
        ("peft", "tuners/lora/config.py", "LoraConfig"),
        ("transformers", "utils/quantization_config.py", "BitsAndBytesConfig"),
    ],
)
def test_names_equal_those_of_the_imported_class(package: str, file: str, class_name: str) -> None:
    module = __import__(package, fromlist=[class_name])
    signature = inspect.signature(
        vars(module)[class_name] if class_name in vars(module) else getattr(module, class_name)
    )
    names = {name for name, item in signature.parameters.items() if item.kind is not inspect.Parameter.VAR_KEYWORD}
    assert parameters(package, file, class_name).keys() == names - {"self"}


def test_a_package_that_is_not_there() -> None:
    with pytest.raises(MissingDependencyError, match="NoSuch of nosuchpackage is not installed"):
        parameters("nosuchpackage", "x.py", "NoSuch")


def test_annotations_as_they_are_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = tmp_path / "somepackage"
    package.mkdir()
    (package / "__init__.py").write_text("raise RuntimeError('must not be imported')")
    (package / "kinds.py").write_text('from enum import Enum\nclass Kind(str, Enum):\n    A = "a"\n    B = "b"\n')
    (package / "base.py").write_text("class Base:\n    inherited: int = 0\n")
    (package / "thing.py").write_text(
        textwrap.dedent("""
        from typing import ClassVar, Literal, Optional, Union
        from .base import Base
        from somepackage.kinds import Kind
        class Thing(Base):
            name: str
            maybe: Optional[int] = None
            either: Union[int, str] = 1
            kind: Kind = "a"
            word: Literal["x", "y"] = "x"
            deep: "dict[str, int] | None" = None
            anything: object = None
            constant: ClassVar[int] = 1
            made: int = field(init=False)
        class WithInit:
            field_not_parameter: int = 0
            def __init__(self, first: float, *, second=True, **kwargs): ...
        """)
    )
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    assert parameters("somepackage", "thing.py", "Thing") == {
        "inherited": Parameter(types=frozenset({"int"})),
        "name": Parameter(types=frozenset({"str"})),
        "maybe": Parameter(types=frozenset({"int", "None"})),
        "either": Parameter(types=frozenset({"int", "str"})),
        "kind": Parameter(choices=frozenset({"a", "b"})),
        "word": Parameter(choices=frozenset({"x", "y"})),
        "deep": Parameter(types=frozenset({"dict", "None"})),
        "anything": Parameter(),
    }
    assert parameters("somepackage", "thing.py", "WithInit") == {
        "first": Parameter(types=frozenset({"float"})),
        "second": Parameter(types=frozenset({"bool"})),
    }
