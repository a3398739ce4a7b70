"""CoNLL columns, lists of words and marked spans come out as words with IOB2 tags."""

from __future__ import annotations

import json

import pytest

from supertrainer.data.prepare.record import RowFault
from supertrainer.data.prepare.spans import word_offsets
from supertrainer.data.prepare.tag_schemes import detect_scheme, to_iob2

CONLL_2003 = """-DOCSTART- -X- -X- O

EU NNP B-NP B-ORG
rejects VBZ B-VP O
German JJ B-NP B-MISC
call NN I-NP I-MISC

Peter NNP B-NP B-PER

-DOCSTART- -X- -X- O

Bonn NNP B-NP B-LOC
"""


@pytest.mark.parametrize(
    ("scheme", "tags", "iob2"),
    [
        ("IOB2", "B-A I-A B-A O", "B-A I-A B-A O"),
        ("IOB1", "I-A I-A B-A O I-B", "B-A I-A B-A O B-B"),
        ("IOB1", "I-A I-B", "B-A B-B"),
        ("BIOES", "B-A I-A E-A S-A O", "B-A I-A I-A B-A O"),
        ("BIOES", "B-A L-A U-A U-A", "B-A I-A B-A B-A"),
        ("IO", "A A O B A-B A-B", "B-A I-A O B-B B-A-B I-A-B"),
        ("none", "NOUN VERB O", "NOUN VERB O"),
    ],
)
def test_schemes_in_iob2(scheme, tags, iob2) -> None:
    assert to_iob2(tags.split(), scheme) == iob2.split()


@pytest.mark.parametrize(
    ("scheme", "tags", "why"),
    [
        ("IOB2", "O I-A", "word 2 has the tag I-A, but no A is open there"),
        ("IOB2", "B-A I-B", "word 2 has the tag I-B, but no B is open there"),
        ("IOB2", "S-A", "none of IOB2"),
        ("IOB2", "A", "none of IOB2"),
        ("BIOES", "B-A O", "word 1 has the tag B-A, but the entity doesn't end"),
        ("BIOES", "E-A", "no A is open there"),
        ("BIOES", "S-A E-A", "word 2 has the tag E-A, but no A is open there"),
        ("BIOES", "B-A E-A I-A", "word 3 has the tag I-A, but no A is open there"),
        ("BIOES", "B-A I-A", "word 2 has the tag I-A, but the entity doesn't end"),
    ],
)
def test_tags_that_can_not_stand_where_they_do(scheme, tags, why) -> None:
    with pytest.raises(RowFault, match=why):
        to_iob2(tags.split(), scheme)


@pytest.mark.parametrize(
    ("tags", "scheme"),
    [("B-A I-A O", "IOB2"), ("I-A I-A B-A O", "IOB1"), ("O I-A", "IOB1"), ("B-A E-A O", "BIOES"), ("U-A", "BIOES"),
     ("PER PER O", "IO"), ("NOUN VERB", "none"), ("O O", "IOB2"), ("B-A O B-A I-A O I-A", "IOB2")],
)  # fmt: skip
def test_schemes_are_told_apart(tags, scheme) -> None:
    assert detect_scheme([tags.split()])[0] == scheme


def test_conll_2003(prepare) -> None:
    outcome = prepare({"eng.train": CONLL_2003, "eng.testa": CONLL_2003.replace("EU", "UN"), "eng.testb": "a A B O\n"},
                      "--across-splits", "keep")  # fmt: skip
    assert outcome.rows()[0] == {
        "tokens": ["EU", "rejects", "German", "call"],
        "tags": ["B-ORG", "O", "B-MISC", "I-MISC"],
    }
    assert [len(outcome.rows(split)) for split in ("train", "validation", "test")] == [3, 3, 1]
    assert "words in column 1, tags in 4" in outcome.text


def test_another_column_of_tags(prepare) -> None:
    outcome = prepare(CONLL_2003, "--tag-column", "3", name="eng.conll")
    assert outcome.rows()[0]["tags"] == ["B-NP", "B-VP", "B-NP", "I-NP"]
    parts = prepare(CONLL_2003, "--tag-column", "-3", "--scheme", "none", name="eng.conll")
    assert parts.rows()[0]["tags"] == ["NNP", "VBZ", "JJ", "NN"]


def test_a_column_that_is_not_there(prepare) -> None:
    outcome = prepare(CONLL_2003, "--tag-column", "5", name="eng.conll")
    assert "--tag-column 5: the lines have 4 columns" in outcome.error


def test_the_sentences_of_a_document_stay_together(prepare) -> None:
    documents = "".join(
        f"-DOCSTART- O\n\n{f'a{n} O{chr(10)}{chr(10)}' + f'b{n} B-X{chr(10)}{chr(10)}'}" for n in range(20)
    )
    outcome = prepare(documents, "--group", "document", name="x.conll", split=True)
    for split in ("train", "validation", "test"):
        numbers = sorted(int(row["tokens"][0][1:]) for row in outcome.rows(split))
        assert numbers[::2] == numbers[1::2]
    assert [len(outcome.rows(split)) for split in ("train", "validation", "test")] == [32, 4, 4]


def test_conll_u(prepare) -> None:
    content = (
        "# newdoc id = 1\n# text = vámonos\n1-2\tvámonos\t_\t_\t_\t_\t_\t_\t_\t_\n"
        "1\tvamos\tir\tVERB\t_\t_\t0\troot\t_\t_\n"
        "2\tnos\tnosotros\tPRON\t_\t_\t1\tobj\t_\t_\n\n"
    )
    assert prepare(content, name="x.conllu").rows() == [{"tokens": ["vamos", "nos"], "tags": ["VERB", "PRON"]}]


def test_a_number_sign_may_be_a_word(prepare) -> None:
    assert prepare("# O\n1 B-X\n\na O\n", name="x.conll").rows()[0] == {"tokens": ["#", "1"], "tags": ["O", "B-X"]}


def test_a_sentence_with_a_short_line_is_malformed(prepare) -> None:
    outcome = prepare("a O\n" * 20 + "\nb O\nc\n\n", name="x.conll")
    (example,) = outcome.report["dropped"]["malformed"]["examples"]
    assert example == {
        "file": "x.conll", "row": 22, "field": "line 23", "why": "has 1 columns, not 2: 'c'",
    }  # fmt: skip


def test_numbered_tags_need_names(prepare) -> None:
    row = json.dumps({"tokens": ["Bonn", "lies"], "ner_tags": [1, 0]})
    assert prepare(row, "--tag-names", "O", "B-LOC", name="x.jsonl").rows()[0]["tags"] == ["B-LOC", "O"]
    refused = prepare(row, name="x.jsonl")
    assert refused.code == 2
    assert "x.jsonl:1 tags[1] is the number 1, and no one said what it stands for (--tag-names)" in refused.text


def test_a_tag_too_few_is_malformed(prepare) -> None:
    outcome = prepare('{"tokens": ["a", "b"], "tags": ["O"]}\n{"tokens": ["a"], "tags": ["O"]}\n', name="x.jsonl")
    assert outcome.report["dropped"]["malformed"]["examples"][0]["why"] == "there are 1 for 2 words"


TEXT = "Angela Merkel visits Paris."
TAGGED = {"tokens": ["Angela", "Merkel", "visits", "Paris", "."], "tags": ["B-PER", "I-PER", "O", "B-LOC", "O"]}


@pytest.mark.parametrize(
    "row",
    [
        {"text": TEXT, "entities": [[0, 13, "PER"], [21, 26, "LOC"]]},
        {"text": TEXT, "spans": [{"start": 21, "end": 26, "label": "LOC"}, {"start": 0, "end": 13, "label": "PER"}]},
        {"text": TEXT, "label": [[0, 13, "PER"], [21, 26, "LOC"]]},
        {
            "id": 1,
            "text": TEXT,
            "entities": [{"id": 5, "label": "PER", "start_offset": 0, "end_offset": 13},
                         {"id": 6, "label": "LOC", "start_offset": 21, "end_offset": 26}],
        },
        {
            "data": {"text": TEXT},
            "annotations": [
                {"was_cancelled": True, "result": []},
                {"result": [
                    {"type": "labels", "value": {"start": 0, "end": 13, "text": "Angela Merkel", "labels": ["PER"]}},
                    {"type": "labels", "value": {"start": 21, "end": 26, "text": "Paris", "labels": ["LOC"]}},
                ]},
            ],
        },
        {"id": 1, "text": TEXT, "label": [{"start": 0, "end": 13, "labels": ["PER"]},
                                          {"start": 21, "end": 26, "labels": ["LOC"]}]},
        [TEXT, {"entities": [[0, 13, "PER"], [21, 26, "LOC"]]}],
    ],
)  # fmt: skip
def test_forms_of_spans(prepare, row) -> None:
    outcome = prepare(json.dumps([row]), name="spans.json")
    assert (outcome.report["layout"], outcome.rows()) == ("spans", [TAGGED])


@pytest.mark.parametrize(
    ("policy", "tags"),
    [("drop_row", None), ("drop_span", ["O", "O", "O"]), ("expand", ["O", "B-LOC", "O"])],
)
def test_a_span_that_cuts_a_word(prepare, policy, tags) -> None:
    rows = [{"text": "In Hamburger style", "spans": [[3, 10, "LOC"]]}, {"text": "x", "spans": []}]
    outcome = prepare("".join(json.dumps(row) + "\n" for row in rows), "--misaligned", policy, name="x.jsonl")
    assert [row["tags"] for row in outcome.rows()] == ([tags] if tags else []) + [["O"]]
    if tags is None:
        example = outcome.report["dropped"]["malformed"]["examples"][0]
        assert "span 3..10 ('Hamburg', LOC) begins or ends inside a word" in example["why"]
    else:
        assert outcome.report["notes"] == {f"misaligned spans: {policy}": {"count": 1, "places": ["x.jsonl:1 3..10"]}}


@pytest.mark.parametrize(
    ("span", "why"),
    [
        ([0, 99, "X"], "lies outside of the text of 5 characters"),
        ([3, 3, "X"], "or is empty"),
        (["0", 2, "X"], "is no whole number"),
        ({"start": 0, "end": 2, "label": None}, "is no label"),
        ({"start": 0, "end": 2, "label": "X", "text": "yz"}, "offsets in bytes or UTF-16 units"),
    ],
)
def test_spans_that_are_wrong(prepare, span, why) -> None:
    rows = [{"text": "ab cd", "spans": [span]}, {"text": "x", "spans": [[0, 1, "X"]]}]
    outcome = prepare("".join(json.dumps(row) + "\n" for row in rows), name="x.jsonl")
    assert why in outcome.report["dropped"]["malformed"]["examples"][0]["why"]


def test_spans_that_overlap_are_malformed(prepare) -> None:
    rows = [{"text": "ab cd", "spans": [[0, 5, "X"], [3, 5, "Y"]]}, {"text": "x", "spans": []}]
    outcome = prepare("".join(json.dumps(row) + "\n" for row in rows), name="x.jsonl")
    assert "overlaps another" in outcome.report["dropped"]["malformed"]["examples"][0]["why"]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("Don't stop, U.S.!", ["Don't", "stop", ",", "U", ".", "S", ".", "!"]),
        ("كَتَبَ الولد", ["كَتَبَ", "الولد"]),
        ("हिन्दी में", ["हिन्दी", "में"]),
        ("می‌روم", ["می‌روم"]),
        ("我在北京 ok", ["我", "在", "北", "京", "ok"]),
        ("a_b-c 3.5", ["a_b", "-", "c", "3", ".", "5"]),
    ],
)
def test_words_of_many_scripts(text, words) -> None:
    assert [text[start:end] for start, end in word_offsets(text, "punctuation")] == words
