"""Arguments of a chat template, and the date that it writes: checked, kept in it, the same for every reader."""

from __future__ import annotations

import datetime
import logging
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from chat_rows import CHATML, talk
from supertrainer.core.errors import ConfigError
from supertrainer.data.chat.rendering import render, render_prompt
from supertrainer.data.chat.template import apply_template_choice, template_hash
from supertrainer.data.chat.template_arguments import DATE, TemplateArguments, arguments_of, read_names

DAY = datetime.date(2026, 3, 1)
THINKING = (
    "  {% if enable_thinking is defined and enable_thinking is false %}quick{% else %}slow{% endif %}{{ style }} "
    + CHATML
)
# As Llama 3.2 and 3.1 write it.
TODAY = (
    "{%- if not date_string is defined %}{%- if strftime_now is defined %}"
    "{%- set date_string = strftime_now('%d %b %Y') %}{%- else %}{%- set date_string = '26 Jul 2024' %}{%- endif %}"
    "{%- endif %}Today: {{ date_string }}\n" + CHATML
)
FIXED = "{% if not date_string is defined %}{% set date_string = '26 Jul 2024' %}{% endif %}{{ date_string }}" + CHATML


def written(tokenizer: Any, values: Any = None, date: Any = None, choice: str | None = None, **asked: Any) -> str:
    """What a conversation becomes, as transformers itself renders it with the template that is kept."""
    apply_template_choice(tokenizer, choice, arguments=TemplateArguments(values or {}, date))
    text = str(tokenizer.apply_chat_template(talk("Hi"), tokenize=False, **asked))
    assert asked or render(talk("Hi"), tokenizer).text == text
    return text


@pytest.mark.parametrize(
    "value",
    [
        False,
        None,
        3,
        -1,
        0.5,
        1e-07,
        "",
        'a"b\\c',
        "%} {% {{ }} {# #} -#}",
        "é\n\t☃",
        [1, ["a"]],
        {"a b": {"c": [None]}},
    ],
    ids=repr,
)
def test_a_template_reads_the_value_that_is_given(value: Any, make_tokenizer: Any) -> None:
    import json

    tokenizer = make_tokenizer("{{ given | tojson }}")
    assert json.loads(written(tokenizer, {"given": value})) == value
    assert arguments_of(tokenizer.chat_template).values == {"given": value}


def test_the_template_is_what_it_is_with_the_argument_given_by_hand(make_tokenizer: Any) -> None:
    bare = make_tokenizer(THINKING).apply_chat_template(talk("Hi"), tokenize=False, enable_thinking=False, style="s")
    tokenizer = make_tokenizer(THINKING)
    assert written(tokenizer, {"enable_thinking": False, "style": "s"}) == bare
    assert bare.startswith("quicks ")
    assert written(tokenizer, enable_thinking=True).startswith("slows"), "a reader may still ask otherwise"


@pytest.mark.parametrize(
    "begin", ["\n", "  ", "  {% if true %}a{% endif %}", "\n\n{%- if true %}a{% endif %}", "{#- c -#} "]
)
def test_white_space_at_the_beginning_stays(begin: str, make_tokenizer: Any) -> None:
    template = f"{begin}{{{{ style }}}}\n{CHATML}"
    bare = make_tokenizer(template).apply_chat_template(talk("Hi"), tokenize=False, style="s")
    assert written(make_tokenizer(template), {"style": "s"}) == bare


def test_the_same_again_changes_nothing_and_others_are_added(make_tokenizer: Any) -> None:
    tokenizer = make_tokenizer(THINKING)
    written(tokenizer, {"style": "a"})
    first = tokenizer.chat_template
    written(tokenizer, {"style": "a"})
    written(tokenizer)
    assert tokenizer.chat_template == first
    written(tokenizer, {"enable_thinking": False})
    assert arguments_of(tokenizer.chat_template).values == {"style": "a", "enable_thinking": False}
    written(tokenizer, {"style": "b"})
    assert arguments_of(tokenizer.chat_template).values == {"style": "b", "enable_thinking": False}
    assert tokenizer.chat_template.endswith(THINKING)


def test_both_hashes_are_told_once(make_tokenizer: Any, caplog: pytest.LogCaptureFixture) -> None:
    tokenizer = make_tokenizer(THINKING)
    before = template_hash(tokenizer)
    with caplog.at_level(logging.INFO):
        written(tokenizer, {"style": "a"})
        written(tokenizer, {"style": "a"})
    assert caplog.messages == [
        f"The chat template {before[:12]} keeps style='a', and is {template_hash(tokenizer)[:12]} with it."
    ]


@pytest.mark.parametrize(
    ("values", "told"),
    [
        (
            {"enable_thinkng": False},
            r"enable_thinkng: the chat template never reads it[\s\S]*did you mean enable_thinking",
        ),
        ({"other": 1}, r"never reads it[\s\S]*one of: enable_thinking, style"),
        ({"messages": []}, "messages: is what a row or the tokenizer says"),
        ({"bos_token": "x"}, "bos_token: is what a row or the tokenizer says"),
        ({"strftime_now": "x"}, r"strftime_now: is a date[\s\S]*dataset.template_date="),
    ],
)
def test_an_argument_that_is_never_read_is_refused(values: Any, told: str, make_tokenizer: Any) -> None:
    with pytest.raises(ConfigError, match=told):
        written(make_tokenizer(THINKING), values)


def test_what_a_template_makes_itself_is_no_argument() -> None:
    template = "{% set a = 1 %}{{ a }}{% for b in messages %}{% generation %}{{ b + c }}{% endgeneration %}{% endfor %}"
    assert read_names(template) == {"messages", "c"}
    assert read_names("{% if %}") == frozenset()


@pytest.mark.parametrize("value", ["{a: .nan}", 3, {"a-b": 1}, {"a": float("inf")}])
def test_what_is_no_json_value_is_refused_with_the_config(value: Any, dataset: Any) -> None:
    with pytest.raises((ValidationError, ValueError), match="template_kwargs"):
        dataset([{"messages": talk("a", "b")}], template_kwargs=value)


@pytest.mark.parametrize("own", [False, True])
def test_arguments_of_a_named_template_are_checked_with_the_config(own: bool, dataset: Any, tmp_path: Path) -> None:
    (tmp_path / "own.jinja").write_text(THINKING)
    choice = str(tmp_path / "own.jinja") if own else "chatml"
    given = {"template_kwargs": {"style": 1, "bos_token": "x"}, "template_date": "2026-03-01", "chat_template": choice}
    told = [problem.what for problem in dataset([{"messages": talk("a", "b")}], **given).config.rules(None)]
    assert [what.split(":")[0].removeprefix("dataset.") for what in told] == [
        *(() if own else ("template_kwargs.style",)),
        "template_kwargs.bos_token",
        "template_date=2026-03-01",
    ]
    assert not list(dataset([{"messages": talk("a", "b")}], chat_template=choice).config.rules(None))


def test_a_date_that_is_none_is_refused_with_the_config(dataset: Any) -> None:
    with pytest.raises(ValidationError, match=r"'today' is no day. Fix: year-month-day"):
        dataset([{"messages": talk("a", "b")}], template_date="today")


def test_a_template_that_writes_the_date_writes_the_same_on_every_day(make_tokenizer: Any) -> None:
    tokenizer = make_tokenizer(TODAY)
    assert written(tokenizer).startswith("Today: 26 Jul 2024\n<|im_start|>user")
    assert arguments_of(tokenizer.chat_template).date == DATE
    assert written(tokenizer, date=DAY).startswith("Today: 01 Mar 2026\n")
    assert written(tokenizer).startswith("Today: 01 Mar 2026\n"), "the date of the training stays"
    assert written(make_tokenizer(FIXED)).startswith("26 Jul 2024<"), "its own"
    assert make_tokenizer(FIXED).chat_template == FIXED
    assert written(make_tokenizer(FIXED), date=DAY).startswith("01 Mar 2026<")


def test_a_date_for_a_template_that_writes_none_is_refused(make_tokenizer: Any) -> None:
    with pytest.raises(ConfigError, match="template_date=2026-03-01: the chat template writes no date"):
        written(make_tokenizer(), date=DAY)


@pytest.mark.parametrize(
    "form",
    [
        "%Y-%m-%d",
        "%A, %-d %B %Y",
        "%a %d %b %y",
        "%j %-j %e",
        "%H:%M:%S",
        "%I:%M %p",
        "%%Y 100%%",
        "%D %F %T %R",
        "%u %V",
    ],
)
def test_a_date_is_written_as_python_writes_it(form: str, make_tokenizer: Any) -> None:
    """At midnight, in English."""
    template = f"{{% macro day() %}}{{{{ strftime_now('{form}') }}}}{{% endmacro %}}{{{{ day() }}}}"
    expected = datetime.datetime(2026, 3, 1).strftime(form)
    assert written(make_tokenizer(template), date=DAY) == expected


def test_what_goes_before_every_question_stays_before_the_arguments(make_tokenizer: Any) -> None:
    from supertrainer.data.chat.question_prefix import question_prefix_of, set_question_prefix

    tokenizer = make_tokenizer(THINKING)
    set_question_prefix(tokenizer, "Q: ", placeholder="<image>")
    assert "user\nQ: Hi" in written(tokenizer, {"style": "a"})
    set_question_prefix(tokenizer, "R: ", placeholder="<image>")
    assert "user\nR: Hi" in written(tokenizer, {"style": "b"})
    assert question_prefix_of(tokenizer.chat_template) == "R: "
    assert arguments_of(tokenizer.chat_template).values == {"style": "b"}


def test_a_template_of_its_own_for_tools_gets_them_too(make_tokenizer: Any) -> None:
    tokenizer = make_tokenizer(None)
    tokenizer.chat_template = {"default": CHATML, "tool_use": THINKING}
    apply_template_choice(tokenizer, None, arguments=TemplateArguments({"style": "s"}))
    assert render(talk("a"), tokenizer, tools=[{"name": "f"}]).text.startswith("slows ")
    assert tokenizer.chat_template["default"] == CHATML


def test_they_are_trained_with_saved_and_read_back(dataset: Any, make_tokenizer: Any, tmp_path: Path) -> None:
    from transformers import AutoTokenizer

    tokenizer = make_tokenizer(TODAY + "{{ style }}")
    data = dataset([{"messages": talk("a", "b")}], template_kwargs={"style": "s"}, template_date="2026-03-01")
    [row] = data.encode(data.load()["train"], tokenizer)
    text = tokenizer.decode(row["input_ids"])
    assert text.startswith("Today: 01 Mar 2026\n")
    assert text.endswith("<|im_end|>\ns")
    tokenizer.save_pretrained(tmp_path / "model")
    again = AutoTokenizer.from_pretrained(tmp_path / "model")
    assert again.apply_chat_template(talk("a", "b"), tokenize=False) == text
    data = dataset([{"messages": talk("a", "b")}])  # a benchmark's config, which says nothing of them
    [same] = data.encode(data.load()["train"], again)
    assert same["input_ids"] == row["input_ids"]
    assert template_hash(again) == template_hash(tokenizer)


# As Qwen 3 writes it: without thoughts an empty pair of marks stands in the prompt, and before the last answer alone.
EMPTY_THOUGHTS = (
    "{% set blank = '<think>\\n\\n</think>\\n\\n' %}{% for m in messages %}<|im_start|>{{ m.role }}\n"
    "{{ blank if m.role == 'assistant' and loop.last }}{{ m.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n"
    "{{ blank if enable_thinking is defined and enable_thinking is false }}{% endif %}"
)


@pytest.mark.parametrize(
    ("values", "learnt_of_it"), [({"enable_thinking": False}, ""), ({}, "<think>\n\n</think>\n\n")]
)
def test_an_argument_of_the_prompt_moves_the_beginning_of_the_answer(
    values: Any, learnt_of_it: str, dataset: Any, make_tokenizer: Any, learnt: Any
) -> None:
    data, tokenizer = (
        dataset([{"messages": talk("a", "b", "c", "d")}], template_kwargs=values),
        make_tokenizer(EMPTY_THOUGHTS),
    )
    assert learnt(data, tokenizer) == [["b<|im_end|>", f"{learnt_of_it}d<|im_end|>"]]
    [row] = data.encode(data.load()["train"], tokenizer)
    asked = render_prompt(data.conversation("train", 0).prompt, tokenizer)
    assert row["input_ids"][: len(asked)] == asked
