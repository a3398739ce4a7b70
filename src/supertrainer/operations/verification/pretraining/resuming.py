"""A pretraining that was killed goes on as if nothing had been: the same rows, rates, counters and bits of weights."""

from __future__ import annotations

import functools
import shutil
from collections.abc import Iterator, Mapping
from typing import Any

from supertrainer.checkpoint.manifest import step_name
from supertrainer.config.identity import flat_keys
from supertrainer.core.run_directory import RunDirectory
from supertrainer.operations.verification.pretraining.documents import differing_tokens
from supertrainer.operations.verification.pretraining.reduction import STEPS
from supertrainer.operations.verification.pretraining.workbench import PretrainWorkbench, Trained, weights_of
from supertrainer.operations.verification.rows import Row, other_bits, same_bits
from supertrainer.operations.verification.workbench import differing

KILLED, AGAIN = 3, 5  # after the checkpoints of these steps


def check_resumes(bench: PretrainWorkbench, whole: Trained) -> Iterator[Row]:
    """Compares a run with the same killed twice, with the same seed again, and with another one.

    Args:
        whole: has trained the reduced config.
    """
    begin = functools.partial(leave_killed, whole.run, step=KILLED)
    with bench.trained("resumed", begin=begin) as resumed:
        yield from compare_resumed(f"killed after step {KILLED} of {STEPS}", resumed, whole, since=KILLED)
        yield same_bits(
            "resume: state of the random numbers at the end",
            int((resumed.random != whole.random).sum()),
            whole.random.numel(),
        )
        begin = functools.partial(leave_killed, resumed.run, step=AGAIN)
        with bench.trained("resumed-again", begin=begin) as again:
            yield same_bits(
                f"resume: killed again after step {AGAIN}: weights and moments",
                *differing(again.state(STEPS), whole.state(STEPS)),
            )
    with bench.trained("same-seed") as same:
        yield same_bits("seed: the same twice", *differing(same.state(STEPS), whole.state(STEPS)))
    run = bench.config.run.model_copy(update={"seed": bench.config.run.seed + 1})
    with bench.trained("other-seed", bench.config.model_copy(update={"run": run})) as other:
        yield other_bits("seed: another one: rows", *differing_tokens(other.rows, whole.rows))
        sides = [weights_of(trained.state(STEPS)) for trained in (other, whole)]
        yield other_bits("seed: another one: weights", *differing(*sides))


def compare_resumed(what: str, resumed: Trained, whole: Trained, *, since: int) -> Iterator[Row]:
    """Compares a run that went on with the whole one.

    Args:
        since: the step that it went on from.
    """
    own = {step: rows for step, rows in whole.rows.items() if step > since}
    yield same_bits(f"resume: {what}: tokens of the rows", *differing_tokens(resumed.rows, own))
    rates = {step: rates for step, rates in whole.rates.items() if step > since}
    yield same_bits(f"resume: {what}: rates of all groups", *unlike(resumed.rates, rates))
    yield same_bits(f"resume: {what}: values in metrics.jsonl", *unlike(resumed.logged(), whole.logged()))
    yield same_bits(
        f"resume: {what}: counters, place in the data, guard", *unlike(resumed.facts(STEPS), whole.facts(STEPS))
    )
    yield same_bits(f"resume: {what}: weights and moments", *differing(resumed.state(STEPS), whole.state(STEPS)))


def leave_killed(whole: RunDirectory, run: RunDirectory, *, step: int) -> None:
    """Makes a run directory what a kill after a step's checkpoint leaves: a torn row, the next one half-written."""
    run.checkpoints.mkdir(parents=True)
    for number in range(1, step + 1):
        folder = whole.checkpoints / step_name(number)
        if folder.is_dir():
            shutil.copytree(folder, run.checkpoints / folder.name)
    lines = whole.metrics_jsonl.read_text(encoding="utf-8").splitlines(keepends=True)
    text = "".join(lines[: step + 1]) + '{"attempt": 1, "st'
    run.metrics_jsonl.write_text(text, encoding="utf-8")
    half = run.checkpoints / ".incoming" / f"step-{step + 1}"
    half.mkdir(parents=True)
    (half / "__0_0.distcp").write_bytes(b"half")


def unlike(one: Mapping[Any, Any], other: Mapping[Any, Any]) -> tuple[int, int]:
    """In how many of their values two trees differ, and how many the other has."""
    left, right = dict(flat_keys(one)), dict(flat_keys(other))
    return sum(left.get(key) != right.get(key) for key in left.keys() | right.keys()), len(right)
