"""Which document comes when, and which are held out: functions of a key and a number, without any state.

So the order of any epoch is known at any place of it, and is the same for whoever asks.
"""

from __future__ import annotations

import hashlib
import json

import numpy as np

_ROUNDS = 6
_STEP = np.uint64(0x9E3779B97F4A7C15)


def key_of(*parts: str | int) -> int:
    """A 64-bit key of any names and numbers."""
    return int.from_bytes(hashlib.sha256(json.dumps(parts).encode()).digest()[:8], "little")


def scrambled(numbers: np.ndarray, *, key: int) -> np.ndarray:
    """A pseudo-random uint64 for each number.

    Source: the finalizer of SplitMix64 (Steele, Lea, Flood, "Fast splittable pseudorandom number generators", 2014).
    """
    with np.errstate(over="ignore"):  # arithmetic modulo 2**64
        value = numbers.astype(np.uint64) * _STEP + np.uint64(key)
        value = (value ^ (value >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        value = (value ^ (value >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return value ^ (value >> np.uint64(31))


def permuted(numbers: np.ndarray, *, count: int, key: int) -> np.ndarray:
    """Where each number below `count` goes in a pseudo-random order of them all: a bijection for every key.

    Source: a Feistel network that is walked until it is inside again (Black and Rogaway, "Ciphers with arbitrary finite
    domains", 2002).
    """
    half = np.uint64(max(1, ((count - 1).bit_length() + 1) // 2))
    mask = np.uint64((1 << int(half)) - 1)
    keys = [key_of(key, turn) for turn in range(_ROUNDS)]

    def through(value: np.ndarray) -> np.ndarray:
        left, right = value >> half, value & mask
        for turn in keys:
            left, right = right, left ^ (scrambled(right, key=turn) & mask)
        return (left << half) | right

    value = through(np.atleast_1d(numbers).astype(np.uint64))
    while (outside := value >= count).any():
        value[outside] = through(value[outside])
    return value.astype(np.int64)


def are_held_out(numbers: np.ndarray, *, key: int, share: float) -> np.ndarray:
    """Whether each document, by its number, is held out."""
    return scrambled(numbers, key=key) < np.uint64(min(int(share * 2.0**64), 2**64 - 1))
