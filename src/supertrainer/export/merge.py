"""One plain model out of a trained one: the adapter folded into its base, measured against what was trained.

An adapter over quantized weights was trained on what those stand for. Folded into the original weights it is another
model: usually a little different, sometimes better, never the same. So both merges are measured, whichever is written.
"""

from __future__ import annotations

import dataclasses
import logging
import shutil
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn
from transformers import PreTrainedModel

from supertrainer.core.errors import CheckpointError, ConfigError
from supertrainer.core.files import fsync_path, write_json
from supertrainer.export.measure import Difference, Row, difference, logits_of
from supertrainer.export.schema import MergeExportConfig
from supertrainer.models.architecture import read_config
from supertrainer.models.frozen import FrozenWeights, base_of
from supertrainer.models.generation import make_writable
from supertrainer.models.heads import auto_class_of
from supertrainer.models.loading import quiet_transformers, settle_ties
from supertrainer.models.processors import save_reader
from supertrainer.models.quantization import read_quantization
from supertrainer.models.saving import TrainedModel, load_trained, replace_directory
from supertrainer.models.schema import ModelKwargs
from supertrainer.models.sources import Source

log = logging.getLogger(__name__)

RECORD = "export.json"  # in the output and in the run directory; it marks an output as one of ours
SHARD_SIZE = "5GB"
_FULL_WIDTH = ModelKwargs(dtype="float32")  # what is added up and compared; only what is written is rounded


@dataclass(frozen=True)
class MergeResult:
    """What was written, and how far each merge is from the model that was trained.

    Attributes:
        output: the directory.
        base: `original` or `dequantized`; `none` where there was no adapter.
        dtype: of the weights in it.
        parameters: in it.
        differences: by base: the merged model, rounded as it is written, against the trained one.
    """

    output: Path
    base: str
    dtype: str
    parameters: int
    differences: Mapping[str, Difference]

    def record(self) -> dict[str, Any]:
        """What export.json says."""
        return {**dataclasses.asdict(self), "format": 1, "output": str(self.output)}


class MergeExport:
    """Folds a run's adapter into its base, or takes a fully fine-tuned model as it is."""

    def __init__(self, config: MergeExportConfig) -> None:
        """
        Args:
            config: which base, which format, where to.
        """
        self.config = config

    def run(self, source: Source, *, output: Path, rows: Sequence[Row], device: torch.device) -> MergeResult:
        """Merges, measures, and writes a directory aside before it is renamed into place.

        Args:
            source: a model directory of ours.
            output: where to; an export that is there is replaced, anything else isn't.
            rows: what to compare the models on: token ids, or whole inputs of one row each.
            device: where to compute.

        Raises:
            ConfigError: something else is at `output`, or the adapter's base is gone.
            CheckpointError: what was written isn't what was merged; nothing is left of it.
        """
        require_free(output)
        trained = load_trained(source, model_kwargs=_FULL_WIDTH, device=device)
        expected = logits_of(trained.model, rows)
        del trained  # at most one model is held
        dtype = self._dtype(source)
        chosen, others = self._bases(source)
        differences: dict[str, Difference] = {}
        for base in (*others, chosen):  # the chosen one last: it stays
            merged = _merged(source, base, device=device)
            _round(merged.model, dtype)
            differences[base] = difference(expected, logits_of(merged.model, rows))
            log.info("merged into the %s base: %s", base, differences[base])
        written = merged.model
        assert isinstance(written, PreTrainedModel), "no adapter is left"
        result = MergeResult(
            output=output,
            base=chosen if source.is_adapter else "none",
            dtype=str(dtype).removeprefix("torch."),
            parameters=sum(parameter.numel() for parameter in written.parameters()),
            differences=differences if source.is_adapter else {"none": differences[chosen]},
        )
        _write(merged, result, dtype=dtype)
        return result

    def _bases(self, source: Source) -> tuple[FrozenWeights, tuple[FrozenWeights, ...]]:
        """The base to fold into, and the other one where there are two."""
        if read_quantization(source.directory) is None:
            return "original", ()
        other: FrozenWeights = "dequantized" if self.config.base == "original" else "original"
        return self.config.base, (other,)

    def _dtype(self, source: Source) -> torch.dtype:
        if self.config.dtype != "auto":
            found: torch.dtype = vars(torch)[self.config.dtype]
            return found
        base = base_of(source) if source.is_adapter else source
        return read_config(base.directory, trust_remote_code=False).dtype or torch.float32


def require_free(output: Path) -> None:
    """Refuses to write over anything but an earlier export.

    Raises:
        ConfigError: with the way out.
    """
    taken = output.is_file() or (output.is_dir() and any(output.iterdir()) and not (output / RECORD).is_file())
    if taken:
        raise ConfigError(
            f"export.output={output} is there already, and is no export.",
            why=f"only a directory with an {RECORD} of an earlier one is replaced.",
            fix="name another place, or remove it.",
        )


def _merged(source: Source, base: FrozenWeights, *, device: torch.device) -> TrainedModel:
    """The model without an adapter around it, in full width."""
    from peft import PeftModel

    loaded = load_trained(source, model_kwargs=_FULL_WIDTH, device=device, frozen=base)
    if not isinstance(loaded.model, PeftModel):
        return loaded
    with quiet_transformers(), warnings.catch_warnings():
        warnings.filterwarnings(
            "ignore", message=".*tie_word_embeddings", category=UserWarning
        )  # settled in `_settle_config`
        return dataclasses.replace(loaded, model=loaded.model.merge_and_unload().eval())


def _round(model: nn.Module, dtype: torch.dtype) -> None:
    """Gives the weights the values that they have in a format, without changing how they are held.

    Only weights: a buffer, such as the frequencies of rotary positions, isn't written but computed by each reader.
    """
    for parameter in model.parameters():
        parameter.data = parameter.data.to(dtype).float()


def _write(merged: TrainedModel, result: MergeResult, *, dtype: torch.dtype) -> None:
    model: Any = merged.model
    for parameter in model.parameters():
        parameter.data = parameter.data.to(dtype)
    _settle_config(model, dtype=dtype)
    aside = result.output.with_name(f".{result.output.name}.incoming")
    shutil.rmtree(aside, ignore_errors=True)  # a killed process may have left it
    try:
        aside.mkdir(parents=True)
        with quiet_transformers():
            model.save_pretrained(aside, max_shard_size=SHARD_SIZE)
        save_reader(merged.reader, aside)
        _require_same(aside, merged, dtype=dtype)
        write_json(aside / RECORD, result.record())
        for file in aside.iterdir():
            fsync_path(file)
        replace_directory(aside, result.output)
    finally:
        shutil.rmtree(aside, ignore_errors=True)
    fsync_path(result.output.parent)


def _settle_config(model: Any, *, dtype: torch.dtype) -> None:
    """Makes config.json say what the weights are: their format, and whether output and input embedding are one."""
    model.config.dtype = dtype
    for name in model.config.sub_configs:
        vars(model.config)[name].dtype = dtype
    settle_ties(model)
    if model.can_generate():
        model.config.use_cache = True  # off while it was trained
        make_writable(model)


def _require_same(directory: Path, merged: TrainedModel, *, dtype: torch.dtype) -> None:
    """Reads back what was written.

    Raises:
        CheckpointError: a weight, or the chat template, isn't what it should be.
    """
    with quiet_transformers():
        read, info = auto_class_of(merged.task, merged.model.config).from_pretrained(  # type: ignore[arg-type]
            directory, use_safetensors=True, dtype=dtype, output_loading_info=True
        )
    held = dict(merged.model.named_parameters())
    wrong = sorted(
        name
        for name, weight in read.named_parameters()
        if name not in held or not torch.equal(weight, held[name].cpu())
    )
    wrong += sorted(info["missing_keys"]) + sorted(info["unexpected_keys"])
    if wrong:
        raise CheckpointError(
            f"the merged model isn't read back as it was written: {', '.join(wrong[:4])}.",
            why="nothing was put in place, since every reader would see another model.",
            fix="update transformers and PEFT, or report it with the model's name.",
        )
