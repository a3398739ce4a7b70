"""Whether a run directory holds anything that was trained: one that doesn't binds nobody to its config or its data."""

from __future__ import annotations

from supertrainer.checkpoint.store import CheckpointStore
from supertrainer.core.records import read_records
from supertrainer.core.run_directory import RunDirectory
from supertrainer.launch.jobs import jobs_of_scripts
from supertrainer.launch.status import run_statuses


def nothing_trained(directory: RunDirectory) -> bool:
    """Whether no start of this training has made a step that left a trace: a logged row, a checkpoint or a model.

    Broken checkpoints are traces too: their owner may restore them.
    """
    if directory.model.exists() or directory.report_json.exists():
        return False
    store = CheckpointStore(directory.checkpoints, keep_last=None, keep_best=None)
    return not store.steps() and not read_records(directory.metrics_jsonl).rows


def waits_for_a_job(directory: RunDirectory) -> bool:
    """Whether a job of the run is in the queue or runs: it will read the config that is there. Asks SLURM."""
    if not directory.slurm_sh.is_file():
        return False
    [status] = run_statuses([directory])
    return status.is_live or bool(jobs_of_scripts([directory.slurm_sh.resolve()]))
