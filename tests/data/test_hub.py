"""A dataset by its Hub id, from a hub on this machine. Clients read the endpoint at import: hence the processes."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import datasets
import pytest

from loopback_hub import LoopbackHub

LOAD = """
import json, sys
from supertrainer.core.errors import SupertrainerError
from supertrainer.data.bert import BertDataset
from supertrainer.data.schema import BertDatasetConfig
for node in sys.argv[1:]:
    dataset = BertDataset(BertDatasetConfig.model_validate_json(node), seed=0)
    try:
        rows = {split: [list(row.values()) for row in rows] for split, rows in dataset.load().items()}
        print(json.dumps({"rows": rows, "names": dataset.label_names, "fingerprint": dataset.fingerprint()}))
    except SupertrainerError as error:
        print(json.dumps({"error": str(error)}))
"""


@pytest.fixture
def hub() -> Iterator[LoopbackHub]:
    with LoopbackHub() as running:
        yield running


def loaded(hub: LoopbackHub, cache: Path, *nodes: dict[str, Any], offline: bool = False) -> list[dict[str, Any]]:
    """What each of the configs loads, or the error it gives, one after the other in one process."""
    texts = [json.dumps({"_target_": "supertrainer.data.bert.BertDataset", **node}) for node in nodes]
    environment = {**os.environ, **hub.environment(cache=cache), "HF_HUB_OFFLINE": str(int(offline))}
    done = subprocess.run([sys.executable, "-c", LOAD, *texts], env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


def parquet(texts: list[str]) -> bytes:
    features = datasets.Features({"text": datasets.Value("string"), "label": datasets.ClassLabel(names=["neg", "pos"])})
    buffer = io.BytesIO()
    datasets.Dataset.from_dict({"text": texts, "label": [1, 0]}, features=features).to_parquet(buffer)
    return buffer.getvalue()


def test_a_set_of_the_hub_is_read_at_a_commit_and_offline_again(hub: LoopbackHub, tmp_path: Path) -> None:
    old = hub.add("someone/reviews", {"train.parquet": parquet(["old", "dull"])}, kind="datasets")
    files = {"train.parquet": parquet(["new", "dull"]), "test.parquet": parquet(["so", "no"])}
    new = hub.add("someone/reviews", files, kind="datasets")
    reviews = {"source": "someone/reviews"}
    (first,) = loaded(hub, tmp_path, reviews)
    assert first == {
        "rows": {
            "train": [["new", 1, "train row 1"], ["dull", 0, "train row 2"]],
            "test": [["so", 1, "test row 1"], ["no", 0, "test row 2"]],
        },
        "names": ["neg", "pos"],
        "fingerprint": {"someone/reviews": {"commit": new}},
    }
    asked = len(hub.requests)
    pins = [{**reviews, "revision": commit} for commit in (new, old)]
    again, pinned, uncached = loaded(hub, tmp_path, reviews, *pins, offline=True)
    assert again == pinned == first
    assert uncached["error"].startswith(
        f"DataError: someone/reviews at dataset.revision={old} is not cached: {new} is."
    )
    assert len(hub.requests) == asked
    (pinned,) = loaded(hub, tmp_path, pins[1])
    assert pinned["rows"] == {"train": [["old", 1, "train row 1"], ["dull", 0, "train row 2"]]}
    assert pinned["fingerprint"] == {"someone/reviews": {"commit": old}}


def test_what_the_hub_does_not_have_is_said(hub: LoopbackHub, tmp_path: Path) -> None:
    hub.add("someone/reviews", {"train.parquet": parquet(["new", "dull"])}, kind="datasets")
    reviews = {"source": "someone/reviews"}
    missing, split, column, name = (
        answer["error"]
        for answer in loaded(
            hub,
            tmp_path,
            {"source": "someone/other"},
            {**reviews, "splits": {"train": "train", "validation": "dev"}},
            {**reviews, "columns": {"text": "review", "label": "label"}},
            {**reviews, "name": "french"},
        )
    )
    assert missing.startswith("DataError: dataset.source=someone/other can't be read from the Hub: ")
    assert "Fix: check the id, dataset.name and dataset.revision" in missing
    assert split == (
        "DataError: dataset.splits.validation=dev: someone/reviews has no such split.\n  Fix: one of: train."
    )
    assert column.startswith("DataError: train has no column 'review' (dataset.columns.text). It has: text, label.")
    assert "BuilderConfig 'french' not found" in name
