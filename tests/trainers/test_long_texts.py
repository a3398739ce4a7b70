"""Long texts as windows: rows of their own in training, one prediction a text, however they are batched."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from supertrainer.inference.bert import BertInferencer
from supertrainer.inference.engines.hf import HfEngine
from supertrainer.inference.engines.schema import HfEngineConfig
from supertrainer.inference.logits import predict_logits
from supertrainer.inference.schema import BertInferencerConfig
from supertrainer.models.saving import load_trained
from tiny_models import save_tiny
from tiny_training import head_trainer

WINDOWS = {"max_length": 8, "long_texts": "stride", "overlap": 2}


def pooled(trainer: Any, model: Any, **keys: Any) -> torch.Tensor:
    rows = trainer.rows("validation")
    found = [
        (number, row)
        for logits, numbers in predict_logits(model, rows, pad_token_id=0, **keys)
        for number, row in zip(numbers, logits, strict=True)
    ]
    return torch.stack([row for _, row in sorted(found, key=lambda item: item[0])])


@pytest.mark.parametrize("pooling", ["mean", "max"])
def test_a_text_is_predicted_by_all_of_its_windows(tmp_path: Path, pooling: str) -> None:
    trainer = head_trainer(
        tmp_path / "run", save_tiny(tmp_path / "source"), "multi_label", dataset={**WINDOWS, "pooling": pooling}
    )
    result = trainer.train()
    rows = trainer.rows("train")
    assert len(rows) > 22
    assert result.planned_steps == 2 * -(-len(rows) // 8)  # steps go over windows
    trained = load_trained(tmp_path / "run")
    assert trained.noted == {"long_texts": "stride", "overlap": 2, "pooling": pooling, "threshold": 0.5}
    by_hand = []
    validation = trainer.rows("validation")
    for start, end in zip(validation.documents[:-1], validation.documents[1:], strict=True):
        ids = [torch.tensor(validation[row]["input_ids"].tolist())[None] for row in range(start, end)]
        with torch.no_grad():
            logits = torch.cat([trained.model(input_ids=row).logits for row in ids])
        by_hand.append(logits.mean(dim=0) if pooling == "mean" else logits.amax(dim=0))
    whole = pooled(trainer, trained.model, batch_size=100)
    torch.testing.assert_close(whole, torch.stack(by_hand), rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(pooled(trainer, trained.model, batch_size=2), whole, rtol=1e-5, atol=1e-6)
    texts = trainer.dataset.load()["validation"]["text"][:]
    engine = HfEngine(HfEngineConfig(_target_="x"), trained=trained)
    logits = BertInferencer(BertInferencerConfig(_target_="x"), engine=engine)._logits(texts, None)
    torch.testing.assert_close(logits.float(), whole, rtol=1e-5, atol=1e-6)


def test_windows_of_a_text_are_on_one_process(tmp_path: Path) -> None:
    trainer = head_trainer(tmp_path / "run", save_tiny(tmp_path / "source"), "regression", dataset=WINDOWS)
    trainer.train()
    model, rows = load_trained(tmp_path / "run").model, trainer.rows("validation")
    seen = [
        number
        for rank in (0, 1)
        for _, numbers in predict_logits(model, rows, pad_token_id=0, batch_size=2, rank=rank, world_size=2)
        for number in numbers
    ]
    assert sorted(seen) == list(range(len(rows.documents) - 1))
