"""docs/datasets.md and README say what is there: columns, layouts, rules, commands."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path

import pytest
import yaml

from supertrainer.data.prepare.command import parse
from supertrainer.data.prepare.layouts import TASKS_OF
from supertrainer.data.prepare.options import LAYOUTS
from supertrainer.data.prepare.rules import KINDS, read_rules
from supertrainer.data.prepare.shapes import TASKS

ROOT = Path(__file__).parents[3]
DOCUMENT = (ROOT / "docs/datasets.md").read_text()
NAMED = {
    "masked_lm": "text",
    "chat, instruction": "chat",
    "text (raw text, pretraining)": "text",
    "vision_chat (MLLM)": "vision_chat",
}
EXAMPLES = re.findall(r"^\| ([^|]+) \| [^\n]*\| `(\{.*\})` \|$", DOCUMENT, flags=re.MULTILINE)


def commands() -> list[str]:
    text = DOCUMENT + (ROOT / "README.md").read_text()
    return [line for line in text.splitlines() if line.startswith("python scripts/prepare_dataset.py")]


@pytest.mark.parametrize("line", commands())
def test_a_command_is_accepted(line: str) -> None:
    assert parse(shlex.split(line, comments=True)[2:]).source


def test_there_is_a_command_for_most_layouts() -> None:
    assert len(commands()) >= 18


@pytest.mark.parametrize(("task", "row"), EXAMPLES)
def test_an_example_row_has_the_columns_of_its_task(task: str, row: str) -> None:
    task = "sequence_classification" if task.startswith("…") else NAMED.get(task, task)
    columns = TASKS[task]
    required = {name for name in columns if not name.endswith("?")}
    assert required <= set(json.loads(row)) <= {name.removesuffix("?") for name in columns}


def test_every_task_has_an_example_row() -> None:
    assert {NAMED.get(task, task) for task, _ in EXAMPLES if not task.startswith("…")} == set(TASKS)


def test_every_layout_is_in_the_table_with_its_tasks() -> None:
    table = DOCUMENT[DOCUMENT.index("| layout |") :].split("\n\n")[0]
    rows = [[cell.strip() for cell in line.split(" | ")] for line in table.splitlines()[2:]]
    told = {
        layout.strip("| "): tasks.strip(" |").split(", ") for names, _, tasks in rows for layout in names.split(", ")
    }
    assert told == {layout: list(TASKS_OF[layout]) for layout in LAYOUTS} | {
        name: ["sequence_classification"] for name in ("class_files", "class_folders")
    } | {"fasttext": ["sequence_classification", "multi_label"]}


def test_the_rules_of_the_document_are_rules(tmp_path: Path) -> None:
    (block,) = re.findall(r"```yaml\n(.*?)```", DOCUMENT, flags=re.DOTALL)
    (tmp_path / "rules.yaml").write_text(block)
    assert len(read_rules(tmp_path / "rules.yaml")) == len(yaml.safe_load(block))
    assert [name for name in KINDS if name not in DOCUMENT] == []
