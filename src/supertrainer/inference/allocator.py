"""How the C library hands out memory on a CPU."""

from __future__ import annotations

import ctypes
import functools
import sys

_M_TRIM_THRESHOLD = -1
_M_MMAP_MAX = -4
_LARGEST_INT = 2**31 - 1


@functools.cache
def keep_freed_memory() -> bool:
    """Keeps memory that a batch has freed for the next one; for the whole process, from now on.

    glibc gives every large block back to the system and asks for it anew, so that each activation costs page faults:
    without that, a step of MiniLM on 8 rows of 40 tokens takes 12% less time, on 32 rows of 128 tokens 3%. The process
    holds the most that it has needed until it ends.

    Returns:
        Whether the C library has such a setting; elsewhere nothing changes.
    """
    if not sys.platform.startswith("linux"):
        return False
    library = ctypes.CDLL(None)
    try:
        setting = library.mallopt
    except AttributeError:  # musl has none
        return False
    return bool(setting(_M_MMAP_MAX, 0)) and bool(setting(_M_TRIM_THRESHOLD, _LARGEST_INT))
