"""Broken configs and data sets, one fault a case: how it is made, and what a check says of it."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tiny_models import tiny_texts, tiny_tokenizer

WORDS = [
    "+experiment=train_bert",
    "model=bert/hub",
    "model.source=base",
    "dataset=bert/csv",
    "dataset.source=rows.csv",
    "dataset.max_length=16",
    "trainer.global_batch_size=8",
    "trainer.training_kwargs.per_device_train_batch_size=4",
    "trainer.training_kwargs.warmup_steps=2",
]
TEXTS = tiny_texts(60, shortest=5, seed=3)
ROWS = [(text, ("good", "bad")[number % 2]) for number, text in enumerate(TEXTS)]


def csv_text(rows: list[tuple[str, str]], header: str = "text,label") -> str:
    return "\n".join([header, *(f"{text},{label}" for text, label in rows)]) + "\n"


def rows_file(name: str, content: str | bytes) -> Callable[[Path], None]:
    def write(here: Path) -> None:
        (here / name).write_bytes(content if isinstance(content, bytes) else content.encode())

    return write


def edited(name: str, **values: Any) -> Callable[[Path], None]:
    """Changes keys of a JSON file of the base."""

    def change(here: Path) -> None:
        path = here / "base" / name
        path.write_text(json.dumps({**json.loads(path.read_text()), **values}))

    return change


def without(pattern: str) -> Callable[[Path], None]:
    def remove(here: Path) -> None:
        for path in (here / "base").glob(pattern):
            path.unlink()

    return remove


def unsafe_weights(here: Path) -> None:
    (here / "base" / "model.safetensors").rename(here / "base" / "pytorch_model.bin")


def cut_off(here: Path) -> None:
    path = here / "base" / "model.safetensors"
    path.write_bytes(path.read_bytes()[:-1000])


def split_files(train: list[tuple[str, str]], test: list[tuple[str, str]]) -> Callable[[Path], None]:
    def write(here: Path) -> None:
        (here / "rows.csv").unlink()
        (here / "train.csv").write_text(csv_text(train))
        (here / "test.csv").write_text(csv_text(test))

    return write


def left_padded(here: Path) -> None:
    tokenizer = tiny_tokenizer(padding_side="left")
    tokenizer.save_pretrained(here / "base")


def nothing(here: Path) -> None:
    """The files are as they should be: the command isn't."""


DIRECTORY = ["dataset.source=.", "dataset.splits={train: train.csv, test: test.csv}"]
DIRECTORY += ["trainer.training_kwargs.eval_strategy=no"]
KWARGS = "trainer.training_kwargs"
JSONL = "dataset.source=rows.jsonl"
NUMBERS = "".join(json.dumps({"text": 10**30 + n, "label": "ab"[n % 2]}) + "\n" for n in range(40))
NESTED = "".join(json.dumps({"text": {"body": f"w{n}"}, "label": "ab"[n % 2]}) + "\n" for n in range(40))
WORD_TAGS = "".join(json.dumps({"text": ["a", f"w{n}"], "label": ["DET", "NOUN"]}) + "\n" for n in range(40))
BROKEN = "".join(json.dumps({"text": f"w{n}", "label": "ab"[n % 2]}) + "\n" for n in range(40)) + '{"text": "w1", \n'
HUGE = '{"text": "w1", "label": ' + "1" * 5000 + "}\n"

# name: (what is broken, words of the command, what is said of it, the fix)
FAULTS: dict[str, tuple[Callable[[Path], None], list[str], str, str]] = {
    "a text column that isn't there": (
        nothing,
        ["dataset.columns.text=body"],
        "rows.csv has no column 'body' (dataset.columns.text). It has: text, label.",
        "dataset.columns.text=",
    ),
    "a label column that is misspelt": (
        nothing, ["dataset.columns.label=lable"], "no column 'lable'", "dataset.columns.label=label."
    ),
    "empty texts": (
        rows_file("rows.csv", csv_text([*ROWS, ("", "good"), (" ", "bad")])), [],
        "train: rows without text (2): rows.csv:62, rows.csv:63.", "dataset.on_empty_text=drop",
    ),
    "a label that isn't declared": (
        rows_file("rows.csv", csv_text([*ROWS, ("w1 w2", "godo")])), ["dataset.labels=[good,bad]"],
        "none of good, bad (1): rows.csv:62 ('godo', nearest: 'good')", "mend the labels",
    ),
    "a label that only the test rows have": (
        split_files(ROWS[:40], [*ROWS[40:], ("w1 w2", "fair")]), DIRECTORY,
        "test: rows with a label that no train row has (1): test.csv:22 ('fair'", "add train rows of it",
    ),
    "a label column that is constant": (
        rows_file("rows.csv", csv_text([(text, "good") for text in TEXTS])), [],
        "train rows have the label 'good'", "rows of other labels",
    ),
    "ids in the label column": (
        rows_file("rows.csv", csv_text([(text, f"id{n}") for n, text in enumerate(TEXTS)])),
        ["dataset.splits=null", f"{KWARGS}.eval_strategy=no"],
        "the column 'label' holds 60 different labels in 60 train rows", "the column with the classes",
    ),
    "rows that stand in two splits": (
        split_files(ROWS, ROWS[:10]), DIRECTORY, "train: rows that stand in two splits (10)",
        "dataset.on_repeated_across_splits=drop",
    ),
    "fewer rows than a step has": (
        rows_file("rows.csv", csv_text(ROWS[:6])), ["dataset.splits=null", f"{KWARGS}.eval_strategy=no"],
        "6 training rows are fewer than the 8 of one optimizer step", "trainer.global_batch_size=6",
    ),
    "a length beyond the model's positions": (
        nothing, ["dataset.max_length=65"], "dataset.max_length=65 is more than the 64 positions of the model",
        "dataset.max_length=64 or less",
    ),
    "padding on the side that moves positions": (
        left_padded, [], "padding_side=left for a bert model", "model.padding_side=right"
    ),
    "an adapter on a module that isn't there": (
        nothing, ["trainer.peft_kwargs={r: 4, target_modules: [query, vlaue]}"],
        "trainer.peft_kwargs.target_modules: 'vlaue' matches nothing", "did you mean value?",
    ),
    "a base without safetensors": (
        unsafe_weights, [], "model.source=base has no safetensors weights", "take a revision with safetensors"
    ),
    "weights that are cut off": (
        cut_off, [], "model.safetensors can't be read: it should have", "copy the model again"
    ),
    "weights of another shape": (
        nothing, ["model.config_overrides={intermediate_size: 128}"],
        "weights aren't of the shape in the config", "model.config_overrides",
    ),
    "a base without a tokenizer": (
        without("tokenizer*"), [], "base has no tokenizer", "model.tokenizer="
    ),
    "a base that is no model": (
        without("config.json"), [], "model.source=base is not a model directory", "name the directory"
    ),
    "an architecture that nobody knows": (
        edited("config.json", model_type="bertt"), [], "is not an architecture that can be built", "name another model"
    ),
    "classes in the config that the data hasn't": (
        nothing, ["model.config_overrides={id2label: {0: bad, 1: fair, 2: good}}"],
        "id2label: 3 classes (bad, fair, good), and the data has 2 classes (bad, good)", "leave it out",
    ),
    "a step that micro-batches don't fill": (
        nothing, [f"{KWARGS}.per_device_train_batch_size=3"],
        "per_device_train_batch_size=3 does not divide trainer.global_batch_size=8", "per_device_train_batch_size=",
    ),
    "a micro-batch greater than the step": (
        nothing, [f"{KWARGS}.per_device_train_batch_size=16"],
        "per_device_train_batch_size=16 does not divide trainer.global_batch_size=8", "trainer.global_batch_size=16",
    ),
    "no epochs": (
        nothing, [f"{KWARGS}.num_train_epochs=0"], "num_train_epochs=0: asks for no step", "num_train_epochs above 0"
    ),
    "a rate in quotes": (
        nothing, [f"{KWARGS}.learning_rate='1e-4'"], "learning_rate='1e-4' (str): TrainingArguments takes a float", ""
    ),
    "a warm-up longer than the run": (
        nothing, [f"{KWARGS}.warmup_steps=500"], "warmup_steps=500: the run has 18 steps", "warmup_steps=1, or a longer"
    ),
    "evaluations after the run's end": (
        nothing, [f"{KWARGS}.eval_strategy=steps", f"+{KWARGS}.eval_steps=200"],
        "eval_steps=200: the run has 18 steps (6 an epoch)", "eval_steps=4",
    ),
    "checkpoints after the run's end": (
        nothing, [f"{KWARGS}.save_strategy=steps", f"+{KWARGS}.save_steps=200"], "save_steps=200: the run has 18 steps",
        "save_steps=4",
    ),
    "the best weights without an evaluation": (
        nothing, ["trainer.select=best", f"{KWARGS}.eval_strategy=no"], "select=best without evaluation",
        "eval_strategy=epoch",
    ),
    "an evaluation without validation rows": (
        nothing, ["dataset.splits.validation=null"],
        "eval_strategy=epoch, and the dataset has no validation rows", "dataset.splits.validation=0.1",
    ),
    "16 bits on a CPU": (nothing, [f"+{KWARGS}.bf16=true"], "bf16=true without a GPU", "bf16=false"),
    "an optimizer that isn't there": (
        nothing, [f"{KWARGS}.optim=adamw_torchh"], "optim='adamw_torchh' (str): TrainingArguments takes one of",
        "did you mean adamw_torch?",
    ),
    "a schedule that lacks a value": (
        nothing, [f"{KWARGS}.lr_scheduler_type=cosine_with_min_lr"], "lr_scheduler_type=cosine_with_min_lr: ",
        "lr_scheduler_kwargs",
    ),
    "a file that isn't UTF-8": (
        rows_file("rows.csv", csv_text([*ROWS, ("na\u00efve", "bad")]).encode("latin-1")), [],
        "rows.csv:62: byte 0xef is not utf-8", "dataset.encoding=cp1252",
    ),
    "a quote that is never closed": (
        rows_file("rows.csv", csv_text(ROWS) + '"never closed,bad\nw1,good\n'), [],
        "rows.csv:62: unexpected end of data", "dataset.csv.quote",
    ),
    "a broken JSON line": (
        rows_file("rows.jsonl", BROKEN), [JSONL], "lines that are no JSON (1): rows.jsonl:41", "one JSON object a line"
    ),
    "tags that mark no spans, scored as spans": (
        rows_file("rows.jsonl", WORD_TAGS),
        [JSONL, "model.task=token_classification", "metric=tokens"],
        "metric.main=f1: the tag 'DET' is not O, B-TYPE or I-TYPE", "metric.main=tag_macro_f1",
    ),
    "a nested column": (
        rows_file("rows.jsonl", NESTED), [JSONL],
        "no text in the column 'text' (40): rows.jsonl:1 (dict {'body': 'w0'})", "dataset.columns.text",
    ),
    "numbers as texts": (
        rows_file("rows.jsonl", NUMBERS), [JSONL], "no text in the column 'text' (40): rows.jsonl:1 (int 10000000",
        "dataset.columns.text",
    ),
    "a number of five thousand digits": (
        rows_file("rows.jsonl", HUGE + BROKEN.rpartition("{")[0]), [JSONL], "rows.jsonl:1", ""
    ),
    "a place that can't be written": (
        nothing, ["run.root=rows.csv/runs"], "rows.csv is a file", "run.root=PATH"
    ),
}  # fmt: skip
