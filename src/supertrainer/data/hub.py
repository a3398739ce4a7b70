"""Reads a dataset of the Hub, at one commit."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from supertrainer.core.errors import DataError
from supertrainer.data.schema import DatasetConfig

if TYPE_CHECKING:
    import datasets

_COMMIT = re.compile(r"[0-9a-f]{40}")


def load_hub(config: DatasetConfig) -> tuple[datasets.DatasetDict, str]:
    """The splits of a Hub set by the Hub's names, and the commit that was read. Offline, the cached commit.

    Raises:
        DataError: there is no such set, configuration or revision, or the Hub can't be reached and nothing is cached.
    """
    import datasets

    try:
        builder = datasets.load_dataset_builder(config.source, name=config.name, revision=config.revision)
        if config.revision and _COMMIT.fullmatch(config.revision) and builder.hash != config.revision:
            raise DataError(
                f"{config.source} at dataset.revision={config.revision} is not cached: {builder.hash} is.",
                fix="go online once (unset HF_HUB_OFFLINE), or drop dataset.revision.",
            )
        builder.download_and_prepare()
        loaded = builder.as_dataset()
    except DataError:
        raise
    # `datasets` raises nearly everything: its own errors, the Hub client's (OSError), ValueError for an unknown name.
    except (OSError, ValueError, RuntimeError, datasets.exceptions.DatasetsError) as error:
        raise DataError(
            f"dataset.source={config.source} can't be read from the Hub: {str(error).strip() or type(error).__name__}",
            why="it is no file or directory here either.",
            fix="check the id, dataset.name and dataset.revision, the network and HF_TOKEN; or give a local path.",
        ) from None
    return loaded, str(builder.hash)
