"""A whole fine-tuning run of a tiny causal language model on rows made by hand, also as a process of its own.

python tests/tiny_llm.py SPEC.json     {"directory": …, "source": …, further keywords of `llm_trainer`}
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from transformers import AutoConfig, AutoModelForCausalLM

from supertrainer.core.run_directory import RunDirectory
from supertrainer.data.chat.conversation import raw_text
from supertrainer.data.collation import EncodedRows
from tiny_models import tiny_tokenizer
from tiny_training import KWARGS

VOCABULARY = 100
DECODER: dict[str, Any] = {
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "intermediate_size": 48,
    "max_position_embeddings": 64,
    "attention_dropout": 0.0,
}
GEMMA: dict[str, Any] = {**DECODER, "head_dim": 16, "sliding_window": 4, "query_pre_attn_scalar": 16}
DECODERS: dict[str, dict[str, Any]] = {
    "llama": DECODER,
    "qwen2": DECODER,
    "gemma2": {**GEMMA, "final_logit_softcapping": 5.0},
    "gemma3_text": {**GEMMA, "sliding_window_pattern": 2},
    "cohere": {**DECODER, "logit_scale": 0.25},
    "granite": {**DECODER, "logits_scaling": 4.0},
    "gpt2": {"n_embd": 32, "n_layer": 2, "n_head": 2, "n_positions": 64}
    | {"resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0},
    "mamba": {"hidden_size": 32, "num_hidden_layers": 2, "state_size": 4},
}


def tiny_decoder(model_type: str = "llama", *, seed: int = 0, attention: str | None = None, **overrides: Any) -> Any:
    """A two-layer language model with weights great enough for its tokens to matter to each other."""
    settings = {"vocab_size": VOCABULARY, "pad_token_id": 0, "bos_token_id": None, "eos_token_id": None}
    config = AutoConfig.for_model(model_type, **{**settings, **DECODERS[model_type], **overrides})
    options = {} if attention is None else {"attn_implementation": attention}
    torch.manual_seed(seed)
    model = AutoModelForCausalLM.from_config(config, **options)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() > 1:
                parameter.mul_(4)
    return model.eval()


def tiny_rows(count: int = 22, *, seed: int = 0, shortest: int = 3, longest: int = 20) -> Any:
    """Encoded rows of mixed length: random tokens; of every other row the first third, a prompt, is not learnt."""
    import datasets

    generator = np.random.default_rng(seed)
    ids = [generator.integers(6, VOCABULARY, n) for n in generator.integers(shortest, longest + 1, count)]
    prompts = [len(row) // 3 * (number % 2) for number, row in enumerate(ids)]
    labels = [np.where(np.arange(len(row)) < prompt, -100, row) for row, prompt in zip(ids, prompts, strict=True)]
    sequence = datasets.List(datasets.Value("int32"))
    features = datasets.Features({"input_ids": sequence, "labels": sequence})
    return datasets.Dataset.from_dict({"input_ids": ids, "labels": labels}, features=features)


def encoded(*args: Any, **kwargs: Any) -> EncodedRows:
    return EncodedRows(tiny_rows(*args, **kwargs))


class HandMadeRows:
    """Stands in for a dataset: two splits of encoded rows."""

    label_names: tuple[str, ...] = ()

    def __init__(self, *, rows: int, validation: int, max_length: int) -> None:
        self.config = SimpleNamespace(max_length=max_length)
        self._splits = {"train": tiny_rows(rows), "validation": tiny_rows(validation, seed=1)}

    def load(self) -> Any:
        return self._splits

    def model_rows(self, split: str, tokenizer: Any) -> EncodedRows:
        return EncodedRows(self._splits[split])

    def conversation(self, split: str, number: int) -> Any:
        """Rows of tokens are no conversations: nothing in them can be answered."""
        return raw_text("")


class SavedDecoder:
    """Stands in for a task's model: reads a directory."""

    unquantized = None

    def __init__(self, source: Path | str, *, attention: str | None = "sdpa") -> None:
        self._source = str(source)
        self._attention = attention

    def tokenizer(self) -> Any:
        return tiny_tokenizer()

    def check_length(self, max_length: int) -> None:
        assert max_length <= 64

    def base_reference(self) -> dict[str, str | None]:
        return {"source": self._source, "revision": None, "commit": None}

    def build(self, *, seed: int, peft_kwargs: Any, device: Any = "cpu", **rest: Any) -> Any:
        from supertrainer.models.adapters import add_adapter

        model = AutoModelForCausalLM.from_pretrained(self._source, attn_implementation=self._attention)
        if peft_kwargs is None:
            return model.to(device)
        adapted = add_adapter(
            model, peft_kwargs, trained_whole=[], task_type="CAUSAL_LM", base=(self._source, None), seed=seed
        )
        return adapted.to(device)


def save_decoder(directory: Path, model_type: str = "llama", **overrides: Any) -> Path:
    tiny_decoder(model_type, **overrides).save_pretrained(directory)
    return directory


def llm_trainer(
    directory: Path | str,
    source: Path | str,
    *,
    rows: int = 22,
    validation: int = 9,
    max_length: int = 32,
    attention: str | None = "sdpa",
    training_kwargs: dict[str, Any] | None = None,
    seed: int = 7,
    **trainer: Any,
) -> Any:
    """An `LlmTrainer` on 22 rows of random tokens, 8 a step."""
    from supertrainer.metrics.causal_lm import CausalLmMetric
    from supertrainer.metrics.schema import CausalLmMetricConfig
    from supertrainer.trainers.llm import LlmTrainer
    from supertrainer.trainers.schema import LlmTrainerConfig, NoTrackerConfig
    from supertrainer.trainers.trackers import NoTracker

    run = RunDirectory(Path(directory))
    run.path.mkdir(parents=True, exist_ok=True)
    values = {"global_batch_size": 8, "training_kwargs": {**KWARGS, **(training_kwargs or {})}, **trainer}
    return LlmTrainer(
        LlmTrainerConfig(_target_="x", **values),
        run=run,
        model=SavedDecoder(source, attention=attention),  # type: ignore[arg-type]
        dataset=HandMadeRows(rows=rows, validation=validation, max_length=max_length),  # type: ignore[arg-type]
        metric=CausalLmMetric(CausalLmMetricConfig(_target_="x")),
        tracker=NoTracker(NoTrackerConfig(_target_="x")),
        seed=seed,
    )


def main(specs: str) -> None:
    import dataclasses

    from supertrainer.core import distributed
    from supertrainer.core.files import write_json

    torch.set_num_threads(1)
    distributed.initialize()
    for spec in json.loads(Path(specs).read_text()):
        result = llm_trainer(**spec).train()
        if distributed.is_main():
            write_json(Path(spec["directory"]) / "result.json", dataclasses.asdict(result))
    distributed.shutdown()


if __name__ == "__main__":
    main(sys.argv[1])
