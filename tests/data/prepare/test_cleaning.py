"""Each declared rule does what it says, and says what it did."""

from __future__ import annotations

import pytest

from supertrainer.core.errors import ConfigError
from supertrainer.data.prepare.row_rules import collapse_whitespace, remove_control
from supertrainer.data.prepare.rules import Rule, parse_rules, read_rules


def table(*rows: tuple[str, str]) -> str:
    return "text\tlabel\n" + "".join(f"{text}\t{label}\n" for text, label in rows)


FILLER = [("one text", "a"), ("two texts", "b")]


@pytest.mark.parametrize(
    ("rule", "text", "cleaned"),
    [
        ("strip", "  a b  ", "a b"),
        ("collapse_whitespace", "a   b\u00a0\u2003c", "a b c"),
        ("nfc", "cafe\u0301", "café"),
        ("remove_control", "a\u200b\u0007\u202eb\ufeff", "ab"),
    ],
)
def test_rules_that_change_texts(prepare, rule, text, cleaned) -> None:
    outcome = prepare(table((text, "a"), *FILLER), "--clean", rule, name="rows.tsv")
    assert outcome.rows()[0]["text"] == cleaned
    assert outcome.report["changed"] == {rule: 1}


def test_line_ends_outlive_a_collapse() -> None:
    assert collapse_whitespace("a \n\n b\tc") == "a\nb c"


def test_joiners_and_line_ends_are_no_control_characters() -> None:
    text = "می‌روم\n👩‍👩‍👧\té"
    assert remove_control(text) == text


@pytest.mark.parametrize(
    ("rule", "text", "why"),
    [
        ("drop_empty", "   ", "is empty"),
        ("min_chars=5", "abcd", "has 4 chars"),
        ("max_chars=9", "abcdefghij", "has 10 chars"),
        ("min_words=2", "alone", "has 1 words"),
        ("max_words=2", "far too long", "has 3 words"),
        ("drop_matching=https?://", "see http://x.y", "holds 'http://'"),
    ],
)
def test_rules_that_drop_rows_name_the_row(prepare, rule, text, why) -> None:
    outcome = prepare(table(*FILLER, (text, "a")), "--clean", rule, name="rows.tsv")
    assert outcome.report["dropped"] == {
        rule: {"rows": 1, "examples": [{"file": "rows.tsv", "row": 4, "field": "text", "why": why}]}
    }
    assert len(outcome.rows()) == 2


def test_a_rule_that_is_not_declared_does_nothing(prepare) -> None:
    outcome = prepare(table((" a ", "x"), (" a ", "x"), ("  ", "y")), "--clean", "none", name="rows.tsv")
    assert [row["text"] for row in outcome.rows()] == [" a ", " a ", "  "]


def test_labels_are_renamed_mapped_kept_and_dropped(prepare) -> None:
    content = table(("p", "0"), ("q", "1"), ("r", "2"))
    renamed = prepare(content, "--clean", "rename_labels={0: bad, 1: good}", name="rows.tsv")
    assert [row["label"] for row in renamed.rows()] == ["bad", "good", "2"]
    mapped = prepare(content, "--clean", "map_labels={0: bad, 1: good}", name="rows.tsv")
    assert [row["label"] for row in mapped.rows()] == ["bad", "good"]
    assert [r["label"] for r in prepare(content, "--clean", "keep_labels=[0, 2]", name="rows.tsv").rows()] == ["0", "2"]
    assert [r["label"] for r in prepare(content, "--clean", "drop_labels=0", name="rows.tsv").rows()] == ["1", "2"]


def test_entity_types_are_renamed(prepare) -> None:
    outcome = prepare("a B-PERSON\nb I-PERSON\nc O\n", "--clean", "rename_labels={PERSON: PER}", name="x.conll")
    assert outcome.rows()[0]["tags"] == ["B-PER", "I-PER", "O"]


def test_rules_go_in_their_order(prepare) -> None:
    content = table((" abcd ", "a"), *FILLER)
    assert len(prepare(content, "--clean", "strip", "min_chars=5", name="rows.tsv").rows()) == 2
    assert len(prepare(content, "--clean", "min_chars=5", "strip", name="rows.tsv").rows()) == 3


def test_exact_and_normalised_repeats(prepare) -> None:
    content = table(("A text.", "x"), ("a  TEXT", "x"), ("A text.", "x"), ("A text.", "y"), ("☂", "x"), ("☀", "x"))
    exact = prepare(content, "--clean", "drop_duplicates", name="rows.tsv")
    assert len(exact.rows()) == 5
    assert exact.report["dropped"]["drop_duplicates=exact"]["examples"] == [
        {"file": "rows.tsv", "row": 4, "field": "text", "why": "repeats rows.tsv:2"}
    ]
    alike = prepare(content, "--clean", "drop_duplicates=normalised", name="rows.tsv")
    assert [(row["text"], row["label"]) for row in alike.rows()] == [
        ("A text.", "x"),
        ("A text.", "y"),
        ("☂", "x"),
        ("☀", "x"),
    ]


def test_contradictions_are_told_and_dropped_where_that_is_declared(prepare) -> None:
    content = table(("same", "x"), ("other", "y"), ("same", "y"))
    told = prepare(content, "--clean", "none", name="rows.tsv")
    assert told.report["conflicts"] == {"rows": 2, "places": ["rows.tsv:2", "rows.tsv:4"]}
    assert [row["text"] for row in prepare(content, "--clean", "drop_conflicts", name="rows.tsv").rows()] == ["other"]


def test_rare_labels(prepare) -> None:
    content = table(("a", "x"), ("b", "x"), ("c", "y"), ("d", "z"), ("e", "x"), ("f", "w"), ("g", "w"))
    outcome = prepare(content, "--clean", "drop_rare_labels=2", name="rows.tsv")
    assert {row["label"] for row in outcome.rows()} == {"x", "w"}
    example = outcome.report["dropped"]["drop_rare_labels=2"]["examples"][0]
    assert example == {"file": "rows.tsv", "row": 4, "field": "label", "why": "is 'y', which 1 rows have"}


def test_rules_of_a_file(prepare, tmp_path) -> None:
    path = tmp_path / "rules.yaml"
    path.write_text("- strip\n- min_chars: 3\n- rename_labels: {1: bad}\n- drop_duplicates: normalised\n")
    assert read_rules(path) == (
        Rule("strip"), Rule("min_chars", 3), Rule("rename_labels", {"1": "bad"}), Rule("drop_duplicates", "normalised"),
    )  # fmt: skip
    outcome = prepare(table(("ab", "1"), ("abc", "1"), ("abd", "2")), "--rules", str(path), name="rows.tsv")
    assert [row["label"] for row in outcome.rows()] == ["bad", "2"]


def test_every_mistake_in_rules_is_told_at_once() -> None:
    with pytest.raises(ConfigError) as error:
        parse_rules(["strp", "min_chars", "max_words=many", "strip=1", "rename_labels={no: off}"])
    text = str(error.value)
    assert "there is no rule 'strp'" in text
    assert "did you mean strip?" in text
    assert "min_chars takes a value" in text
    assert "max_words=many is not a whole number of at least 1" in text
    assert "strip takes no value" in text
    assert "YAML's yes, no, on and off in quotes" in text


def test_rules_of_labels_need_labels(prepare) -> None:
    outcome = prepare("one\ntwo\n", "--clean", "drop_rare_labels=2", name="x.txt")
    assert "rule drop_rare_labels=2: the task text has no labels" in outcome.error
