"""A process that has imported everything once and forks a child per command: main.py's runs without 10 s of imports.

Each child is a real process with its own pid: it can be killed at any moment, and is.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

SERVER = """
import json, os, sys, warnings
import torch, transformers, peft, datasets, sklearn.linear_model, matplotlib.figure, tensorboard  # noqa
from transformers import Trainer, AutoModelForSequenceClassification, AutoTokenizer  # noqa
import supertrainer.operations.sequence, supertrainer.operations.train, supertrainer.operations.benchmark  # noqa
import supertrainer.operations.infer, supertrainer.data.bert, supertrainer.trainers.bert  # noqa
import supertrainer.models.bert, supertrainer.benchmark.bert, supertrainer.inference.bert  # noqa
import supertrainer.inference.engines.hf, supertrainer.operations.pretrain, supertrainer.trainers.pretrain  # noqa
from supertrainer.main import main
print("ready", flush=True)
for line in sys.stdin:
    order = json.loads(line)
    pid = os.fork()
    if pid == 0:
        os.setsid()
        output = os.open(order["output"], os.O_CREAT | os.O_WRONLY | os.O_APPEND, 0o644)
        os.dup2(output, 1), os.dup2(output, 2)
        os.chdir(order["directory"])
        os.environ.update(order["environment"])
        sys.argv = ["src/supertrainer/main.py", *order["words"]]
        code = 1
        try:
            code = main(order["words"])
        except BaseException:
            import traceback
            traceback.print_exc()
        finally:
            sys.stdout.flush()
            os._exit(code)
    print(pid, flush=True)
    _, status = os.waitpid(pid, 0)
    print(os.waitstatus_to_exitcode(status), flush=True)
"""


class Zygote:
    """Starts commands quickly, one at a time."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-c", SERVER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        assert self._read() == "ready"

    def run(
        self,
        words: Sequence[str],
        *,
        directory: Path,
        kill_after: float | None = None,
        kill_when: Callable[[], bool] | None = None,
        signal_number: int = signal.SIGKILL,
        environment: Mapping[str, str] | None = None,
    ) -> int:
        """Runs main.py with these words in a directory; its output is appended to `output.txt` there.

        Args:
            kill_after: seconds after which the signal is sent, if it still runs.
            kill_when: sends the signal as soon as this is true, if it still runs.

        Returns:
            The exit code; the negative signal number where a signal ended it.
        """
        order = {
            "words": list(words),
            "directory": str(directory),
            "output": str(directory / "output.txt"),
            "environment": dict(environment or {}),
        }
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(order) + "\n")
        self._process.stdin.flush()
        pid = int(self._read())
        if kill_after is not None:
            deadline = time.monotonic() + kill_after
            kill_when = lambda: time.monotonic() >= deadline  # noqa: E731
        if kill_when is not None:
            self._signal_when(pid, kill_when, signal_number)
        return int(self._read())

    def close(self) -> None:
        """Ends the process."""
        self._process.communicate(timeout=30)

    def _signal_when(self, pid: int, moment: Callable[[], bool], number: int) -> None:
        while not moment():
            state = Path(f"/proc/{pid}/stat")
            if not state.exists() or state.read_text().rpartition(")")[2].split()[0] == "Z":
                return
            time.sleep(0.002)
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)

    def _read(self) -> str:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        assert line, "the zygote has ended"
        return line.strip()
