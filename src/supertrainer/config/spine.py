"""The spine of a config: the keys at its top, and which of them select a class."""

from __future__ import annotations

import re
from typing import Any, Literal

from pydantic import Field, field_validator

from supertrainer.config.cluster import ClusterConfig
from supertrainer.config.strict import StrictModel

OPERATIONS = ("train", "infer", "benchmark", "export", "check", "verify")
Operation = Literal["train", "infer", "benchmark", "export", "check", "verify"]
COMPONENTS = ("model", "dataset", "trainer", "inferencer", "benchmark", "engine", "metric", "export", "tracker")


class RunConfig(StrictModel):
    """Who the run is and where it lives.

    Attributes:
        name: directory name; None: `<experiment>-<8 hex digits of the identity>`.
        root: where run directories are made.
        seed: of every random choice.
        deterministic: deterministic algorithms, so that a resumed run equals an uninterrupted one to the bit.
        fresh: start NAME-2 beside a run that is there.
        extend: go on with a finished run to a greater length.
        mode: full, toy or sanity_check; the mode group sets it.
        experiment: the experiment's name.
    """

    name: str | None = None
    root: str = Field(default="runs", min_length=1)
    seed: int = Field(default=42, ge=0, lt=2**32)
    deterministic: bool = True
    fresh: bool = False
    extend: bool = False
    mode: str = "full"
    experiment: str | None = None

    @field_validator("name", mode="before")
    @classmethod
    def _is_one_directory(cls, value: Any) -> Any:
        text = str(value) if isinstance(value, int) and not isinstance(value, bool) else value
        if isinstance(text, str) and not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._+=-]{0,127}", text):
            raise ValueError(
                "is no name of one directory Fix: letters, digits and . _ + = - after a letter or digit; "
                "run.root says where runs go."
            )
        return text


class Config(StrictModel):
    """A whole, validated, frozen config. A component is a node of its own schema class, or None."""

    run: RunConfig = RunConfig()
    operation: Operation = "train"
    then: tuple[Operation, ...] = ()
    allow_targets: tuple[str, ...] = ()
    cluster: ClusterConfig = ClusterConfig()
    model: Any = None
    dataset: Any = None
    trainer: Any = None
    inferencer: Any = None
    benchmark: Any = None
    engine: Any = None
    metric: Any = None
    export: Any = None
    tracker: Any = None

    def dump(self) -> dict[str, Any]:
        """The config as plain data, in the form that it is read from."""
        tree: dict[str, Any] = {}
        for name in type(self).model_fields:
            value = getattr(self, name)
            if isinstance(value, StrictModel):
                tree[name] = value.model_dump(mode="json", by_alias=True)
            else:
                tree[name] = list(value) if isinstance(value, tuple) else value
        return tree
