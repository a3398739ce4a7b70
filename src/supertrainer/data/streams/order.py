"""Which document comes when, and which are held out: functions of a key and a number, without any state.

So the order of any epoch is known at any place of it, and is the same for whoever asks.
"""

from __future__ import annotations

import functools
import hashlib
import json

import numpy as np

_ROUNDS = 6
_STEP, _FIRST, _SECOND = 0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB
_WORD = (1 << 64) - 1


@functools.lru_cache(maxsize=1 << 14)
def key_of(*parts: str | int) -> int:
    """A 64-bit key of any names and numbers."""
    return int.from_bytes(hashlib.sha256(json.dumps(parts).encode()).digest()[:8], "little")


def scrambled(numbers: np.ndarray, *, key: int) -> np.ndarray:
    """A pseudo-random uint64 for each number.

    Source: the finalizer of SplitMix64 (Steele, Lea, Flood, "Fast splittable pseudorandom number generators", 2014).
    """
    with np.errstate(over="ignore"):  # arithmetic modulo 2**64
        value = numbers.astype(np.uint64) * np.uint64(_STEP) + np.uint64(key)
        value = (value ^ (value >> np.uint64(30))) * np.uint64(_FIRST)
        value = (value ^ (value >> np.uint64(27))) * np.uint64(_SECOND)
    return value ^ (value >> np.uint64(31))


def shuffled(count: int, *, key: int) -> np.ndarray:
    """The numbers below `count` in a pseudo-random order: int64."""
    return np.argsort(scrambled(np.arange(count), key=key), kind="stable")


def place_of(number: int, *, count: int, key: int) -> int:
    """Where a number below `count` goes in a pseudo-random order of them all, which isn't written down anywhere.

    Source: a Feistel network that is walked until it is inside again (Black and Rogaway, "Ciphers with arbitrary finite
    domains", 2002).
    """
    half = max(1, ((count - 1).bit_length() + 1) // 2)
    mask = (1 << half) - 1
    while True:
        left, right = number >> half, number & mask
        for turn in range(_ROUNDS):
            left, right = right, left ^ (_scrambled(right + (turn << half), key) & mask)
        number = (left << half) | right
        if number < count:
            return number


def are_held_out(numbers: np.ndarray, *, key: int, share: float) -> np.ndarray:
    """Whether each document, by its number, is held out."""
    if not share:
        return np.zeros(len(numbers), dtype=bool)
    return scrambled(numbers, key=key) < np.uint64(min(int(share * 2.0**64), _WORD))


def _scrambled(number: int, key: int) -> int:
    """`scrambled` of one number."""
    value = (number * _STEP + key) & _WORD
    value = ((value ^ (value >> 30)) * _FIRST) & _WORD
    value = ((value ^ (value >> 27)) * _SECOND) & _WORD
    return value ^ (value >> 31)
