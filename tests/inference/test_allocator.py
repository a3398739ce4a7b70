"""Memory that a batch has freed serves the next one."""

from __future__ import annotations

import platform
import subprocess
import sys

import pytest

CODE = """
import resource, sys
from supertrainer.inference.allocator import keep_freed_memory

if sys.argv[1] == "keep":
    assert keep_freed_memory()

def faults():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    bytearray(b"x") * (48 << 20)
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

faults()
print(max(faults() for _ in range(3)))
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="only glibc has the setting")
def test_a_block_that_was_freed_costs_no_page_faults_again() -> None:
    counts = {}
    for way in ("keep", "give back"):  # a process each: the setting can't be taken back
        done = subprocess.run([sys.executable, "-c", CODE, way], capture_output=True, text=True, check=True)
        counts[way] = int(done.stdout)
    assert counts["give back"] > 10_000  # 48 MiB in pages of 4 KiB
    assert counts["keep"] < 100
