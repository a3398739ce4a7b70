"""The check of saved models: silent on what training wrote, loud on what was changed since, and on a wrong merge."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from peft.tuners.lora import Linear, LoraModel
from safetensors.torch import load_file, save_file

from supertrainer.operations.verification.reloading import check_reload
from supertrainer.operations.verification.rows import Row
from tiny_verification import LORA, tiny_workbench


def reload_rows(place: Path, *words: str, change: Callable[[Path], None] = lambda model: None) -> list[Row]:
    bench = tiny_workbench(place, *words)
    with bench.trained("reference", bench.sgd) as trainer:
        change(trainer.run.model)
        return list(check_reload(trainer))


def test_a_saved_model_holds_and_has_no_adapter_to_merge(tmp_path: Path) -> None:
    rows = reload_rows(tmp_path)
    assert [row.verdict for row in rows] == ["holds", "holds", "not applicable"]
    assert rows[0].value == 0
    assert "no adapter" in rows[2].why


@pytest.mark.parametrize(
    "further",
    [
        [],
        ["+trainer.peft_kwargs.use_dora=true"],
        ["+trainer.peft_kwargs.use_rslora=true"],
        ["+trainer.peft_kwargs.init_lora_weights=pissa"],
    ],
)
def test_a_saved_adapter_holds_and_merges(further: list[str], tmp_path: Path) -> None:
    rows = reload_rows(tmp_path, LORA, *further)
    assert [row.verdict for row in rows] == ["holds", "holds", "holds"]
    assert rows[2].value is not None
    moved = float(rows[2].why.rpartition(" ")[2])
    assert rows[2].value < 1e-5 < 0.01 < moved  # an adapter that moves nothing would merge whatever is done


def change_weight(model: Path) -> None:
    [file] = model.glob("*.safetensors")
    tensors = load_file(file)
    name = next(name for name in tensors if name.endswith("classifier.weight"))
    tensors[name][0, 0] += 1e-4
    save_file(tensors, file, metadata={"format": "pt"})


@pytest.mark.parametrize("words", [[], [LORA]])
def test_one_changed_weight_breaks(words: list[str], tmp_path: Path) -> None:
    rows = reload_rows(tmp_path, *words, change=change_weight)
    assert [row.verdict for row in rows[:2]] == ["BREAKS", "BREAKS"]
    assert rows[1].figure.startswith("1 of ")


def forget_factors(model: Path) -> None:
    file = model / "adapter_model.safetensors"
    tensors = load_file(file)
    for name in tensors:
        if "lora_B" in name:
            tensors[name].zero_()
    save_file(tensors, file, metadata={"format": "pt"})


def test_factors_that_are_lost_break_though_three_steps_hardly_moved_them(tmp_path: Path) -> None:
    assert reload_rows(tmp_path, LORA, change=forget_factors)[1].verdict == "BREAKS"


def drop_head(model: Path) -> None:
    [file] = model.glob("*.safetensors")
    save_file({n: t for n, t in load_file(file).items() if "classifier" not in n}, file, metadata={"format": "pt"})


@pytest.mark.parametrize("words", [[], [LORA]])
def test_a_head_that_was_not_saved_breaks(words: list[str], tmp_path: Path) -> None:
    rows = reload_rows(tmp_path, *words, change=drop_head)
    assert rows[0].verdict == "BREAKS"
    assert rows[0].why


def swap_labels(model: Path) -> None:
    config = json.loads((model / "config.json").read_text())
    config["id2label"] = {"0": config["id2label"]["1"], "1": config["id2label"]["0"]}
    (model / "config.json").write_text(json.dumps(config))


def swap_tokens(model: Path) -> None:
    tokenizer = json.loads((model / "tokenizer.json").read_text())
    vocabulary = tokenizer["model"]["vocab"]
    vocabulary["team"], vocabulary["the"] = vocabulary["the"], vocabulary["team"]
    (model / "tokenizer.json").write_text(json.dumps(tokenizer))


@pytest.mark.parametrize(
    ("change", "why"), [(swap_labels, "the labels were"), (swap_tokens, "the saved tokenizer makes other tokens")]
)
def test_labels_and_tokens_count_as_the_model(change: Callable[[Path], None], why: str, tmp_path: Path) -> None:
    rows = reload_rows(tmp_path, change=change)
    assert rows[0].verdict == "BREAKS"
    assert why in rows[0].why
    assert rows[1].verdict == "holds"


def test_a_merge_that_forgets_the_adapter_breaks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(LoraModel, "merge_and_unload", LoraModel.unload)
    assert reload_rows(tmp_path, LORA)[2].verdict == "BREAKS"


def test_a_merge_that_is_off_by_a_thousandth_breaks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    delta = Linear.get_delta_weight

    def scaled(self: Any, adapter: str) -> Any:
        return delta(self, adapter) * 1.001

    monkeypatch.setattr(Linear, "get_delta_weight", scaled)
    assert reload_rows(tmp_path, LORA)[2].verdict == "BREAKS"
