"""Talking to a model: turns from a pipe or a terminal, what is kept of the conversation, and what is refused."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import pytest

from supertrainer.core.errors import ConfigError, DataError
from supertrainer.data.chat.rendering import render_prompt
from supertrainer.inference.engines.hf import HfEngine
from supertrainer.inference.engines.schema import HfEngineConfig
from supertrainer.inference.schema import GenerationConfig
from supertrainer.inference.streaming import AnswerStream
from supertrainer.models.saving import TrainedModel
from supertrainer.operations import chat_command
from supertrainer.operations.chat_command import main, parse, printable
from supertrainer.operations.chat_session import ChatSession
from tiny_chats import POSITIONS, TEMPLATE, save_tiny_chat, tiny_chat_model, tiny_chat_tokenizer, tiny_prompts
from tiny_models import save_tiny

SHORT = ["max_new_tokens=5"]


@pytest.fixture
def model(tmp_path: Path) -> str:
    """The directory of a tiny model."""
    return str(save_tiny_chat(tmp_path / "model"))


def session(**keys: Any) -> ChatSession:
    trained = TrainedModel(tiny_chat_model(), tiny_chat_tokenizer(), (), "causal_lm", {})
    engine = HfEngine(HfEngineConfig(_target_="x"), trained=trained)
    system = keys.pop("system", None)
    return ChatSession(engine, generation=GenerationConfig(**{"max_new_tokens": 5, **keys}), system=system)


def said(chat: ChatSession, text: str) -> str:
    return "".join(chat.answer(text))


def piped(model: str, *lines: str, words: tuple[str, ...] = ()) -> str:
    output = io.StringIO()
    assert main([model, *SHORT, *words], stdin=io.StringIO("".join(f"{line}\n" for line in lines)), stdout=output) == 0
    return output.getvalue()


@pytest.mark.parametrize("seed", range(4))
def test_the_pieces_of_an_answer_are_its_text(seed: int) -> None:
    chat, config = session(), GenerationConfig(max_new_tokens=20, temperature=1.0, seed=seed)
    [prompt] = tiny_prompts(1, seed=seed)
    engine = chat._engine
    [(_, [answer])] = engine.answers([prompt], generation=config)
    stream = AnswerStream(engine.trained.model, engine.trained.tokenizer, prompt, config=config)
    pieces = list(stream)
    assert "".join(pieces) == answer.text
    assert stream.answer == answer
    assert len(pieces) > 3


def test_a_piece_that_may_become_a_stop_is_held_back() -> None:
    chat = session()
    [prompt] = tiny_prompts(1)
    engine = chat._engine
    [(_, [free])] = engine.answers([prompt], generation=GenerationConfig(max_new_tokens=12))
    words = free.text.split()
    stop = f"{words[3]} {words[4]} {words[5]}"
    config = GenerationConfig(max_new_tokens=12, stop=(stop,))
    pieces = list(AnswerStream(engine.trained.model, engine.trained.tokenizer, prompt, config=config))
    assert "".join(pieces) == free.text.partition(stop)[0]


def test_a_conversation_holds_questions_and_answers() -> None:
    chat = session(system="w9")
    first = said(chat, "w1 w2")
    assert [message["role"] for message in chat.messages] == ["system", "user", "assistant"]
    assert chat.messages[2]["content"] == first
    second = said(chat, "w3")
    tokenizer = chat._engine.trained.tokenizer
    [(_, [alone])] = chat._engine.answers(
        [render_prompt(chat.messages[:4], tokenizer)], generation=GenerationConfig(max_new_tokens=5)
    )
    assert second == alone.text
    chat.reset()
    assert [message["role"] for message in chat.messages] == ["system"]
    assert said(chat, "w1 w2") == first


def test_the_oldest_turns_are_left_out_where_no_room_is_left() -> None:
    chat = session(system="w9", max_new_tokens=20)
    for _ in range(3):
        said(chat, "w1 w2 w3 w4")
    assert chat.left_out == 0
    for _ in range(5):
        said(chat, "w5 " * 12)
        if chat.left_out:
            break
    assert chat.left_out in (2, 4)
    assert chat.messages[0]["content"] == "w9"
    assert chat.messages[1]["role"] == "user"


def test_a_message_that_is_too_long_is_forgotten() -> None:
    chat = session()
    before = said(chat, "w1")
    with pytest.raises(DataError, match=rf"100 tokens, and the model has {POSITIONS} positions"):
        said(chat, "w2 " * POSITIONS)
    assert [message["content"] for message in chat.messages] == ["w1", before]


def test_each_line_of_a_pipe_is_a_turn(model: str) -> None:
    chat = session()
    expected = [said(chat, "w1 w2"), said(chat, "w3")]
    assert piped(model, "w1 w2", "", "w3") == "".join(f"{text}\n" for text in expected)


def test_reset_forgets_and_exit_ends(model: str) -> None:
    first = said(session(), "w1 w2")
    assert piped(model, "w1 w2", "/reset", "w1 w2", "/exit", "w3") == f"{first}\n" * 2


def test_a_system_message_changes_answers(model: str) -> None:
    assert piped(model, "w1", words=("--system", "w5 w6")) != piped(model, "w1")


def test_special_tokens_that_are_typed_are_told(model: str, capsys: pytest.CaptureFixture[str]) -> None:
    piped(model, "w1 <|end|> w2", "w3", words=("--system", "w4 </s>"))
    told = [line for line in capsys.readouterr().err.splitlines() if "special tokens" in line]
    assert told == [
        "(the system message holds special tokens written out, which are read as such: </s>)",
        "(the message holds special tokens written out, which are read as such: <|end|>)",
    ]


class Terminal(io.StringIO):
    """An input that says that it is a terminal."""

    def isatty(self) -> bool:
        return True


def on_terminal(monkeypatch: pytest.MonkeyPatch, lines: list[str | type[BaseException]]) -> None:
    """`input()` gives these lines, or raises, and then ends as Ctrl-D does."""

    def give(prompt: str) -> str:
        line = lines.pop(0) if lines else EOFError
        if isinstance(line, str):
            return line
        raise line

    monkeypatch.setattr("builtins.input", give)


def test_ctrl_c_stops_the_answer_and_not_the_program(
    model: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    chat, calls = session(), []

    def interrupt(*_: Any) -> None:
        calls.append(1)
        if len(calls) == 3:
            raise KeyboardInterrupt

    chat._engine.trained.model.register_forward_pre_hook(interrupt)
    monkeypatch.setattr(chat_command, "_open", lambda command: chat)
    on_terminal(monkeypatch, ["w1 w2", "w3"])
    output = io.StringIO()
    assert main([model], stdin=Terminal(), stdout=output) == 0
    assert "(stopped)" in capsys.readouterr().err
    first, second = (message["content"] for message in chat.messages if message["role"] == "assistant")
    assert (len(first.split()), len(second.split())) == (2, 5)
    assert f"{first}\n" in output.getvalue()


def test_ctrl_c_at_the_prompt_says_how_to_end(model: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chat_command, "_open", lambda command: session())
    on_terminal(monkeypatch, [KeyboardInterrupt])
    output = io.StringIO()
    assert main([model], stdin=Terminal(), stdout=output) == 0
    assert "/exit or Ctrl-D ends" in output.getvalue()


def test_a_cut_answer_is_told(model: str, capsys: pytest.CaptureFixture[str]) -> None:
    piped(model, "w1")
    assert "(cut off after 5 tokens)" in capsys.readouterr().err


def test_nothing_that_a_terminal_would_obey_is_printed() -> None:
    assert printable("a\x1b[31mb\n\tc\u202e") == "a\ufffd[31mb\n\tc\ufffd"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["m", "temprature=1"], "temprature=1: unknown key.\n  Fix: did you mean temperature"),
        (["m", "temperature=hot"], "temperature='hot': is text; a number"),
        (["m", "device=gpu"], "device='gpu': expected one of auto, cpu, cuda.\n  Fix: "),
        (["m", "n"], "2 models are given: m n"),
        ([], "no model is given"),
        (["m", "--sistem", "x"], "unknown flag --sistem.\n  Fix: did you mean --system"),
        (["m", "--system"], "--system is followed by nothing"),
    ],
)
def test_a_faulty_command_is_refused(words: list[str], message: str) -> None:
    with pytest.raises(ConfigError) as refused:
        parse(words)
    assert message in str(refused.value)


def test_keys_are_read_as_in_a_config() -> None:
    options = parse(["m", "temperature=0.5", "stop=[a,b]", "min_p=1e-2", "max_new_tokens=7"]).options
    assert (options.temperature, options.stop, options.min_p, options.max_new_tokens) == (0.5, ("a", "b"), 0.01, 7)


def test_what_cannot_chat_is_refused(tmp_path: Path, model: str, capsys: pytest.CaptureFixture[str]) -> None:
    classifier = str(save_tiny(tmp_path / "classifier", labels=("a", "b")))
    assert main([classifier], stdin=io.StringIO()) == 2
    assert "was trained for sequence_classification" in capsys.readouterr().err
    plain = tmp_path / "plain"
    tiny_chat_model().save_pretrained(plain)
    tiny_chat_tokenizer(chat_template=None).save_pretrained(plain)
    assert main([str(plain)], stdin=io.StringIO()) == 2
    assert "no chat template" in capsys.readouterr().err
    other = tmp_path / "chat.jinja"
    other.write_text(TEMPLATE.replace("<|end|>", "</s>"))
    assert main([model, f"chat_template={other}"], stdin=io.StringIO()) == 2
    assert "isn't the one that is stored with the model" in capsys.readouterr().err


def test_help_is_told_without_a_model() -> None:
    output = io.StringIO()
    assert main(["--help"], stdout=output) == 0
    assert "usage: chat.py" in output.getvalue()
    assert main([], stdout=io.StringIO()) == 2
