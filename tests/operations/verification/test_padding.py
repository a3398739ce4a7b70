"""The check of padding: silent where a mask hides it, loud where it shows in a loss, a logit or a metric."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import BertForSequenceClassification

from supertrainer.data.collation import EncodedRows
from supertrainer.inference.logits import predict_logits
from supertrainer.operations.verification import padding
from supertrainer.operations.verification.padding import check_padding
from supertrainer.operations.verification.rows import Row
from tiny_verification import LORA, tiny_workbench

MODERNBERT = (
    "model.config={model_type: modernbert, hidden_size: 32, num_attention_heads: 2, num_hidden_layers: 2, "
    "intermediate_size: 48}"
)


def padding_rows(place: Path, *words: str, unpromised: str = "") -> dict[str, Row]:
    bench = tiny_workbench(place, *words)
    rows = list(check_padding(*bench.untrained, unpromised=unpromised))
    names = ("loss", "logits", "token", "left", "evaluation")
    return dict(zip(names, rows, strict=True))


@pytest.mark.parametrize("words", [[], [LORA]])
def test_padding_of_the_shipped_classes_holds(words: list[str], tmp_path: Path) -> None:
    rows = padding_rows(tmp_path, *words)
    left = rows.pop("left")
    assert {row.verdict for row in rows.values()} == {"holds"}
    assert left.verdict == "not applicable"
    assert "counted from the first token" in left.why


def test_a_model_that_reads_its_padding_breaks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    forward = BertForSequenceClassification.forward

    def unmasked(self: Any, attention_mask: Any = None, **inputs: Any) -> Any:
        return forward(self, **inputs)

    monkeypatch.setattr(BertForSequenceClassification, "forward", unmasked)
    rows = padding_rows(tmp_path)
    assert {rows[name].verdict for name in ("loss", "logits", "token")} == {"BREAKS"}


def test_a_mask_that_lets_padding_through_breaks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The check doesn't take the mask's word for what is padding."""
    collate = EncodedRows.collate

    def leaky(*args: Any, **kwargs: Any) -> Any:
        batch = collate(*args, **kwargs)
        return batch | {"attention_mask": torch.ones_like(batch["attention_mask"])}

    monkeypatch.setattr(EncodedRows, "collate", leaky)
    rows = padding_rows(tmp_path)
    assert {rows[name].verdict for name in ("loss", "logits", "token")} == {"BREAKS"}


@pytest.mark.parametrize(("pooling", "verdict"), [("mean", "holds"), ("cls", "BREAKS")])
def test_left_is_held_against_a_config_that_pads_there(pooling: str, verdict: str, tmp_path: Path) -> None:
    """ModernBERT's positions are rotary, so the side doesn't matter to them; a head that reads the first place does."""
    words = [MODERNBERT.replace("}", f", classifier_pooling: {pooling}}}"), "model.padding_side=left"]
    rows = padding_rows(tmp_path, *words)
    assert rows["left"].verdict == verdict
    assert rows["logits"].verdict == "holds"


def test_left_is_measured_where_a_config_pads_on_the_right(tmp_path: Path) -> None:
    words = [MODERNBERT.replace("}", ", classifier_pooling: cls}"), "model.padding_side=right"]
    left = padding_rows(tmp_path, *words)["left"]
    assert (left.verdict, left.why) == ("measured", "not promised: this config pads on the right")


def test_metrics_that_depend_on_the_batch_break(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bench = tiny_workbench(tmp_path)
    trainer, module = bench.untrained

    def averaged(module: Any, rows: Any, *, batch_size: int) -> dict[str, float]:
        """The mean of the batches' losses, as if all had the same number of rows."""
        losses = []
        for logits, numbers in predict_logits(module, rows, pad_token_id=0, batch_size=batch_size):
            trainer.metric.reset()
            trainer.update_metric(logits, rows, numbers)
            losses.append(trainer.metric.compute()["loss"])
        return {"loss": sum(losses) / len(losses)}

    monkeypatch.setattr(trainer, "evaluate", averaged)
    assert list(check_padding(trainer, module))[-1].verdict == "BREAKS"


def test_nothing_breaks_where_nothing_is_promised(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(padding, "BOUND", -1.0)
    rows = padding_rows(tmp_path, unpromised="int8")
    assert {row.verdict for row in rows.values()} == {"measured", "not applicable"}


def test_rows_that_leave_no_room_for_padding_are_told(tmp_path: Path) -> None:
    """Texts of 24 tokens and more, cut to 24, in a model of 24 positions."""
    lines = [f"{'the team of the coach ' * 8}{n},{('sports', 'business')[n % 2]}" for n in range(30)]
    (tmp_path / "rows.csv").write_text("\n".join(["text,label", *lines]) + "\n")
    bench = tiny_workbench(tmp_path, "+model.config.max_position_embeddings=24")
    row = next(iter(check_padding(*bench.untrained)))
    assert (row.verdict, row.why) == ("not applicable", "every row fills the 24 positions of the model")
