"""Checks of a single step: silent about the shipped code, loud where a fault is put into it."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from supertrainer.data.streams.rows import Rows
from supertrainer.models import decoder as decoder_module
from supertrainer.models import mup, pretrain
from supertrainer.models.decoder import Block
from supertrainer.models.vocabulary_loss import LossSums, vocabulary_loss
from supertrainer.operations.verification.pretraining import schedules
from supertrainer.operations.verification.pretraining.isolation import check_isolation
from supertrainer.operations.verification.pretraining.parametrization import check_parametrization
from supertrainer.operations.verification.pretraining.recomputation import check_recomputation
from supertrainer.operations.verification.pretraining.schedules import check_schedule
from supertrainer.operations.verification.pretraining.splitting import check_micro_batches
from supertrainer.operations.verification.pretraining.workbench import PretrainWorkbench
from supertrainer.operations.verification.rows import Row
from supertrainer.trainers.pretraining import layout, update
from tiny_verification_of_pretraining import pretrain_workbench

Check = Callable[[PretrainWorkbench], Iterator[Row]]
CHECKS: tuple[Check, ...] = (
    check_micro_batches,
    check_recomputation,
    check_isolation,
    check_parametrization,
    check_schedule,
)
WSD = "trainer.schedule={name: wsd, warmup_steps: 100, decay_steps: 300, final_share: 0.0}"
P = "model.parametrization"


def breaking(place: Path, check: Check, *words: str) -> list[str]:
    """The checks that break, in their words."""
    return [row.check for row in check(pretrain_workbench(place, *words)) if row.verdict == "BREAKS"]


@pytest.mark.parametrize(
    ("words", "silent"),
    [
        ([], []),
        ([f"{P}={{name: sp, base: null}}", WSD], ["μP: over width"]),
        (["model.qk_norm=true", "model.tie_embeddings=false", f"{P}.zero_head=true", f"{P}.weight_decay=coupled"], []),
        (["dataset.isolate_documents=false", f"{P}.weight_decay=sqrt"], ["documents"]),
        ([f"{P}.depth_alpha=0.5", f"+{P}.base.num_layers=1", "trainer.max_grad_norm=null", "trainer.z_loss=1e-3"], []),
        (["mode=sanity_check", "trainer.precision=bfloat16"], ["schedule"]),
    ],
)
def test_shipped_code_holds(words: list[str], silent: list[str], tmp_path: Path) -> None:
    bench = pretrain_workbench(tmp_path, *words)
    rows = [row for check in CHECKS for row in check(bench)]
    assert [row.check for row in rows if row.verdict != "holds"] == silent
    assert all(row.verdict == "not applicable" and row.why for row in rows if row.check in silent)


def test_a_mean_of_means_breaks_micro_batches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def mean(hidden: Tensor, weight: Tensor, targets: Tensor, *, z_loss: float = 0.0) -> LossSums:
        sums, count = vocabulary_loss(hidden, weight, targets, z_loss=z_loss), int((targets != -100).sum())
        return LossSums(sums.nll / count, sums.z_loss / count)

    monkeypatch.setattr(decoder_module, "vocabulary_loss", mean)
    assert len(breaking(tmp_path, check_micro_batches)) == 6


def test_a_step_over_equal_rows_would_not_show_a_mean_of_means(tmp_path: Path) -> None:
    """The rows that are looked at have unequal numbers of targets, also where documents fill whole rows."""
    targets = pretrain_workbench(tmp_path, "trainer.sequence_length=8").rows.targets
    assert len({int(count) for count in (targets != -100).sum(axis=1)}) > 2


def test_a_norm_that_is_off_by_a_ten_thousandth_breaks_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = iter(range(100))
    own = update.total_norm
    monkeypatch.setattr(update, "total_norm", lambda gradients: own(gradients) * (1 + 1e-4 * next(calls)))
    broken = breaking(tmp_path, check_micro_batches, "trainer.max_grad_norm=null")
    assert [check.rpartition(": ")[2] for check in broken] == ["the norm that clips"] * 2


def test_a_recomputation_of_something_else_breaks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    own = layout.checkpoint

    def rounded(inner: Any, *args: Any, **kwargs: Any) -> Any:
        return own(lambda *given: inner(*given).bfloat16().float(), *args, **kwargs)

    monkeypatch.setattr(layout, "checkpoint", rounded)
    assert len(breaking(tmp_path, check_recomputation)) == 2


def test_documents_that_see_each_other_break(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decoder_module, "document_mask", lambda documents: None)
    assert [check.rpartition(": ")[2] for check in breaking(tmp_path, check_isolation)] == [
        "logits", "loss", "gradients", "logits of the others where the first is another",
    ]  # fmt: skip


def test_targets_beyond_a_document_break(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Rows, "targets", property(lambda rows: rows.tokens[:, 1:]))
    assert breaking(tmp_path, check_isolation) == ["documents: ends with a target beyond them"]


def changed_rules(monkeypatch: pytest.MonkeyPatch, change: Callable[[mup.Rule], dict[str, Any]]) -> None:
    own = mup._rule
    monkeypatch.setattr(mup, "_rule", lambda *given, **kw: (rule := own(*given, **kw)) and with_(rule, change(rule)))


def with_(rule: mup.Rule, changed: dict[str, Any]) -> mup.Rule:
    return dataclasses.replace(rule, **changed)


@pytest.mark.parametrize(
    ("change", "broken"),
    [
        (lambda rule: {"lr": 1.0}, ["first update × fan-in", "what decays of the weights"]),
        (lambda rule: {"std": rule.std and 0.02}, ["initial std × √fan-in, in standard errors"]),
        (lambda rule: {"weight_decay": rule.weight_decay and 1.0}, ["what decays of the weights"]),
        (lambda rule: {"weight_decay": 1.0} if rule.std is None else {}, ["norms that decay"]),
    ],
)
def test_another_rule_breaks_what_it_is_for(
    change: Callable[[mup.Rule], dict[str, Any]], broken: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    changed_rules(monkeypatch, change)
    assert [check.rpartition(": ")[2] for check in breaking(tmp_path, check_parametrization)] == broken


def test_a_parameter_without_a_role_breaks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bench = pretrain_workbench(tmp_path)
    own = Block.roles
    monkeypatch.setattr(Block, "roles", lambda self: list(own(self))[1:])
    [row] = check_parametrization(bench)
    assert row.verdict == "BREAKS"
    assert "blocks.0.attention_norm.weight has 0 roles" in row.why


def test_a_parameter_in_two_groups_breaks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bench = pretrain_workbench(tmp_path)
    built = bench.built()
    first, second = built.optimizer.param_groups[:2]
    second["params"].append(first["params"][0])
    monkeypatch.setattr(bench, "built", lambda config=None: built)
    rows = {row.check: row for row in check_parametrization(bench) if "group" in row.check}
    assert [(row.verdict, row.figure[:1]) for row in rows.values()] == [("BREAKS", "1"), ("BREAKS", "1")]


def test_a_multiplier_at_the_base_itself_breaks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    own = pretrain.forward_multipliers

    def with_another_output(shape: Any, base: Any, chosen: Any) -> mup.Multipliers:
        found = own(shape, base, chosen)
        return found if base is None else dataclasses.replace(found, output=0.99 * found.output)

    monkeypatch.setattr(pretrain, "forward_multipliers", with_another_output)
    assert breaking(tmp_path, check_parametrization) == ["μP: the same: weights after two updates"]


@pytest.mark.parametrize("name", ["cosine", "linear", "wsd"])
def test_a_schedule_that_is_an_update_late_breaks_at_its_edges(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = schedules.lr_share
    monkeypatch.setattr(schedules, "lr_share", lambda schedule, update, **kw: own(schedule, update - 1, **kw))
    keys = f"name: {name}, warmup_steps: 100, decay_steps: 300, final_share: 0.0"
    broken = breaking(tmp_path, check_schedule, f"trainer.schedule={{{keys}}}")
    assert [check.split(", ")[1].split(":")[0] for check in broken[:3]] == [
        "the first", "the end of the warm-up", "the end of the decay",
    ]  # fmt: skip


def test_a_rate_that_rises_again_breaks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    own = schedules.lr_share
    monkeypatch.setattr(
        schedules, "lr_share", lambda schedule, update, **kw: 1.0 if update == 2000 else own(schedule, update, **kw)
    )
    [row] = [row for row in check_schedule(pretrain_workbench(tmp_path)) if row.verdict == "BREAKS"]
    assert (row.check, row.figure) == ("schedule: updates that don't rise up to 50, or rise later", "1 of 2,999")


def test_a_gradient_is_what_the_optimizer_got(tmp_path: Path) -> None:
    """Literally: the running mean of a first step by its share of it, and clipped."""
    step = pretrain_workbench(tmp_path, "trainer.max_grad_norm=0.1").step()
    length = torch.stack([gradient.double().square().sum() for gradient in step.gradients.values()]).sum().sqrt()
    assert float(length) == pytest.approx(0.1, rel=1e-4)
    assert step.grad_norm > 0.1
