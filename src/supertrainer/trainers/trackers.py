"""Where curves go beside metrics.jsonl."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from supertrainer.core.errors import MissingDependencyError
from supertrainer.trainers.schema import NoTrackerConfig, TensorBoardTrackerConfig, TrackerConfig


class Tracker(ABC):
    """Takes the scalars of each logged step, on the first process only."""

    def __init__(self, config: TrackerConfig) -> None:
        self.config = config

    @abstractmethod
    def open(self, directory: Path, *, first_step: int) -> None:
        """Before training.

        Args:
            directory: of the run.
            first_step: the first step that will be logged; what an earlier attempt logged from there on is void.
        """

    @abstractmethod
    def log(self, step: int, values: Mapping[str, float]) -> None:
        """Scalars of one step, by name."""

    @abstractmethod
    def close(self) -> None:
        """After training, also after an error."""


class NoTracker(Tracker):
    """Nowhere else."""

    def __init__(self, config: NoTrackerConfig) -> None:
        super().__init__(config)

    def open(self, directory: Path, *, first_step: int) -> None:
        """Nothing to open."""

    def log(self, step: int, values: Mapping[str, float]) -> None:
        """Nothing to log to."""

    def close(self) -> None:
        """Nothing to close."""


class TensorBoardTracker(Tracker):
    """Event files in the run directory's `tensorboard/`. A resumed run's curves go on without doubled steps."""

    def __init__(self, config: TensorBoardTrackerConfig) -> None:
        """
        Raises:
            MissingDependencyError: tensorboard isn't installed.
        """
        super().__init__(config)
        try:
            from torch.utils.tensorboard import SummaryWriter
        except ImportError as error:
            raise MissingDependencyError(
                "tracker=tensorboard needs the package tensorboard, which is not installed.",
                why=str(error),
                fix="pip install 'supertrainer[trackers]', or tracker=none (metrics.jsonl is always written).",
            ) from error
        self._writer_class = SummaryWriter
        self._writer: Any = None

    def open(self, directory: Path, *, first_step: int) -> None:
        # Readers drop what earlier files hold from the purged step on.
        purge = first_step if first_step > 1 else None
        self._writer = self._writer_class(str(directory / "tensorboard"), purge_step=purge)

    def log(self, step: int, values: Mapping[str, float]) -> None:
        for name, value in values.items():
            self._writer.add_scalar(name, value, global_step=step)
        self._writer.flush()

    def close(self) -> None:
        if self._writer is not None:
            self._writer.close()
            self._writer = None
