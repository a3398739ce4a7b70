"""report.md as a Markdown reader sees it."""

from __future__ import annotations

import html
import re
from collections.abc import Callable

from supertrainer.benchmark.display import one_line
from supertrainer.benchmark.markdown import escape, fenced, render, table
from supertrainer.benchmark.results import Report


def shown(markup: str) -> str:
    """What a reader sees of text whose markup is escaped: backslashes before punctuation gone, entities resolved."""
    return html.unescape(re.sub(r"\\([!-/:-@\[-`{-~])", r"\1", markup))


def cells(line: str) -> list[str]:
    """The cells of a row of a table, split at the pipes that aren't escaped."""
    return [cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]]


def test_escape_literal() -> None:
    assert escape("a|b\n<b> *x* `y` _z_ [l](u) & \\ $m$ #h ~s~") == (
        "a\\|b &lt;b&gt; \\*x\\* \\`y\\` \\_z\\_ \\[l\\](u) &amp; \\\\ \\$m\\$ \\#h \\~s\\~"
    )


def test_underscores_inside_words_need_no_escape() -> None:
    assert escape("macro_f1 _a_ __b__ c_") == "macro_f1 \\_a\\_ \\_\\_b\\_\\_ c\\_"


def test_escaped_text_reads_as_it_was(nasty: str) -> None:
    assert shown(escape(nasty)) == one_line(nasty, width=300)
    assert "<" not in escape(nasty)


def test_table_literal() -> None:
    assert table([["a", "b"], ["x|y", "1"]], numbers_from=1) == "| a | b |\n| --- | ---: |\n| x\\|y | 1 |"


def test_fence_is_longer_than_any_in_the_text() -> None:
    assert fenced("echo ````") == "`````bash\necho ````\n`````"


def test_nasty_texts_stay_in_their_cells(make_report: Callable[..., Report], nasty: str) -> None:
    page = render(make_report(), plots={})
    row = next(line for line in page.splitlines() if line.startswith("| 3 |"))
    assert [shown(cell) for cell in cells(row)] == ["3", one_line(nasty, width=300), "bad", "good", "0.987"]
    assert "<script>" not in page


def test_page_tells_all_of_the_run(make_report: Callable[..., Report]) -> None:
    page = render(make_report(notes=("2 texts were cut",)), plots={"loss": "plots/loss.png"}, files=["report.json"])
    for line in (
        "# train_bert-1a2b3c4d",
        "| status | finished |",
        "| model | org/encoder, 1,000,000 parameters, 250,000 trained (25.0%, lora) |",
        "| this model | test | 0.8125 | 0.8000 | 0.4000 |",
        "| majority class | test | 0.3125 | - | - |",
        "macro_f1 +0.5000 against majority class, -0.0625 against bag of words.",
        "- majority class: always 'bad'",
        "| good | 0.8750 | 0.7000 | 0.7778 | 10 |",
        "Optimizer steps: 40. Checkpoints kept: step 20, step 40. Best by macro_f1: step 40.",
        "![Loss over optimizer steps](plots/loss.png)",
        "| 1 | 10:00 | - | a | 2 | - | - | - | - |",
        "| 2 | 11:00 | 11:30 | b | 1 | 20 | done | 40 | - |",
        "- 2 texts were cut",
        "supertrainer config=runs/train_bert-1a2b3c4d",
        "| accuracy | rows predicted right / rows |",
        "- [report.json](report.json)",
    ):
        assert line in page.splitlines(), line


def test_tables_have_as_many_cells_as_their_headers(make_report: Callable[..., Report]) -> None:
    for block in render(make_report(), plots={}).split("\n\n"):
        if block.startswith("|"):
            assert len({len(cells(line)) for line in block.splitlines()}) == 1, block


def test_run_without_metrics_has_a_page_without_empty_sections(make_report: Callable[..., Report]) -> None:
    bare = make_report(
        metrics={}, scored_split=None, baselines=(), per_class=(), confusion=(), samples=(), attempts=(), commands={},
        definitions={}, experiment=None,
    )  # fmt: skip
    headings = [line for line in render(bare, plots={}).splitlines() if line.startswith("## ")]
    assert headings == ["## Training"]
