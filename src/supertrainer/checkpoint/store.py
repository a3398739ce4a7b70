"""The step directories of one run: staged in `.incoming`, committed by a rename, searched from the newest.

checkpoints/.incoming/       a checkpoint while it is written; worthless after a kill
checkpoints/step-00000400/   complete: nothing gets this name before it is whole and on the disk
checkpoints/.trash/          on its way out: a half-deleted checkpoint has no step's name
"""

from __future__ import annotations

import contextlib
import dataclasses
import logging
import os
import shutil
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path

from supertrainer.checkpoint import retention
from supertrainer.checkpoint.manifest import (
    BrokenCheckpointError,
    Checkpoint,
    read_checkpoint,
    seal,
    size_of,
    step_name,
    step_of,
)
from supertrainer.core.errors import CheckpointError
from supertrainer.core.files import fsync_path, is_disk_full

log = logging.getLogger(__name__)

INCOMING = ".incoming"
SEARCHES = 3  # each repeat needs another process to have deleted everything that this one had just listed


class CheckpointStore:
    """The checkpoints of a run. Making one touches nothing: readers need no lock, the lock's holder calls `prepare`.

    Args:
        directory: `checkpoints/` of the run; need not exist.
        keep_last: how many of the newest `prune` keeps, 1 or more; None for all.
        keep_best: a key of `extra["metrics"]` and whether greater is better: the best is kept too.
        keep_steps: steps that are kept too, whatever comes after them.
    """

    def __init__(
        self,
        directory: Path,
        *,
        keep_last: int | None,
        keep_best: tuple[str, bool] | None,
        keep_steps: Collection[int] = (),
    ) -> None:
        if keep_last is not None and keep_last < 1:
            raise CheckpointError(
                f"keep_last={keep_last} would delete the last good checkpoint.",
                why="a run that is killed goes on from it.",
                fix="keep_last=1 or more, or null for all.",
            )
        self.directory = directory
        self.keep_last = keep_last
        self.keep_best = keep_best
        self.keep_steps = frozenset(keep_steps)
        self._whole_step: int | None = None  # hashed while it was written, so it needn't be read again

    @property
    def incoming(self) -> Path:
        """Where a trainer writes before `commit`; `prepare` makes it."""
        return self.directory / INCOMING

    def prepare(self) -> Path:
        """Removes what a killed process left unfinished and returns the empty staging directory.

        Call it with the run's lock held, at the start.
        """
        with self._writing("the staging directory"):
            retention.empty_trash(self.directory)
            retention.remove_staged(self.incoming)
            self.incoming.mkdir(parents=True, exist_ok=True)
        return self.incoming

    @contextlib.contextmanager
    def writing(self, *, step: int) -> Iterator[None]:
        """Around what writes into `incoming`: a full disk leaves no staged file and a clear error.

        Raises:
            CheckpointError: the disk, the quota or the file size limit is used up. Other exceptions go through.
        """
        with self._writing(f"the checkpoint of step {step}"):
            yield

    def commit(self, staged: Path, *, step: int, extra: Mapping[str, object]) -> Path:
        """Makes the files in `staged` the checkpoint of `step`, all or nothing, and returns its directory.

        Pickles that nothing reads back (training_args.bin) are removed. Where a resumed run has come to a step again,
        its complete checkpoint stays and a broken one is replaced.

        Args:
            staged: `incoming` or a directory inside it; it is gone afterwards (`incoming` itself is there and empty).
            extra: what JSON can hold; `extra["metrics"]` maps a metric's name to its value.

        Raises:
            CheckpointError: the disk is full, or `staged` has no file. The checkpoints before are intact.
        """
        final = self._path(step)
        with self.writing(step=step):
            if not size_of(staged):
                raise CheckpointError(
                    f"the checkpoint of step {step} is empty: {staged} has no content.",
                    why="a resume from it would start from nothing.",
                    fix="this is a bug of the trainer that was to write it; please report it with its log.",
                )
            if self._is_complete(final):
                log.info("Step %d has a complete checkpoint already; it stays.", step)
                retention.remove_staged(staged)
            else:
                seal(staged, step=step, extra=extra)
                retention.discard(final)  # broken, or not there
                os.rename(staged, final)
                fsync_path(staged.parent)
                fsync_path(self.directory)
                self._whole_step = step
            self.incoming.mkdir(exist_ok=True)
        return final

    def find_latest(self, *, up_to: int | None = None) -> Checkpoint | None:
        """The newest complete checkpoint, read in full and compared by hash; None where the run has none yet.

        Each newer one that is broken is logged and named in `Checkpoint.skipped`.

        Args:
            up_to: not beyond this step.

        Raises:
            CheckpointError: there are step directories but none is whole. Starting again from nothing would throw
                work away, so the user decides.
        """
        skipped: list[str] = []
        for _ in range(SEARCHES):
            skipped = []
            vanished = False
            for step in reversed([found for found in self.steps() if up_to is None or found <= up_to]):
                path = self._path(step)
                try:
                    found = read_checkpoint(path, hashes=True)
                except FileNotFoundError:
                    vanished = True
                except BrokenCheckpointError as error:
                    skipped.append(f"Skipped the broken checkpoint {path}: {error}.")
                    log.warning(skipped[-1])
                else:
                    return dataclasses.replace(found, skipped=tuple(skipped))
            if not vanished:
                break
        if skipped:
            raise CheckpointError(
                f"none of the {len(skipped)} checkpoint(s) in {self.directory} is complete.",
                why=" ".join(skipped),
                fix="run.fresh=true starts a new run beside this one; or restore the files from a copy.",
            )
        return None

    def find_best(self) -> Checkpoint | None:
        """The complete checkpoint with the best `keep_best` metric, the earliest of equals; or None."""
        if self.keep_best is None:
            return None
        metric, greater = self.keep_best
        candidates = self._complete()
        while (best := retention.best_of(candidates, metric=metric, greater_is_better=greater)) is not None:
            try:
                return read_checkpoint(best.path, hashes=True)
            except (FileNotFoundError, BrokenCheckpointError) as error:
                log.warning("Skipped the broken checkpoint %s: %s.", best.path, error)
                candidates = [other for other in candidates if other.step != best.step]
        return None

    def prune(self) -> None:
        """Deletes all but the newest `keep_last` complete checkpoints and the best. The last good one always stays."""
        retention.empty_trash(self.directory)
        if self.keep_last is None:
            return
        complete = self._complete()
        keep = {checkpoint.step for checkpoint in complete[-self.keep_last :]}
        keep |= {checkpoint.step for checkpoint in complete} & self.keep_steps
        if self.keep_best is not None:
            metric, greater = self.keep_best
            best = retention.best_of(complete, metric=metric, greater_is_better=greater)
            keep |= {best.step} if best is not None else set()
        doomed = [step for step in self.steps() if step not in keep and step < max(keep, default=0)]
        # Sizes don't show a rotten byte: nothing goes before one that stays is known to be whole.
        if doomed and (self._whole_step in keep or any(self._is_complete(self._path(step)) for step in sorted(keep))):
            for step in doomed:
                retention.discard(self._path(step))

    def abandon_after(self, step: int) -> None:
        """Deletes the checkpoints of later steps: the run has left the course that they belong to."""
        for later in [found for found in self.steps() if found > step]:
            retention.discard(self._path(later))

    def steps(self) -> list[int]:
        """Steps that have a directory, complete or not, rising.

        Raises:
            CheckpointError: `checkpoints/` is there but can't be read.
        """
        try:
            with os.scandir(self.directory) as entries:
                found = [step_of(entry.name) for entry in entries if entry.is_dir()]
        except FileNotFoundError:
            return []
        except OSError as error:
            raise CheckpointError(
                f"{self.directory} can't be read: {error}.",
                why="the checkpoints of a run are directories in it.",
                fix="make it a directory that you may read and write, or start a new run with run.fresh=true.",
            ) from error
        return sorted(step for step in found if step is not None)

    def check_free_space(self, bytes_needed: int) -> None:
        """Raises CheckpointError where the disk has less free space than that."""
        free = _free_bytes(self.directory)
        if free < bytes_needed:
            raise CheckpointError(
                f"{self.directory} has {_mib(free)} free, a checkpoint needs {_mib(bytes_needed)}.",
                why="a run that can't save loses its work when it is stopped.",
                fix="free some space, or choose another place with run.root=PATH.",
            )

    def _path(self, step: int) -> Path:
        return self.directory / step_name(step)

    def _complete(self) -> list[Checkpoint]:
        """Checkpoints that have all their files in full size, by rising step."""
        found = []
        for step in self.steps():
            with contextlib.suppress(FileNotFoundError, BrokenCheckpointError):
                found.append(read_checkpoint(self._path(step), hashes=False))
        return found

    def _is_complete(self, path: Path) -> bool:
        try:
            read_checkpoint(path, hashes=True)
        except (FileNotFoundError, BrokenCheckpointError):
            return False
        return True

    @contextlib.contextmanager
    def _writing(self, what: str) -> Iterator[None]:
        try:
            yield
        except Exception as error:
            full = is_disk_full(error)
            if isinstance(error, CheckpointError) or not (full or isinstance(error, OSError)):
                raise
            complete = self._complete()
            needed = max([size_of(self.incoming), *(checkpoint.size_bytes for checkpoint in complete[-1:])])
            retention.remove_staged(self.incoming)
            with contextlib.suppress(OSError):
                self.incoming.mkdir()
            last = f"step {complete[-1].step}, the last good one, is intact" if complete else "there is none before it"
            space = (
                f"{_mib(_free_bytes(self.directory))} are free, at least {_mib(needed)} are needed; " if full else ""
            )
            remedy = "free some space (or raise the quota or the file size limit)" if full else "mend it"
            raise CheckpointError(
                f"{what} can't be written to {self.directory}: {error}.",
                why=f"{space}the unfinished files were removed, and {last}.",
                fix=f"{remedy}, then start the same command again: it goes on from the last good checkpoint."
                + (self._less_space(needed) if full else ""),
            ) from error

    def _less_space(self, size: int) -> str:
        """How fewer checkpoints of a size would help; empty where no fewer can be kept."""
        if self.keep_last == 1:
            return ""
        written, kept = ("null", "all") if self.keep_last is None else (self.keep_last, self.keep_last)
        return (
            f" trainer.keep_last={written} keeps {kept} checkpoints of {_mib(size)} each, "
            "and one more while it is written: a smaller one needs less."
        )


def _free_bytes(directory: Path) -> int:
    """Free bytes of the file system that a directory, which need not exist yet, is on."""
    while not directory.exists():
        directory = directory.parent
    return shutil.disk_usage(directory).free


def _mib(size: int) -> str:
    return f"{size / 2**20:,.1f} MiB"
