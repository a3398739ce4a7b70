"""Tiny runs of the whole program: a two-layer encoder from scratch on a CSV file, seconds each."""

from __future__ import annotations

import csv
import random
from pathlib import Path

SUBJECTS = {"sports": ["striker", "final", "team", "coach"], "business": ["shares", "profit", "market", "bank"]}
TINY = [
    "+experiment=train_bert",
    "model=bert/scratch",
    "model.config={model_type: bert, hidden_size: 32, num_attention_heads: 2, num_hidden_layers: 2,"
    " intermediate_size: 64}",
    "dataset=bert/csv",
    "dataset.source=rows.csv",
    "dataset.max_length=24",
    "trainer.global_batch_size=8",
    "trainer.training_kwargs.per_device_train_batch_size=4",
    "trainer.training_kwargs.num_train_epochs=4",
    "trainer.training_kwargs.learning_rate=1e-3",
    "trainer.training_kwargs.warmup_steps=2",
    "trainer.training_kwargs.save_strategy=steps",
    "trainer.training_kwargs.save_steps=3",
    "trainer.training_kwargs.logging_steps=1",
]

# The same of a pretraining: a decoder of one layer on the files in texts/.
TINY_PRETRAIN = [
    "+experiment=pretrain",
    "model.num_layers=1",
    "model.hidden_size=32",
    "model.num_heads=4",
    "model.num_kv_heads=2",
    "model.parametrization.base.hidden_size=16",
    "dataset=pretrain/text",
    "dataset.sources.text.path=texts/*.txt",
    "dataset.tokenizer_training.vocab_size=290",
    "dataset.validation.share=0.2",
    "trainer.global_batch_size=4",
    "trainer.sequence_length=32",
    "trainer.max_steps=12",
    "trainer.schedule={name: constant, warmup_steps: 2}",
    "trainer.eval_every=6",
    "trainer.save_every=4",
    "trainer.log_every=1",
    "trainer.sample_tokens=4",
    "run.name=small",
]


def write_rows(path: Path, *, count: int) -> None:
    """A learnable CSV file; every text differs."""
    chance = random.Random(0)
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["text", "label"])
        for number in range(count):
            label = ("sports", "business")[number % 2]
            words = chance.choices([*SUBJECTS[label], "the", "a", "of", "today"], k=chance.randint(3, 20))
            writer.writerow([f"{' '.join(words)} {number}", label])
