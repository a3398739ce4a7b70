"""Which rows go to which split, and which ones a limit keeps.

Every choice follows from the seed and the row's own text alone, so it is the same in every process, and a row that is
added or moved in the file changes little else.
"""

from __future__ import annotations

import hashlib
import heapq
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence

Key = bytes


def text_key(texts: Sequence[str]) -> Key:
    """Identity of a row's texts, white space aside: rows with equal keys are repeats of each other."""
    return hashlib.blake2b("\0".join(" ".join(text.split()) for text in texts).encode(), digest_size=16).digest()


def quotas(counts: Mapping[str, int], total: int) -> dict[str, int]:
    """Divides `total` among strata in proportion to their counts (largest remainder), at least one each where it goes.

    >>> quotas({"a": 70, "b": 29, "c": 1}, 10)
    {'a': 7, 'b': 2, 'c': 1}
    """
    rows = sum(counts.values())
    total = min(total, rows)
    least = 1 if total >= len(counts) else 0
    exact = {name: total * count / rows for name, count in counts.items()}
    quota = {name: max(int(share), least) for name, share in exact.items()}
    missing = total - sum(quota.values())
    step = 1 if missing > 0 else -1
    names = list(counts)
    # The stratum that is furthest from its share comes first, of equal ones the first named. A heap, for many labels.
    waiting = [(step * (quota[name] - exact[name]), place) for place, name in enumerate(names)]
    heapq.heapify(waiting)
    while missing:
        _, place = heapq.heappop(waiting)
        name = names[place]
        if quota[name] == (counts[name] if step > 0 else least):
            continue
        quota[name] += step
        missing -= step
        heapq.heappush(waiting, (step * (quota[name] - exact[name]), place))
    return quota


def divide(
    keys: Sequence[Key], strata: Sequence[str], *, shares: Mapping[str, float], seed: int
) -> dict[str, list[int]]:
    """Splits rows into `train` and the splits of `shares`, each with the strata's proportions.

    Rows with the same key stay together. A stratum needs one key for every split (`too_small` finds those that don't).

    Returns:
        split -> row indices in ascending order; `train` first.
    """
    members: dict[Key, list[int]] = defaultdict(list)
    for index, key in enumerate(keys):
        members[key].append(index)
    by_stratum: dict[str, list[Key]] = defaultdict(list)
    for key, indices in members.items():
        by_stratum[strata[indices[0]]].append(key)
    counts = {name: sum(len(members[key]) for key in group) for name, group in by_stratum.items()}
    wanted = {split: quotas(counts, round(share * len(keys))) for split, share in shares.items()}
    divided: dict[str, list[int]] = {"train": [], **{split: [] for split in shares}}
    for name, group in by_stratum.items():
        waiting = sorted(group, key=lambda key: _draw(key, seed=seed), reverse=True)
        for position, split in enumerate(shares):
            left_for_others = len(shares) - position  # the later splits and train
            taken = 0
            while taken < max(wanted[split][name], 1) and len(waiting) > left_for_others:
                indices = members[waiting.pop()]
                divided[split] += indices
                taken += len(indices)
        divided["train"] += [index for key in waiting for index in members[key]]
    return {split: sorted(indices) for split, indices in divided.items()}


def too_small(keys: Sequence[Key], strata: Sequence[str], *, splits: int) -> dict[str, int]:
    """Strata with fewer different keys than there are splits -> their number of different keys."""
    different = Counter(dict(zip(keys, strata, strict=True)).values())
    return {name: count for name, count in different.items() if count < splits}


def sample(keys: Sequence[Key], strata: Sequence[str], *, limit: int, seed: int) -> list[int]:
    """At most `limit` rows with the strata's proportions; their indices in ascending order."""
    if limit >= len(keys):
        return list(range(len(keys)))
    by_stratum: dict[str, list[int]] = defaultdict(list)
    for index, name in enumerate(strata):
        by_stratum[name].append(index)
    quota = quotas({name: len(indices) for name, indices in by_stratum.items()}, limit)
    kept: list[int] = []
    for name, indices in by_stratum.items():
        kept += sorted(indices, key=lambda index: (_draw(keys[index], seed=seed), index))[: quota[name]]
    return sorted(kept)


def _draw(key: Key, *, seed: int) -> bytes:
    return hashlib.blake2b(key, digest_size=16, salt=seed.to_bytes(16, "little")).digest()
