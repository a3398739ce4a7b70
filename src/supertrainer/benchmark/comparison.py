"""Runs side by side: where their configs differ, what they scored, how fast, how much memory. No torch.

Whatever a directory holds is told: a run that is missing, unfinished or damaged has a line too.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from supertrainer.config.identity import flat_keys
from supertrainer.core.attempts import read_attempts
from supertrainer.core.files import read_json
from supertrainer.core.run_directory import RunDirectory

_NOT_COMPARED = ("run.name", "run.root", "run.fresh", "run.extend")


@dataclass(frozen=True)
class ComparedRun:
    """One run.

    Attributes:
        run: the directory, as it was given.
        state: finished, or in words what it is.
        config: flat, dotted keys.
        main_metric: the name of the scalar that runs are sorted by; empty where there is none.
        greater_is_better: of it.
        split: whose scores these are.
        metrics: scalars of that split.
        seconds: of training.
        estimated_gib: memory of a process, before training.
        measured_gib: what training took; on a CPU the growth of resident memory over the start of training.
    """

    run: str
    state: str
    config: Mapping[str, Any] = field(default_factory=dict)
    main_metric: str = ""
    greater_is_better: bool = True
    split: str = ""
    metrics: Mapping[str, float] = field(default_factory=dict)
    steps: int | None = None
    seconds: float | None = None
    rows_per_second: float | None = None
    estimated_gib: float | None = None
    measured_gib: float | None = None

    @property
    def ratio(self) -> float | None:
        """Estimated over measured memory."""
        if self.estimated_gib is None or self.measured_gib is None or self.measured_gib <= 0:
            return None
        return self.estimated_gib / self.measured_gib

    @property
    def score(self) -> float | None:
        """The main scalar; None where it isn't there or no number."""
        value = self.metrics.get(self.main_metric)
        return value if isinstance(value, int | float) and math.isfinite(value) else None


def compare(runs: Iterable[RunDirectory]) -> list[ComparedRun]:
    """The runs, the best by its main metric first, those without a score last in the order given."""
    found = [read_run(run) for run in runs]
    scored = [run for run in found if run.score is not None]
    scored.sort(key=lambda run: (run.main_metric, -(run.score or 0) if run.greater_is_better else run.score or 0))
    return [*scored, *(run for run in found if run.score is None)]


def differing_keys(runs: Sequence[ComparedRun]) -> list[str]:
    """The config keys whose values aren't the same in all runs that have a config."""
    configs = [run.config for run in runs if run.config]
    keys = dict.fromkeys(key for config in configs for key in config)
    return [key for key in keys if key not in _NOT_COMPARED and len({_key(c.get(key, _key)) for c in configs}) > 1]


def read_run(run: RunDirectory) -> ComparedRun:
    """What a directory says of its run; never an error."""
    name = str(run.path)
    if not run.path.is_dir():
        return ComparedRun(name, "no directory" if run.path.exists() else "missing")
    odd: list[str] = []
    stored = _read(run.config_json, odd)
    report, estimate = _read(run.report_json, odd), _read(run.estimate_json, odd)
    if not stored and not report and not odd:
        return ComparedRun(name, "no run")
    tree = _node(stored, "config")
    metric = _node(tree, "metric")
    timing, measured = _node(report, "timing"), _node(estimate, "measured")
    scores = _node(report, "metrics")
    split = report.get("scored_split") or next(iter(scores), "")
    return ComparedRun(
        run=name,
        state=_state(run, report, odd),
        config=dict(flat_keys(tree)),
        main_metric=str(report.get("main_metric") or metric.get("main") or ""),
        greater_is_better=metric.get("greater_is_better") is not False,
        split=str(split),
        metrics=_node(scores, str(split)),
        steps=report.get("steps"),
        seconds=_number(timing.get("seconds")),
        rows_per_second=_number(timing.get("rows_per_second")),
        estimated_gib=_number(estimate.get("peak_gib")),
        measured_gib=_number(measured.get("growth_gib")),
    )


def _state(run: RunDirectory, report: Mapping[str, Any], odd: Sequence[str]) -> str:
    if odd:
        return f"damaged: {', '.join(odd)}"
    if report:
        return str(report.get("status", "finished"))
    try:
        attempts = read_attempts(run)
    except (KeyError, TypeError, AttributeError):
        return "damaged: attempts.jsonl"
    if not attempts:
        return "not started"
    last = attempts[-1]
    word = "running or killed" if last.outcome == "killed" else last.outcome
    at = "" if last.step is None else f" at step {last.step}"
    return f"{word}{at}" + (f" of {last.planned_steps}" if last.planned_steps is not None and at else "")


def _read(path: Any, odd: list[str]) -> dict[str, Any]:
    """A JSON object; empty where there is none, and its name kept in `odd` where it can't be read."""
    if not path.is_file():
        return {}
    try:
        content = read_json(path)
    except (OSError, ValueError):
        content = None
    if isinstance(content, dict):
        return content
    odd.append(path.name)
    return {}


def _node(tree: Any, key: str) -> dict[str, Any]:
    found = tree.get(key) if isinstance(tree, dict) else None
    return found if isinstance(found, dict) else {}


def _number(value: Any) -> float | None:
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None


def _key(value: Any) -> str:
    return repr(value)
