"""Run as a process by test_lock_contention.py: tries for a lock at the told moment, round by round."""

from __future__ import annotations

import sys
import time
from pathlib import Path

from supertrainer.core.errors import LaunchError
from supertrainer.core.lock import acquire_lock

if __name__ == "__main__":
    path = Path(sys.argv[1])
    for line in sys.stdin:
        moment = float(line)
        while time.monotonic() < moment:
            time.sleep(0)
        try:
            lock = acquire_lock(path)
        except LaunchError as error:
            print("refused", "in use by" in str(error), flush=True)
            sys.stdin.readline()
        else:
            print("won", lock.owner.token, flush=True)
            sys.stdin.readline()  # held until every rival has had its answer
            lock.release()
        print("ready", flush=True)
