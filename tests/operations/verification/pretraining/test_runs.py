"""Checks of whole runs, streams and what is written: silent about the shipped code, loud about faults in it."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from supertrainer.data.streams import reading
from supertrainer.data.streams.logical import StreamState
from supertrainer.data.streams.train_stream import TrainStream
from supertrainer.models import llama_format
from supertrainer.operations.verification.pretraining import apart as apart_module
from supertrainer.operations.verification.pretraining.apart import check_processes, two_processes
from supertrainer.operations.verification.pretraining.exporting import check_export
from supertrainer.operations.verification.pretraining.resuming import check_resumes
from supertrainer.operations.verification.pretraining.schedules import check_rates
from supertrainer.operations.verification.pretraining.streams import check_streams
from supertrainer.operations.verification.pretraining.workbench import PretrainWorkbench
from supertrainer.operations.verification.pretraining.worker import main as work
from supertrainer.operations.verification.rows import Row
from supertrainer.trainers.pretraining import saving, session
from supertrainer.trainers.pretraining.session import PretrainSession
from tiny_verification_of_pretraining import pretrain_workbench


def breaks(rows: Iterator[Row]) -> list[str]:
    """The checks that break, without what comes before their last colon."""
    return [row.check.rpartition(": ")[2] for row in rows if row.verdict == "BREAKS"]


def rows_of_runs(bench: PretrainWorkbench) -> Iterator[Row]:
    with bench.trained("whole") as whole:
        yield from check_rates(bench, whole)
        yield from check_resumes(bench, whole)
        yield from check_export(bench, whole)


def resumed(bench: PretrainWorkbench) -> Iterator[Row]:
    with bench.trained("whole") as whole:
        yield from check_resumes(bench, whole)


def exported(bench: PretrainWorkbench) -> Iterator[Row]:
    with bench.trained("whole") as whole:
        yield from check_export(bench, whole)


@pytest.mark.parametrize(
    "words",
    [
        [],
        [
            "trainer.schedule={name: wsd, warmup_steps: 1, decay_steps: 3}",
            "model.tie_embeddings=false",
            "model.parametrization.zero_head=true",
            "trainer.eval_every=0",
            "dataset.num_streams=3",
            "trainer.global_batch_size=9",
        ],
    ],
)
def test_runs_and_streams_of_the_shipped_code_hold(words: list[str], tmp_path: Path) -> None:
    bench = pretrain_workbench(tmp_path, *words)
    assert {row.verdict for row in [*rows_of_runs(bench), *check_streams(bench)]} == {"holds"}
    assert not list((tmp_path / "aside").iterdir())


def test_moments_that_are_not_read_break_weights_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    own = saving.load
    monkeypatch.setattr(saving, "load", lambda place, state: own(place, {"model": state["model"], "optimizer": {}}))
    broken = breaks(resumed(pretrain_workbench(tmp_path)))
    assert "weights and moments" in broken
    assert "tokens of the rows" not in broken


def test_a_stream_that_begins_anew_breaks_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    own = PretrainSession.start

    def start(self: PretrainSession) -> None:
        self._facts.pop("data", None)
        own(self)

    monkeypatch.setattr(PretrainSession, "start", start)
    assert breaks(resumed(pretrain_workbench(tmp_path)))[:1] == ["tokens of the rows"]


def test_a_draw_that_no_checkpoint_holds_breaks_random_numbers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    own = PretrainSession.make_step

    def make_step(self: PretrainSession, *, request: Any) -> Any:
        torch.rand(1)
        return own(self, request=request)

    monkeypatch.setattr(PretrainSession, "make_step", make_step)
    assert breaks(resumed(pretrain_workbench(tmp_path))) == ["state of the random numbers at the end"]


def test_rates_of_the_update_before_break(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    own = session.lr_share
    monkeypatch.setattr(session, "lr_share", lambda schedule, update, **kw: own(schedule, update - 1, **kw))
    bench = pretrain_workbench(tmp_path)
    with bench.trained("whole") as whole:
        [row] = check_rates(bench, whole)
    assert row.verdict == "BREAKS"


def test_factors_that_are_not_folded_break_the_written_llama(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    own = llama_format.folded_factors
    monkeypatch.setattr(llama_format, "folded_factors", lambda *given: dict(list(own(*given).items())[1:]))
    broken = breaks(exported(pretrain_workbench(tmp_path)))
    assert "logits of LlamaForCausalLM = the decoder's" in broken
    assert "logits of GraniteForCausalLM = the decoder's" not in broken


def test_a_place_in_a_document_that_is_forgotten_breaks_what_is_opened_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = StreamState.as_json
    monkeypatch.setattr(StreamState, "as_json", lambda state: own(state) | {"offset": 0})
    broken = [row.check for row in check_streams(pretrain_workbench(tmp_path)) if row.verdict == "BREAKS"]
    assert broken == [
        "streams: left after step 2 and opened again: tokens",
        "streams: left by two processes, opened by four: tokens",
    ]


def test_rows_that_follow_the_process_break_those_of_several(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    own = TrainStream.next_step

    def next_step(self: TrainStream) -> Any:
        rows = own(self)
        rows.tokens[:, 0] += self._layout.rank
        return rows

    monkeypatch.setattr(TrainStream, "next_step", next_step)
    broken = [row.check for row in check_streams(pretrain_workbench(tmp_path)) if row.verdict == "BREAKS"]
    assert [check.split(" = ")[0] for check in broken] == [
        "streams: 4 steps of 2 processes",
        "streams: 4 steps of 4 processes",
        "streams: left by two processes, opened by four: tokens",
    ]


def all_documents(self: reading.SourceOrder, epoch: int, block: Any, unit: Any) -> Any:
    return np.arange(block.begin, len(unit) if block.end is None else block.end)


@pytest.mark.parametrize(
    ("seam", "fault", "broken"),
    [
        ((reading, "place_of"), lambda number, *, count, key: number // 2, "blocks that 2 epochs don't have once each"),
        ((reading, "shuffled"), lambda count, *, key: np.zeros(count, dtype=int), "trained on or held out"),
        ((reading.SourceOrder, "documents"), all_documents, "trained on or held out"),  # held-out ones are trained on
    ],
)
def test_an_order_that_leaves_something_out_breaks(
    seam: tuple[Any, str], fault: Callable[..., Any], broken: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(*seam, fault)
    [check] = [row.check for row in check_streams(pretrain_workbench(tmp_path)) if row.verdict == "BREAKS"]
    assert check.endswith(broken)


@contextlib.contextmanager
def in_this_process(worker: str, words: Sequence[str], **_: Any) -> Iterator[Callable[[], None]]:
    """What two processes do, by one: what is patched here reaches it."""
    yield lambda: None if work(words) == 0 else pytest.fail("the worker failed")


@pytest.fixture
def lone_worker(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(apart_module, "started_apart", in_this_process)


def together(bench: PretrainWorkbench) -> list[Row]:
    with two_processes(bench) as started:
        return list(check_processes(bench, started))


def test_what_two_processes_come_to_is_compared_with_one(lone_worker: None, tmp_path: Path) -> None:
    rows = together(pretrain_workbench(tmp_path))
    assert [row.verdict for row in rows] == ["holds"] * 8
    assert not list((tmp_path / "aside").iterdir())


def test_rates_that_are_a_thousandth_off_in_several_processes_break(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    @contextlib.contextmanager
    def started(worker: str, words: Sequence[str], **_: Any) -> Iterator[Callable[[], None]]:
        yield functools.partial(wait, words)

    def wait(words: Sequence[str]) -> None:
        own = session.set_rates
        with monkeypatch.context() as patched:
            patched.setattr(session, "set_rates", lambda optimizer, share: own(optimizer, 1.001 * share))
            assert work(words) == 0

    monkeypatch.setattr(apart_module, "started_apart", started)
    assert breaks(iter(together(pretrain_workbench(tmp_path)))).count("weights of 3 steps") == 2


def test_processes_that_fail_break_the_check_with_their_last_word(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(apart_module, "written", lambda trainings: [str(tmp_path / "absent.yaml"), "allow_targets=[]"])
    [row] = together(pretrain_workbench(tmp_path))
    assert (row.check, row.verdict) == ("2 processes", "BREAKS")
    assert "of 2 ended with exit code 2: " in row.why
