"""How many logical streams the documents are dealt out to."""

from __future__ import annotations

import logging
from collections.abc import Mapping

from supertrainer.core.errors import ConfigError, DataError
from supertrainer.data.streams.schema import MAX_STREAMS

log = logging.getLogger(__name__)


def stream_count(given: int | None, *, global_batch_size: int, counts: Mapping[str, tuple[int, int] | None]) -> int:
    """The largest divisor of the global batch up to 64 that the documents suffice for. Processes don't matter.

    Args:
        given: `dataset.num_streams`; None: what fits.
        global_batch_size: rows of a step.
        counts: by source, documents in all and those to train on; None where they aren't counted, since they are many.

    Raises:
        ConfigError: `given` doesn't fit the global batch or the documents.
        DataError: a source has no document to train on.
    """
    if given is not None and global_batch_size % given:
        raise ConfigError(
            f"dataset.num_streams={given} doesn't divide trainer.global_batch_size={global_batch_size}.",
            why="every stream gives the same number of rows in a step.",
            fix=f"dataset.num_streams={_divisor(global_batch_size, given)}, or null.",
        )
    for name, count in counts.items():
        if count is not None and not count[1]:
            raise DataError(
                f"dataset.sources.{name} has no document to train on.",
                why=f"all of its {count[0]} documents are held out." if count[0] else "its files are empty.",
                fix="a smaller dataset.validation.share, or other files.",
            )
    wide = _divisor(global_batch_size, MAX_STREAMS) if given is None else given
    most = max(wide if count is None else count[1] for count in counts.values())
    if most >= wide:
        return wide
    streams = _divisor(global_batch_size, most)
    if given is not None:
        raise ConfigError(
            f"dataset.num_streams={given}, and there are {most} documents.",
            why="every stream needs one of its own.",
            fix=f"dataset.num_streams={streams}, or null.",
        )
    log.warning("%d documents are too few for %d streams: there are %d", most, wide, streams)
    return streams


def _divisor(number: int, limit: int) -> int:
    """The largest divisor of a number up to a limit."""
    return next(found for found in range(min(number, max(limit, 1)), 0, -1) if number % found == 0)
