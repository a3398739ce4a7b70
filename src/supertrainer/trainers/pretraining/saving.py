"""Checkpoints that are written beside the training: tensors by torch's distributed checkpoint, all else as JSON."""

from __future__ import annotations

import contextlib
import io
import logging
from collections.abc import Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch import Tensor
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.checkpoint.planner import ReadItem
from torch.distributed.checkpoint.staging import BlockingAsyncStager
from torch.distributed.tensor import DTensor

from supertrainer.checkpoint.store import CheckpointStore
from supertrainer.core.distributed import all_gather_object, is_main, world_size
from supertrainer.core.errors import CheckpointError, LaunchError, SupertrainerError
from supertrainer.core.files import read_json, write_json
from supertrainer.models.distributed_checkpoint import AllowListedReader

log = logging.getLogger(__name__)

STATE_JSON = "trainer.json"
State = dict[str, dict[str, Tensor]]


class CheckpointWriter:
    """Writes one checkpoint at a time: a copy of the state first, then the files, in a thread beside the training.

    The thread of the first process commits when the files of all processes are written, so a checkpoint has its name as
    soon as it is whole. Whatever goes wrong there is raised in every process by the next call.
    """

    def __init__(self, store: CheckpointStore, *, in_background: bool) -> None:
        """
        Args:
            store: of the run; used in the thread only while something is being written.
            in_background: else every save waits until it is committed.
        """
        self._store = store
        self._in_background = in_background
        self._copy: State = {}
        self._pinned = BlockingAsyncStager(cache_staged_state_dict=True)  # the default one wants CUDA, this one too
        self._pending: Future[None] | None = None
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="checkpoint")
        # Messages of the thread must not mix with those of the training.
        self._group = dist.new_group(backend="gloo") if world_size() > 1 else None

    def save(self, state: State, facts: Mapping[str, Any], *, step: int, extra: Mapping[str, Any]) -> None:
        """Copies the state and begins to write it. Every process calls it.

        Args:
            state: tensors by name, of this process's parts.
            facts: of the whole run, as JSON can hold them; the first process's are written.
            step: that is done.
            extra: for the manifest.

        Raises:
            CheckpointError: the checkpoint before couldn't be written.
        """
        self.wait()
        self._stage(state)
        self._pending = self._thread.submit(self._write, dict(facts), step, dict(extra))
        if not self._in_background:
            self.wait()

    def wait(self) -> None:
        """Returns once what was begun is committed. Every process calls it.

        Raises:
            CheckpointError: it couldn't be written.
        """
        if self._pending is None:
            return
        error: BaseException | None = None
        try:
            self._pending.result()
        except Exception as raised:
            error = raised
        self._pending = None
        shared = error if error is None or isinstance(error, SupertrainerError) else _as_text(error)
        errors = [found for found in all_gather_object(shared) if found is not None]
        if errors:  # the same in every process: the first one's, which knows the disk, if it has one
            raise errors[0] from None if errors[0] is error else error

    def close(self) -> None:
        """Waits for the thread, after an error too; what it was writing is committed if it can be."""
        self._thread.shutdown(wait=True)

    def _stage(self, state: State) -> None:
        """Copies into memory that is kept from one save to the next."""
        if torch.cuda.is_available():
            self._copy = self._pinned.stage(state)
            return
        for part, tensors in state.items():
            copies = self._copy.setdefault(part, {})
            for name, tensor in tensors.items():
                if name in copies:
                    _local(copies[name]).copy_(_local(tensor))
                else:
                    copies[name] = tensor.detach().clone()

    def _write(self, facts: dict[str, Any], step: int, extra: dict[str, Any]) -> None:
        staged = self._store.incoming / f"step-{step}"
        with self._store.writing(step=step) if is_main() else contextlib.nullcontext():
            try:
                writer = dcp.FileSystemWriter(staged, sync_files=False)  # the store does, when it hashes them
                dcp.save(self._copy, storage_writer=writer, process_group=self._group, no_dist=self._group is None)
            except CheckpointException as error:  # not an Exception, and with the traces of all processes in its text
                rank, (reason, _) = min(error.failures.items())
                raise RuntimeError(f"process {rank}: {type(reason).__name__}: {reason}") from reason
            if is_main():
                write_json(staged / STATE_JSON, facts)
        if is_main():
            self._store.commit(staged, step=step, extra=extra)
            self._store.prune()


def load(directory: Path, state: State) -> None:
    """Reads the tensors of a checkpoint into those of this process, whatever processes wrote it.

    Nothing is unpickled but by an allow-list.

    Raises:
        CheckpointError: it doesn't fit the model.
    """
    try:
        dcp.load(
            state,
            storage_reader=AllowListedReader(directory),
            planner=_TensorsOnly(),
            no_dist=world_size() == 1,
        )
    except CheckpointException as error:
        raise CheckpointError(
            f"{directory} can't be read into this model: {_first_line(error)}.",
            why="its tensors have other names or shapes than the config's model.",
            fix="run.fresh=true starts a new run; or give the config that the checkpoint was written with.",
        ) from error


def checkpoint_bytes(parameters: int) -> int:
    """About how large a checkpoint is: weights and two moments in float32."""
    return 12 * parameters


def read_facts(directory: Path) -> dict[str, Any]:
    """What `save` was given as facts.

    Raises:
        CheckpointError: the file is missing or can't be read.
    """
    try:
        return dict(read_json(directory / STATE_JSON))
    except (OSError, ValueError) as error:
        raise CheckpointError(
            f"{directory / STATE_JSON} can't be read: {error}.",
            why="where the data and the counters stand is in it.",
            fix="run.fresh=true starts a new run beside this one.",
        ) from error


class _TensorsOnly(dcp.DefaultLoadPlanner):
    def load_bytes(self, read_item: ReadItem, value: io.BytesIO) -> None:
        raise CheckpointError(
            f"the checkpoint holds a pickled object, {read_item.dest_index.fqn}.",
            why="only tensors are read; unpickling runs code.",
            fix="a checkpoint of this trainer has none: don't trust this one.",
        )


def _local(tensor: Tensor) -> Tensor:
    return tensor.to_local() if isinstance(tensor, DTensor) else tensor


def _as_text(error: BaseException) -> LaunchError:
    return LaunchError(
        f"a process couldn't write its part of a checkpoint: {type(error).__name__}: {error}",
        fix="see its own message above this one.",
    )


def _first_line(error: BaseException) -> str:
    return str(error).strip().splitlines()[-1]
