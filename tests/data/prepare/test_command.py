"""The command: what it promises of dropped rows, bytes, errors and the disk."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from supertrainer.data.prepare.command import main, parse
from supertrainer.data.prepare.options import LAYOUTS
from supertrainer.data.prepare.rules import KINDS

ROOT = Path(__file__).parents[3]
SCRIPT = ROOT / "scripts/prepare_dataset.py"
ROWS = "text,label\n" + "".join(f"text {n},{'ab'[n % 2]}\n" for n in range(40))


def test_too_many_dropped_rows_are_an_error_and_nothing_is_written(prepare) -> None:
    outcome = prepare(ROWS + "bad\n" * 5, "--max-dropped", "10%")
    assert outcome.code == 2
    assert "5 of 45 rows are dropped (11.1%), more than --max-dropped 10%" in outcome.error
    assert "rows.csv:42 the row has 1 cells where there are 2 columns" in outcome.text
    assert not outcome.out.exists()
    assert prepare(ROWS + "bad\n" * 4, "--max-dropped", "10%").code == 0


def test_read_rows_are_kept_and_dropped_rows(prepare) -> None:
    outcome = prepare(ROWS + "bad\n,a\ntext 1,b\n" * 2)
    report = outcome.report
    assert (report["read"], report["kept"], report["dropped_rows"]) == (46, 40, 6)
    assert {rule: dropped["rows"] for rule, dropped in report["dropped"].items()} == {
        "malformed": 2, "drop_empty": 2, "drop_duplicates=exact": 2,
    }  # fmt: skip


def test_every_dropped_row_is_listed_though_the_report_shows_five(prepare) -> None:
    outcome = prepare(ROWS + "bad\n" * 9)
    dropped = [json.loads(line) for line in (outcome.out / "dropped.jsonl").read_text().splitlines()]
    assert [row["row"] for row in dropped] == list(range(42, 51))
    assert len(outcome.report["dropped"]["malformed"]["examples"]) == 5
    assert "    - and 4 more" in outcome.text


@pytest.mark.parametrize("format", ["jsonl", "parquet"])
def test_the_same_input_gives_the_same_bytes(prepare, format) -> None:
    def contents() -> dict[str, bytes]:
        outcome = prepare(ROWS + "bad\n", "--format", format, split=True)
        return {path.name: path.read_bytes() for path in outcome.out.iterdir()}

    first = contents()
    assert set(first) == {f"{s}.{format}" for s in ("train", "validation", "test")} | {
        "dropped.jsonl", "report.json", "report.md",
    }  # fmt: skip
    assert contents() == first


def test_other_hash_seeds_give_the_same_bytes(tmp_path) -> None:
    (tmp_path / "x.jsonl").write_text(
        "".join(
            json.dumps({"text": f"t{n}", "labels": [c for c in "abc" if n % (ord(c) - 95)]}) + "\n" for n in range(50)
        )
    )
    found = []
    for seed in ("1", "2"):
        command = [sys.executable, str(SCRIPT), "x.jsonl", "--out", f"out{seed}"]
        subprocess.run(command, cwd=tmp_path, check=True, env={"PYTHONHASHSEED": seed}, timeout=120)
        found.append({path.name: path.read_bytes() for path in (tmp_path / f"out{seed}").iterdir()})
    assert found[0] == found[1]


def test_a_dry_run_reports_and_writes_nothing(prepare) -> None:
    outcome = prepare(ROWS + "bad\n", "--dry-run", split=True)
    assert outcome.code == 0
    assert "41 rows read, 40 kept, 1 dropped (2.4%)." in outcome.text
    assert "| rows                       | 32 " in outcome.text
    assert not outcome.out.exists()
    assert sorted(path.name for path in outcome.out.parent.iterdir()) == ["in"]


def test_nothing_is_left_beside_the_output(prepare) -> None:
    assert sorted(path.name for path in prepare(ROWS).out.parent.iterdir()) == ["in", "out"]


def test_an_output_that_holds_something_is_refused(tmp_path, capsys) -> None:
    (tmp_path / "rows.csv").write_text(ROWS)
    (tmp_path / "out").mkdir()
    (tmp_path / "out/notes.txt").write_text("mine")
    command = [str(tmp_path / "rows.csv"), "--out", str(tmp_path / "out")]
    assert main(command) == 2
    assert "out holds notes.txt" in capsys.readouterr().err
    assert main([*command, "--overwrite"]) == 0
    assert (tmp_path / "out/notes.txt").read_text() == "mine"


def test_overwriting_takes_earlier_splits_away(prepare) -> None:
    assert (prepare(ROWS, split=True).out / "test.jsonl").exists()
    outcome = prepare(ROWS, "--format", "parquet")
    assert sorted(path.name for path in outcome.out.iterdir()) == [
        "dropped.jsonl", "report.json", "report.md", "train.parquet",
    ]  # fmt: skip


def test_an_output_inside_the_source_is_refused(tmp_path, capsys) -> None:
    (tmp_path / "train.csv").write_text(ROWS)
    assert main([str(tmp_path), "--out", str(tmp_path / "out")]) == 2
    assert "lies in the source" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--claen", "strip"], "did you mean --clean?"),
        (["--from", "connl"], "invalid choice: 'connl'"),
        (["--splits", "dev=0.1"], "no split to be made"),
        (["--splits", "validation=0.6", "test=0.5"], "leave no train rows"),
        (["--splits", "test=2"], "is no share"),
        (["--max-dropped", "much"], "is no share"),
        (["--delimiter", "::"], "is no single character"),
        (["--encoding", "utf-9"], "knows no such encoding"),
        (["--columns", "text"], "no pair"),
        (["--files", "dev=x.csv"], "'dev' is no split"),
        (["--task", "chat"], "the layout labelled holds sequence_classification or multi_label or regression or text"),
        (["--keep", "nope"], "has no column 'nope'"),
    ],
)
def test_mistakes_of_a_command(prepare, words, told) -> None:
    outcome = prepare(ROWS, *words)
    assert outcome.code == 2
    assert told in outcome.error
    assert not outcome.out.exists()


def test_sources_that_are_not_there(tmp_path, capsys) -> None:
    for source, told in (("gone.csv", "is not there"), ("package://no_such_package/x", "is not installed")):
        assert main([source, "--out", str(tmp_path / "out")]) == 2
        assert told in capsys.readouterr().err


def test_from_says_what_detection_would_not(prepare) -> None:
    outcome = prepare("a b\nc d\n", "--from", "conll", "--scheme", "none", name="x.txt")
    assert outcome.rows() == [{"tokens": ["a", "c"], "tags": ["b", "d"]}]
    assert "layout conll: as said" in outcome.text


def test_no_torch_and_no_pandas_are_imported(tmp_path) -> None:
    (tmp_path / "rows.csv").write_text(ROWS)
    words = [str(tmp_path / "rows.csv"), "--out", str(tmp_path / "out")]
    code = (
        f"import sys; from supertrainer.data.prepare.command import main; main({words!r});"
        "print(sorted({'torch', 'transformers', 'datasets', 'pandas', 'pyarrow'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=120)
    assert done.stdout.splitlines()[-1] == "[]"


def test_memory_grows_with_rows_not_with_their_texts(tmp_path) -> None:
    """40 MB of JSON lines take less than half of that above an empty run."""
    with (tmp_path / "big.jsonl").open("w") as file:
        for number in range(2000):
            file.write(json.dumps({"text": f"{number} " + "word " * 4000, "label": "ab"[number % 2]}) + "\n")
    (tmp_path / "small.csv").write_text(ROWS)

    def peak_kib(source: str) -> int:
        code = (
            "import resource, sys; from supertrainer.data.prepare.command import main;"
            f"assert main([{source!r}, '--out', {source + '.out'!r}]) == 0;"
            "print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)"
        )
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=300)
        return int(done.stdout.splitlines()[-1])

    assert peak_kib(str(tmp_path / "big.jsonl")) - peak_kib(str(tmp_path / "small.csv")) < 20 * 1024


def test_help_names_every_layout_and_rule(capsys) -> None:
    with pytest.raises(SystemExit):
        main(["--help"])
    text = capsys.readouterr().out
    assert all(name in text for name in (*LAYOUTS, *KINDS))


def test_the_default_rules_are_told(prepare) -> None:
    assert "- rules: strip, drop_empty, drop_duplicates=exact" in prepare(ROWS).text
    assert [str(rule) for rule in parse(["x", "--out", "y"]).rules] == ["strip", "drop_empty", "drop_duplicates=exact"]
