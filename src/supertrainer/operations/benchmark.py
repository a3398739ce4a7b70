"""`operation=benchmark`: a trained model scored on a labelled split, beside two baselines."""

from __future__ import annotations

import sys

from supertrainer.benchmark.console import print_benchmark
from supertrainer.benchmark.results import Report
from supertrainer.config.spine import Config
from supertrainer.core.distributed import on_main_then_broadcast
from supertrainer.operations.opening import OpenRun
from supertrainer.operations.paths import relative
from supertrainer.operations.reporting import finish
from supertrainer.operations.scoring import score


def run(config: Config, open_run: OpenRun) -> None:
    """Scores, writes benchmark.json, predictions.jsonl and the report, and prints the table."""
    on_main_then_broadcast(lambda: _run(config, open_run))


def _run(config: Config, open_run: OpenRun) -> None:
    directory = open_run.directory
    result = score(config, directory, split=config.benchmark.split, method="as trained")
    print_benchmark(result, directory=relative(directory.path), stream=sys.stdout)
    if config.operation == "benchmark":
        shared = {name: getattr(result, name) for name in Report.model_fields if name in type(result).model_fields}
        shared |= {"metrics": {result.split: result.metrics}, "scored_split": result.split}
        finish(config, open_run, shared=shared, show=False)
