"""Run as a process by test_files.py: makes each library run out of space in two ways and asks `is_disk_full`."""

from __future__ import annotations

import contextlib
import json
import resource
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path


def fill(directory: Path) -> dict[str, bool]:
    import torch
    from safetensors.torch import save_file

    from supertrainer.core.files import is_disk_full

    tensors = {"a": torch.ones(400_000)}  # 1.6 MB
    path = directory / "file"

    def torch_to_a_file() -> None:
        with path.open("wb") as file:
            torch.save(tensors, file)

    writes: dict[str, Callable[[], object]] = {
        "safetensors": lambda: save_file(tensors, path),
        "torch zip": lambda: torch.save(tensors, path),
        "torch zip to a file": torch_to_a_file,
        "torch legacy": lambda: torch.save(tensors, path, _use_new_zipfile_serialization=False),
        "plain write": lambda: path.write_bytes(bytes(1_600_000)),
    }
    answers = {}
    for name, write in writes.items():
        try:
            write()
        except Exception as error:
            answers[name] = is_disk_full(error)
        with contextlib.suppress(FileNotFoundError):
            path.unlink()
    return answers


if __name__ == "__main__":
    work = Path(sys.argv[1])
    if len(sys.argv) > 2:
        print(json.dumps(fill(work)))
        sys.exit()
    # A mount in a namespace of its own ends with its process, whatever happens.
    mount = 'mount -t tmpfs -o size=1m none "$0" && "$@" || exit 3'
    command = [
        "unshare",
        "--mount",
        "--map-root-user",
        "sh",
        "-c",
        mount,
        str(work),
        sys.executable,
        __file__,
        str(work),
        "in",
    ]
    small = subprocess.run(command, capture_output=True, text=True, check=False)
    resource.setrlimit(resource.RLIMIT_FSIZE, (300_000, 300_000))
    small_disk = json.loads(small.stdout) if small.stdout else "not permitted"
    print(json.dumps({"limit": fill(work), "small disk": small_disk}))
