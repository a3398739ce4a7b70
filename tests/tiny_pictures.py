"""Rows with pictures made by hand, and a whole fine-tuning run of a tiny vision-language model on them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch

from supertrainer.core.run_directory import RunDirectory
from supertrainer.data.batching import GHOST
from supertrainer.data.collation import EncodedRows, collate
from tiny_mllm import MARKS, mllm, picture
from tiny_training import KWARGS


class PictureRows(EncodedRows):
    """Rows whose pictures are read when a batch is made; every third row has none."""

    def __init__(self, encoded: Any, *, processor: Any, family: str) -> None:
        super().__init__(encoded)
        self._processor = processor
        self._mark = MARKS.get(family, "<image>")
        self._types = processor.image_token_id if family == "qwen2_5_vl" else None

    def __getitem__(self, index: int) -> dict[str, Any]:
        return {**super().__getitem__(index), "number": self._shortest if index == GHOST else index}

    def collate(self, features: Sequence[Mapping[str, Any]], *, pad_token_id: int) -> dict[str, torch.Tensor]:
        batch = collate(features, pad_token_id=pad_token_id)
        if self._types is not None:
            batch["mm_token_type_ids"] = (batch["input_ids"] == self._types).long()
        numbers = [feature["number"] for feature in features if feature["number"] % 3]
        if not numbers:
            return batch
        called = self._processor(
            text=[self._mark] * len(numbers), images=[[picture(number)] for number in numbers], return_tensors="pt"
        )
        ids = ("input_ids", "attention_mask", "mm_token_type_ids", "token_type_ids")
        return batch | {name: values for name, values in called.items() if name not in ids}


class HandMadePictures:
    """Stands in for a dataset: questions of three words about a picture, with answers of one to nine words."""

    label_names: tuple[str, ...] = ()

    def __init__(self, *, family: str, rows: int, validation: int, max_length: int) -> None:
        self.config = SimpleNamespace(max_length=max_length)
        self._family = family
        self._sizes = {"train": rows, "validation": validation}

    def load(self) -> Any:
        return {split: range(size) for split, size in self._sizes.items()}

    def model_rows(self, split: str, processor: Any) -> PictureRows:
        import datasets

        draws = np.random.default_rng(len(split))
        mark = MARKS.get(self._family, "<image>")
        ids, labels = [], []
        for number in range(self._sizes[split]):
            question = f"w{number % 50} w{number % 7} w{number % 5}"
            called = {"images": [[picture(number)]]} if number % 3 else {}
            text = f"{mark if number % 3 else ''} {question}"
            prompt = processor(text=[text], **called)["input_ids"][0]
            answer = draws.integers(20, 60, draws.integers(1, 10)).tolist()
            ids.append([*prompt, *answer])
            labels.append([-100] * len(prompt) + answer)
        sequence = datasets.List(datasets.Value("int32"))
        features = datasets.Features({"input_ids": sequence, "labels": sequence})
        encoded = datasets.Dataset.from_dict({"input_ids": ids, "labels": labels}, features=features)
        return PictureRows(encoded, processor=processor, family=self._family)


def mllm_trainer(
    directory: Path | str,
    source: Path | str,
    *,
    family: str = "idefics3",
    rows: int = 22,
    validation: int = 5,
    towers: dict[str, Any] | None = None,
    training_kwargs: dict[str, Any] | None = None,
    seed: int = 7,
    **trainer: Any,
) -> Any:
    """An `MllmTrainer` on 22 rows, 8 a step."""
    from supertrainer.metrics.causal_lm import CausalLmMetric
    from supertrainer.metrics.schema import CausalLmMetricConfig
    from supertrainer.trainers.mllm import MllmTrainer
    from supertrainer.trainers.schema import MllmTrainerConfig, NoTrackerConfig
    from supertrainer.trainers.trackers import NoTracker

    run = RunDirectory(Path(directory))
    run.path.mkdir(parents=True, exist_ok=True)
    values = {"global_batch_size": 8, "training_kwargs": {**KWARGS, **(training_kwargs or {})}, **trainer}
    return MllmTrainer(
        MllmTrainerConfig(_target_="x", **values),
        run=run,
        model=mllm(source, towers=towers or {}),
        dataset=HandMadePictures(family=family, rows=rows, validation=validation, max_length=48),  # type: ignore[arg-type]
        metric=CausalLmMetric(CausalLmMetricConfig(_target_="x")),
        tracker=NoTracker(NoTrackerConfig(_target_="x")),
        seed=seed,
    )
