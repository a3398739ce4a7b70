"""Learning-rate transfer: the same recipe at several widths and learning rates, each trained as a run is trained.

Under μP the learning rate with the least loss stays where it is when a model becomes wider; under the standard
parametrization it falls. A run that ends within its warm-up says nothing about its learning rate, which it never had:
each one here is held to have had it, for half of its steps or more.

Source: Yang et al. 2022, "Tensor Programs V" (arXiv 2203.03466), figure 1.
"""

from __future__ import annotations

import math
import tempfile
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from supertrainer.benchmark.coordinates import HEAD_DIM, HEADS_PER_KV_HEAD
from supertrainer.core.errors import SupertrainerError
from supertrainer.core.records import read_records
from supertrainer.core.run_directory import RunDirectory
from supertrainer.data.streams.dataset import StreamDataset
from supertrainer.models.decoder_schema import DecoderModelConfig
from supertrainer.models.pretrain import DecoderModel
from supertrainer.trainers.pretrain import PretrainTrainer
from supertrainer.trainers.pretrain_schema import PretrainTrainerConfig
from supertrainer.trainers.schema import NoTrackerConfig
from supertrainer.trainers.trackers import NoTracker

Losses = Mapping[str, Mapping[int, Mapping[float, float]]]


@dataclass(frozen=True)
class TransferSweep:
    """What is trained.

    Attributes:
        rates: at the smallest width, under both parametrizations.
        steps: of every run; the learning rate rises over `warmup_steps` and then falls as a cosine to a tenth.
        rows, length: of a step, in tokens.
    """

    widths: Sequence[int]
    rates: Sequence[float]
    steps: int
    warmup_steps: int
    num_layers: int = 2
    rows: int = 8
    length: int = 64
    eval_rows: int = 64
    seed: int = 1

    def model(self, width: int, *, parametrization: str) -> DecoderModel:
        """The decoder of a width; the smallest one is the base."""
        chosen: dict[str, object] = {"name": parametrization}
        if parametrization == "mup":
            chosen["base"] = {"hidden_size": min(self.widths)}
        keys = {
            "_target_": f"{DecoderModel.__module__}.{DecoderModel.__name__}",
            "num_layers": self.num_layers,
            "hidden_size": width,
            "num_heads": width // HEAD_DIM,
            "num_kv_heads": width // HEAD_DIM // HEADS_PER_KV_HEAD,
            "max_length": self.length,
            "parametrization": chosen,
        }
        return DecoderModel(DecoderModelConfig.model_validate(keys))

    def recipe(self, learning_rate: float) -> PretrainTrainerConfig:
        """The trainer's config."""
        keys = {
            "_target_": f"{PretrainTrainer.__module__}.{PretrainTrainer.__name__}",
            "global_batch_size": self.rows,
            "sequence_length": self.length,
            "max_steps": self.steps,
            "learning_rate": learning_rate,
            "schedule": {"name": "cosine", "warmup_steps": self.warmup_steps},
            "guard": {"spike_sigmas": None},  # a rate that is too high shows in the loss
            "log_every": 1,
            "save_every": self.steps,
            "eval_every": self.steps,
            "eval_rows": self.eval_rows,
        }
        return PretrainTrainerConfig.model_validate(keys)


@dataclass(frozen=True)
class Trial:
    """What came of one run.

    Attributes:
        loss: of the held-out rows after the last step; infinite where the run diverged.
        highest_rate: that an update had.
        steps_after_warmup: updates from the first one at the highest rate on.
    """

    parametrization: str
    width: int
    learning_rate: float
    loss: float
    highest_rate: float
    steps_after_warmup: int


def train(sweep: TransferSweep, dataset: StreamDataset, *, parametrization: str, width: int, rate: float) -> Trial:
    """Trains one model of the sweep.

    Raises:
        SupertrainerError: its warm-up didn't end in time for its learning rate to show.
        KeyboardInterrupt: this process was asked to stop.
    """
    with tempfile.TemporaryDirectory() as name:
        run = RunDirectory(Path(name) / "run")
        run.create()
        trainer = PretrainTrainer(
            sweep.recipe(rate),
            run=run,
            model=sweep.model(width, parametrization=parametrization),
            dataset=dataset,
            tracker=NoTracker(NoTrackerConfig(target="-")),
            seed=sweep.seed,
        )
        try:
            result = trainer.train()
            if result.stopped_by is not None:  # the trainer takes signals, to save what a run has come to
                raise KeyboardInterrupt
            loss = float(result.metrics["loss"])
        except SupertrainerError as error:
            if type(error) is not SupertrainerError:  # that one tells of updates that weren't finite
                raise
            loss = math.inf
        rates = [row["lr"] for row in read_records(run.metrics_jsonl).rows if "lr" in row]
    highest = max(rates)
    trial = Trial(parametrization, width, rate, loss, highest, len(rates) - rates.index(highest))
    require_warm(trial, steps=sweep.steps)
    return trial


def require_warm(trial: Trial, *, steps: int) -> None:
    """Makes sure that a run had its learning rate for half of its steps, unless it diverged before.

    Raises:
        SupertrainerError: it hadn't.
    """
    if math.isinf(trial.loss) or (
        math.isclose(trial.highest_rate, trial.learning_rate, rel_tol=1e-6) and 2 * trial.steps_after_warmup >= steps
    ):
        return
    raise SupertrainerError(
        f"width {trial.width}, learning rate {trial.learning_rate:g}: the highest rate of an update was "
        f"{trial.highest_rate:g}, {trial.steps_after_warmup} of {steps} steps before the end.",
        why="a run that ends within its warm-up compares warm-ups, not learning rates.",
        fix="more steps, or fewer of warm-up.",
    )


def losses(trials: Iterable[Trial]) -> Losses:
    """Parametrization -> width -> learning rate -> loss."""
    found: defaultdict[str, defaultdict[int, dict[float, float]]] = defaultdict(lambda: defaultdict(dict))
    for trial in trials:
        found[trial.parametrization][trial.width][trial.learning_rate] = trial.loss
    return found


def best_rates(curves: Mapping[int, Mapping[float, float]]) -> dict[int, float]:
    """Width -> the learning rate with the least loss."""
    return {width: min(curve, key=lambda rate: (curve[rate], rate)) for width, curve in sorted(curves.items())}


def drift(best: Mapping[int, float]) -> float:
    """How many doublings the best learning rate of the widest model is above that of the narrowest one."""
    return math.log2(best[max(best)] / best[min(best)])
