"""Many starts at once: exactly one gets the run, whatever a dead one left behind."""

from __future__ import annotations

import dataclasses
import json
import os
import subprocess
import sys
import time
from pathlib import Path

from supertrainer.core.owner import Owner, this_process

CONTENDER = Path(__file__).parent / "contender.py"
PROCESSES = 8
ROUNDS = 60


def leave_behind(path: Path, number: int) -> str:
    """What a dead process left: a lock, with claims of contenders that died over it, from here or elsewhere."""
    dead = dataclasses.replace(this_process(), pid_start_time=1)
    if number % 6 == 0:
        return "nothing"
    if number % 6 == 1:
        path.write_bytes(b'{"tok')
        os.utime(path, (1, 1))
        return "rubbish"
    if number % 6 == 2:
        write(path, dataclasses.replace(dead, host="node7"))
        os.utime(path, (1, 1))
        return "a lock from elsewhere"
    write(path, dead)
    claimants = [dataclasses.replace(dead, token=f"{number:030x}{claim:02x}") for claim in range(number % 6 - 3)]
    for claimed, claimant in zip([dead, *claimants], claimants, strict=False):
        write(path.with_name(f"lock.json.claim-{claimed.token}"), claimant)
    return f"a lock and {len(claimants)} claims"


def write(path: Path, owner: Owner) -> None:
    path.write_text(json.dumps(dataclasses.asdict(owner)))


def test_of_eight_starts_at_once_exactly_one_gets_the_run(tmp_path: Path) -> None:
    path = tmp_path / "lock.json"
    command = [sys.executable, CONTENDER, path]
    pipes = [
        subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1)
        for _ in range(PROCESSES)
    ]
    try:
        for number in range(ROUNDS):
            found = leave_behind(path, number)
            moment = time.monotonic() + 0.01
            for process in pipes:
                process.stdin.write(f"{moment}\n")  # type: ignore[union-attr]
            answers = [process.stdout.readline().split() for process in pipes]  # type: ignore[union-attr]
            winners = [answer[1] for answer in answers if answer[0] == "won"]
            assert len(winners) == 1, f"round {number} on {found}: {answers}"
            assert [answer for answer in answers if answer[0] != "won"] == [["refused", "True"]] * (PROCESSES - 1)
            assert json.loads(path.read_text())["token"] == winners[0]
            for process in pipes:
                process.stdin.write("end\n")  # type: ignore[union-attr]
            assert [process.stdout.readline() for process in pipes] == ["ready\n"] * PROCESSES  # type: ignore[union-attr]
            assert os.listdir(tmp_path) == [], f"round {number} on {found}"
    finally:
        for process in pipes:
            process.kill()
            process.communicate()
