"""`operation=export`: a finished run's model as one plain model, and how far it is from the one that was trained."""

from __future__ import annotations

import logging
import sys
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from supertrainer.benchmark.report import read_report, write_report
from supertrainer.config.build import build
from supertrainer.config.spine import Config
from supertrainer.core.distributed import on_main_then_broadcast
from supertrainer.core.errors import SupertrainerError
from supertrainer.core.files import write_json
from supertrainer.core.run_directory import RunDirectory
from supertrainer.export.measure import Row
from supertrainer.export.merge import MergeExport, MergeResult
from supertrainer.models.architecture import read_config
from supertrainer.models.heads import saved_task
from supertrainer.models.processors import tokenizer_of
from supertrainer.models.saving import saved_reader
from supertrainer.models.sources import Source, find_source
from supertrainer.operations.opening import OpenRun
from supertrainer.operations.paths import relative
from supertrainer.operations.scoring import build_dataset
from supertrainer.trainers.devices import training_device

log = logging.getLogger(__name__)

_NOTE = "export: "  # how its note in the report begins: a later export's takes its place


def run(config: Config, open_run: OpenRun) -> None:
    """Merges on the first process; writes the model, export.json and a note in the report."""
    on_main_then_broadcast(lambda: _run(config, open_run.directory))


def _run(config: Config, directory: RunDirectory) -> None:
    exporter: MergeExport = build(config.export, allowed=config.allow_targets)
    source = find_source(str(directory.model))
    rows, said = _rows(config, source)
    output = directory.merged if config.export.output is None else Path(config.export.output)
    result = exporter.run(source, output=output, rows=rows, device=training_device())
    write_json(directory.export_json, {**result.record(), "compared_on": said})
    note = _told(result, said)
    print(note, file=sys.stdout, flush=True)
    report = read_report(directory)
    kept = tuple(line for line in report.notes if not line.startswith(_NOTE))
    write_report(directory, report=report.model_copy(update={"notes": (*kept, note)}))


def _rows(config: Config, source: Source) -> tuple[list[Row], str]:
    """What to compare the models on, and what it is: rows of the data, or random tokens where it isn't there."""
    trust = config.model.trust_remote_code
    architecture = read_config(source.directory, trust_remote_code=trust)
    reader = saved_reader(source.directory, task=saved_task(architecture), trust_remote_code=trust)
    tokenizer = tokenizer_of(reader)
    count, length = config.export.rows, min(config.export.max_length, tokenizer.model_max_length)
    try:
        dataset = build_dataset(config)
        splits = dataset.load()
        split = next(name for name in ("validation", "test", "train") if name in splits)
        encoded = dataset.model_rows(split, reader)
        if config.dataset.holds_pictures:  # which can't be cut
            rows: list[Row] = [_alone(encoded, n, tokenizer=tokenizer) for n in range(min(count, len(encoded)))]
            return rows, f"{len(rows)} {split} rows"
        ids = [[int(i) for i in encoded[number]["input_ids"]][:length] for number in range(min(count, len(encoded)))]
        return [row for row in ids if row], f"{len(ids)} {split} rows"
    except SupertrainerError as error:
        log.warning("the models are compared on random tokens: %s", str(error).splitlines()[0])
    special = set(tokenizer.all_special_ids)  # among them what stands for pictures, which aren't there
    plain = torch.tensor([i for i in range(architecture.get_text_config().vocab_size) if i not in special])
    drawn = torch.randint(len(plain), (count, length), generator=torch.Generator().manual_seed(config.run.seed))
    return plain[drawn].tolist(), f"{count} rows of random tokens"


def _alone(rows: Any, number: int, *, tokenizer: Any) -> dict[str, Tensor]:
    """A batch of one row, without its labels."""
    batch: dict[str, Tensor] = rows.collate([rows[number]], pad_token_id=tokenizer.pad_token_id)
    return {name: tensor for name, tensor in batch.items() if name != "labels"}


def _told(result: MergeResult, said: str) -> str:
    parts = [f"{name} base: {apart}" if name != "none" else str(apart) for name, apart in result.differences.items()]
    chosen = "" if result.base == "none" else f", merged into the {result.base} base"
    return (
        f"{_NOTE}{relative(result.output)} in {result.dtype}{chosen}. Against the trained model, on {said}: "
        f"{'; '.join(parts)}"
    )
