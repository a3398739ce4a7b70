"""Memory that a batch has freed serves the next one, or the system."""

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


TRIM = """
from supertrainer.inference.allocator import give_back_freed_memory, keep_freed_memory

def resident():
    return int(open("/proc/self/statm").read().split()[1]) * 4096 >> 20

assert keep_freed_memory()
large, small = [], []
for _ in range(16):  # large blocks, held apart by small ones that stay
    large.append(bytearray(b"x") * (4 << 20))
    small.append(bytearray(600))
del large
before = resident()
gave = give_back_freed_memory()
print(gave, before - resident())
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="only glibc has the setting")
def test_a_block_that_was_freed_costs_no_page_faults_again() -> None:
    counts = {}
    for way in ("keep", "give back"):  # a process each: the setting can't be taken back
        done = subprocess.run([sys.executable, "-c", CODE, way], capture_output=True, text=True, check=True)
        counts[way] = int(done.stdout)
    assert counts["give back"] > 10_000  # 48 MiB in pages of 4 KiB
    assert counts["keep"] < 100


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="only glibc has the call")
def test_what_is_free_between_blocks_that_stay_goes_back() -> None:
    done = subprocess.run([sys.executable, "-c", TRIM], capture_output=True, text=True, check=True)
    gave, mebibytes = done.stdout.split()
    assert gave == "True"
    assert int(mebibytes) > 48  # of 64
