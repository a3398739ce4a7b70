"""CSV in its variants comes out as the same rows."""

from __future__ import annotations

import pytest

ROWS = [{"text": "fine, really", "label": "pos"}, {"text": "dull", "label": "neg"}]


@pytest.mark.parametrize(
    "content",
    [
        'text,label\n"fine, really",pos\ndull,neg\n',
        "text;label\nfine, really;pos\ndull;neg\n",
        "text\tlabel\nfine, really\tpos\ndull\tneg\n",
        "text|label\r\nfine, really|pos\r\ndull|neg\r\n",
        'label,text\npos,"fine, really"\nneg,dull\n',
        "text;label\n\nfine, really;pos\ndull;neg",
    ],
)
def test_delimiters_quotes_and_line_ends(prepare, content) -> None:
    assert prepare(content).rows() == ROWS


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "utf-16-le", "cp1252", "latin-1"])
def test_encodings(prepare, encoding) -> None:
    words = ["--encoding", encoding] if encoding == "utf-16-le" else []
    outcome = prepare("text,label\ncafé,ä\nthé,b\n".encode(encoding), *words)
    assert outcome.rows() == [{"text": "café", "label": "ä"}, {"text": "thé", "label": "b"}]


def test_a_detected_encoding_is_told(prepare) -> None:
    assert (
        "rows.csv: read as cp1252: it has no byte order mark and isn't UTF-8"
        in prepare("text,label\ncafé “ok”,a\nx,b\n".encode("cp1252")).text
    )


def test_an_encoding_that_is_wrong_is_an_error(prepare) -> None:
    outcome = prepare("text,label\ncafé,a\n".encode("cp1252"), "--encoding", "utf-8")
    assert outcome.code == 2
    assert "is not utf-8" in outcome.error


@pytest.mark.parametrize(
    ("content", "why"),
    [
        ("a long text about things,x\nanother text of this kind,y\na third one of them,x\n", "stands further down too"),
        ("12,a text of words\n7,another one\n", "column 1 holds numbers below"),
    ],
)
def test_a_table_without_header(prepare, content, why) -> None:
    outcome = prepare(content, "--task", "text", "--columns", f"text=column_{2 if content[0].isdigit() else 1}")
    assert outcome.report["read"] == content.count("\n")
    assert why in outcome.text


def test_header_no_takes_line_1_for_a_row(prepare) -> None:
    outcome = prepare("a,b\nc,d\n", "--header", "no", "--columns", "text=column_1", "label=column_2")
    assert outcome.rows() == [{"text": "a", "label": "b"}, {"text": "c", "label": "d"}]


def test_a_backslash_before_quotes(prepare) -> None:
    outcome = prepare('text,label\n"he said \\"no\\", twice",a\n"x",b\n')
    assert outcome.rows()[0] == {"text": 'he said "no", twice', "label": "a"}


def test_a_file_that_quotes_nothing(prepare) -> None:
    outcome = prepare('text\tlabel\n"Begins with a quote\ta\nplain\tb\n', name="rows.tsv")
    assert outcome.rows()[0] == {"text": '"Begins with a quote', "label": "a"}


def test_a_text_over_several_lines_keeps_the_line_of_its_beginning(prepare) -> None:
    outcome = prepare('text,label\n"two\nlines",a\nshort\nplain,b\n')
    assert outcome.rows() == [{"text": "two\nlines", "label": "a"}, {"text": "plain", "label": "b"}]
    (example,) = outcome.report["dropped"]["malformed"]["examples"]
    assert example == {"file": "rows.csv", "row": 4, "field": "the row", "why": "has 1 cells where there are 2 columns"}


def test_a_quote_that_never_ends_is_an_error(prepare) -> None:
    rows = "".join(f"row {n},{'ab'[n % 2]}\n" for n in range(5000))
    outcome = prepare(f'text,label\n"fine",a\n{rows}"open,b\nmore,a\n', "--quote", '"')
    assert outcome.code == 2
    assert "rows.csv:5003: the quote that begins in this row never ends" in outcome.error


def test_a_header_with_a_name_twice_is_an_error(prepare) -> None:
    assert "names the column 'text' twice" in prepare("text,text,label\na,b,c\n", "--header", "yes").error


def test_gzip(prepare) -> None:
    import gzip

    assert prepare(gzip.compress(b"text,label\na,x\nb,y\n"), name="rows.csv.gz").rows()[1] == {
        "text": "b",
        "label": "y",
    }


def test_a_tab_table_in_a_txt_file_is_found_out(prepare) -> None:
    content = "ham\tAre you there?\nspam\tWin a prize now\nham\tOk, see you then\nham\tSure\n"
    outcome = prepare(content, name="SMSSpamCollection")
    assert outcome.rows()[1] == {"text": "Win a prize now", "label": "spam"}
