"""`operation=infer`: a file in, the same rows with predictions out."""

from __future__ import annotations

import sys
from pathlib import Path

from supertrainer.benchmark.results import DataFacts, ModelFacts, Timing
from supertrainer.config.build import build
from supertrainer.config.spine import Config
from supertrainer.core.distributed import on_main_then_broadcast
from supertrainer.inference.base import InferenceResult
from supertrainer.models.base import count_parameters
from supertrainer.operations.opening import OpenRun
from supertrainer.operations.paths import relative
from supertrainer.operations.reporting import finish
from supertrainer.operations.scoring import build_engine


def run(config: Config, open_run: OpenRun) -> None:
    """Predicts the input file on the first process, and says where the output is."""
    on_main_then_broadcast(lambda: _run(config, open_run))


def _run(config: Config, open_run: OpenRun) -> None:
    engine = build_engine(config, open_run.directory)
    inferencer = build(config.inferencer, allowed=config.allow_targets, engine=engine)
    result: InferenceResult = inferencer.run(directory=open_run.directory.path)
    print(f"{result.rows:,} rows -> {relative(Path(result.output))}", file=sys.stdout, flush=True)
    if config.operation == "infer":
        counts = count_parameters(engine.trained.model)
        shared = {
            "model": ModelFacts(
                source=str(config.model.source),
                parameters=counts.total,
                trainable_parameters=counts.trainable,
                method="as trained",
            ),
            "data": DataFacts(
                source=config.inferencer.input, rows={"input": result.rows}, labels=tuple(engine.trained.label_names)
            ),
            "main_metric": "none",
            "metrics": {},
            "timing": Timing(seconds=result.seconds, rows_per_second=result.rows / max(result.seconds, 1e-9)),
            "notes": (f"output: {relative(Path(result.output))}",)
            + ((f"{result.blank} rows without text got no prediction",) if result.blank else ()),
        }
        finish(config, open_run, shared=shared, show=False)
