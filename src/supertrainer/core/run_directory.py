"""One directory holds everything of one run; this names what is in it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from supertrainer.core.errors import ConfigError, LaunchError


@dataclass(frozen=True)
class RunDirectory:
    """The files and directories of a run. Naming one doesn't make it."""

    path: Path

    @property
    def name(self) -> str:
        return self.path.name

    @property
    def config_yaml(self) -> Path:
        """The composed config, to read and to start again from."""
        return self.path / "config.yaml"

    @property
    def config_json(self) -> Path:
        """The validated config with the run's identity, for programs."""
        return self.path / "config.json"

    @property
    def environment_json(self) -> Path:
        return self.path / "environment.json"

    @property
    def data_json(self) -> Path:
        """What the dataset turned out to be: sources, splits, counts, labels."""
        return self.path / "data.json"

    @property
    def lock_json(self) -> Path:
        return self.path / "lock.json"

    @property
    def attempts_jsonl(self) -> Path:
        return self.path / "attempts.jsonl"

    @property
    def slurm_sh(self) -> Path:
        """The job script: `sbatch` on it goes on with the run."""
        return self.path / "slurm.sh"

    @property
    def jobs_jsonl(self) -> Path:
        """When jobs were submitted, started and ended: what is known after SLURM has forgotten them."""
        return self.path / "jobs.jsonl"

    def requeue_json(self, job_id: str) -> Path:
        """Asks the script of one job to requeue it: the run has stopped at a checkpoint.

        A file per job: a second job of the run, which the lock refuses, must not speak for the first.
        """
        return self.path / f"requeue-{job_id}.json"

    @property
    def estimate_json(self) -> Path:
        """The memory that training was estimated to need, and what it took."""
        return self.path / "estimate.json"

    @property
    def hub_json(self) -> Path:
        """The commits of what was fetched from the Hub before the run was submitted."""
        return self.path / "hub.json"

    @property
    def metrics_jsonl(self) -> Path:
        return self.path / "metrics.jsonl"

    @property
    def logs(self) -> Path:
        return self.path / "logs"

    @property
    def checkpoints(self) -> Path:
        return self.path / "checkpoints"

    @property
    def model(self) -> Path:
        """The trained model in Hugging Face form."""
        return self.path / "model"

    @property
    def report_json(self) -> Path:
        return self.path / "report.json"

    @property
    def report_md(self) -> Path:
        return self.path / "report.md"

    @property
    def report_html(self) -> Path:
        """The report as one page for a browser."""
        return self.path / "report.html"

    @property
    def merged(self) -> Path:
        """The trained model as one plain model, where `operation=export` wrote it."""
        return self.path / "merged"

    @property
    def export_json(self) -> Path:
        """How far the exported model is from the trained one."""
        return self.path / "export.json"

    @property
    def verify_json(self) -> Path:
        """What `operation=verify` found: a row a check."""
        return self.path / "verify.json"

    @property
    def plots(self) -> Path:
        return self.path / "plots"

    @property
    def predictions_jsonl(self) -> Path:
        return self.path / "predictions.jsonl"

    @property
    def tensorboard(self) -> Path:
        return self.path / "tensorboard"

    def create(self) -> bool:
        """Makes the directory, and its parents; of several processes only one is told True: the one that made it.

        Raises:
            LaunchError: something else stands at this path, or it can't be made.
        """
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self.path.mkdir()
        except FileExistsError:
            if self.path.is_dir():
                return False
            raise LaunchError(
                f"{self.path} is a file.",
                why="a run needs a directory of this name.",
                fix="remove it, or choose another run.name.",
            ) from None
        except OSError as error:
            raise LaunchError(
                f"the run directory {self.path} can't be made: {error}.",
                why="everything of a run is written there.",
                fix="choose a place that you may write to with run.root=PATH.",
            ) from error
        return True


def next_free(root: Path, name: str) -> RunDirectory:
    """Makes and returns the first of NAME, NAME-2, NAME-3, … that isn't taken.

    Raises:
        ConfigError: `name` isn't the name of one directory.
        LaunchError: the directory can't be made.
    """
    if name in {"", ".."} or Path(name).name != name:
        raise ConfigError(
            f"run.name={name!r} isn't the name of a directory.",
            why="a run is one directory under run.root.",
            fix="leave out slashes; choose the place with run.root=PATH.",
        )
    number = 1
    while True:
        run = RunDirectory(root / (name if number == 1 else f"{name}-{number}"))
        if run.create():
            return run
        number += 1
