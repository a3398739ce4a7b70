"""`scripts/chat.py`: talk to a trained model. Light to import; torch comes when the model does."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, TextIO

from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException
from pydantic import Field, ValidationError

from supertrainer.benchmark.display import JOINERS
from supertrainer.config.nearest import did_you_mean
from supertrainer.config.schema_problems import schema_problems
from supertrainer.config.secrets import redact
from supertrainer.core.errors import INTERRUPTED, ConfigError, DataError, Problem, SupertrainerError
from supertrainer.inference.engines.schema import HfEngineConfig
from supertrainer.inference.schema import GenerationConfig
from supertrainer.models.schema import ModelKwargs

if TYPE_CHECKING:
    from supertrainer.operations.chat_session import ChatSession

USAGE = """usage: chat.py MODEL [key=value …] [--system TEXT]

  MODEL       a run directory (runs/NAME), a model directory, or a Hub id
  --system    what the model is told before the conversation

keys          max_new_tokens=512 temperature=0 top_p=1 top_k=0 min_p=0 repetition_penalty=1 stop=[] seed=0
              device=auto dtype=auto attn_implementation=auto
              chat_template=FILE  a template that the model must have been trained with: another is an error

Answers come word by word. /reset forgets the conversation, /exit or Ctrl-D ends, Ctrl-C stops an answer. Where the
input is no terminal, each line is a turn, and only the answers go to the standard output."""
COMMANDS = "/reset forgets the conversation, /exit or Ctrl-D ends, Ctrl-C stops an answer."
MAX_NEW_TOKENS = 512


class ChatOptions(GenerationConfig):
    """The keys of the command."""

    max_new_tokens: int = Field(default=MAX_NEW_TOKENS, ge=1)
    device: Literal["auto", "cpu", "cuda"] = "auto"
    dtype: Literal["auto", "float32", "bfloat16", "float16"] = "auto"
    attn_implementation: Literal["auto", "eager", "sdpa", "flash_attention_2", "flex_attention"] = "auto"
    chat_template: str | None = None


@dataclass(frozen=True)
class ChatCommand:
    """What a command line says."""

    model: str
    options: ChatOptions
    system: str | None


def main(argv: Sequence[str], *, stdin: TextIO | None = None, stdout: TextIO | None = None) -> int:
    """Runs the command and returns its exit code, as `main.py` does.

    Args:
        stdin: turns; None: the process's.
        stdout: answers; None: the process's.
    """
    stdin, stdout = stdin or sys.stdin, stdout or sys.stdout
    if "--help" in argv or "-h" in argv or not argv:
        print(USAGE, file=stdout)
        return 0 if argv else 2
    try:
        session = _open(parse(argv))
        return _talk(session, stdin=stdin, stdout=stdout)
    except SupertrainerError as error:
        print(redact(str(error)), file=sys.stderr)
        return error.exit_code
    except KeyboardInterrupt:
        print(file=stdout)
        return INTERRUPTED


def parse(argv: Sequence[str]) -> ChatCommand:
    """What a command line says.

    Raises:
        ConfigError: an unknown flag or key with the nearest name, a wrong value, no model or two.
    """
    words, system = list(argv), None
    if "--system" in words:
        place = words.index("--system")
        if place + 1 == len(words):
            raise ConfigError("--system is followed by nothing.", fix="--system 'Answer in one sentence.'")
        system = words[place + 1]
        del words[place : place + 2]
    flags = [word for word in words if word.startswith("-")]
    if flags:
        raise ConfigError(f"unknown flag {flags[0]}.", fix=did_you_mean(flags[0], ["--system", "--help"]))
    models = [word for word in words if "=" not in word]
    if len(models) != 1:
        given = f"{len(models)} models are given: {' '.join(models)}." if models else "no model is given."
        raise ConfigError(given, fix="chat.py runs/NAME.")
    return ChatCommand(models[0], _options([word for word in words if "=" in word]), system)


def _options(words: Sequence[str]) -> ChatOptions:
    known = ChatOptions.model_fields
    problems = [
        Problem(f"{word}: unknown key.", fix=did_you_mean(word.partition("=")[0], known))
        for word in words
        if word.partition("=")[0] not in known
    ]
    if problems:
        raise ConfigError(problems)
    try:
        values = OmegaConf.to_container(OmegaConf.from_dotlist(list(words)))
        return ChatOptions.model_validate_json(json.dumps(values))
    except OmegaConfBaseException as error:
        raise ConfigError(f"the values can't be read: {str(error).splitlines()[0]}.", fix="key=value.") from None
    except ValidationError as error:
        raise ConfigError(schema_problems(error, ChatOptions)) from None


def _open(command: ChatCommand) -> ChatSession:
    from supertrainer.inference.engines.hf import HfEngine
    from supertrainer.inference.llm import require_template
    from supertrainer.models.sources import find_source
    from supertrainer.operations.chat_session import ChatSession

    options = command.options
    model_kwargs = ModelKwargs(dtype=options.dtype, attn_implementation=options.attn_implementation)
    target = f"{HfEngine.__module__}.{HfEngine.__name__}"
    engine = HfEngine(
        HfEngineConfig(target=target, device=options.device, model_kwargs=model_kwargs),
        source=find_source(command.model),
    )
    if engine.trained.task != "causal_lm":
        raise ConfigError(
            f"{command.model} was trained for {engine.trained.task}.",
            why="it doesn't write text.",
            fix="name a language model.",
        )
    require_template(engine.trained, wanted=options.chat_template, otherwise="chat with a model that has one.")
    generation = GenerationConfig(**{name: getattr(options, name) for name in GenerationConfig.model_fields})
    return ChatSession(engine, generation=generation, system=command.system)


def _talk(session: ChatSession, *, stdin: TextIO, stdout: TextIO) -> int:
    interactive = stdin.isatty()
    if interactive:
        print(COMMANDS, file=stdout)
    _note_control(session.control_tokens(), what="system message")
    for text in _turns(stdin, interactive=interactive, stdout=stdout):
        match text:
            case "/exit":
                break
            case "/reset":
                session.reset()
                _note("the conversation is forgotten")
            case "/help":
                _note(COMMANDS)
            case _:
                _answer(session, text, stdout=stdout, interactive=interactive)
    if interactive:
        print(file=stdout)
    return 0


def _turns(stdin: TextIO, *, interactive: bool, stdout: TextIO) -> Iterator[str]:
    """The turns, without blank ones."""
    if interactive:
        import readline  # noqa: F401  (input() edits lines and remembers them)
    while True:
        try:
            line = input("> ") + "\n" if interactive else stdin.readline()
        except EOFError:
            return
        except KeyboardInterrupt:
            if not interactive:
                raise
            print("\n/exit or Ctrl-D ends", file=stdout)
            continue
        if not line:
            return
        if line.strip():
            yield line.strip()


def _answer(session: ChatSession, text: str, *, stdout: TextIO, interactive: bool) -> None:
    _note_control(session.control_tokens(text), what="message")
    pieces = session.answer(text)
    try:
        for number, piece in enumerate(pieces):
            if number == 0 and session.left_out:
                _note(f"the oldest {session.left_out} messages no longer fit and are left out")
            print(printable(piece), end="", file=stdout, flush=True)
        print(file=stdout, flush=True)
    except DataError as error:
        _note(str(error))
        return
    except KeyboardInterrupt:
        pieces.close()  # type: ignore[attr-defined]
        print(file=stdout, flush=True)
        if not interactive:
            raise
        _note("stopped")
        return
    if session.last.finish == "length":
        _note(f"cut off after {len(session.last.tokens):,} tokens")


def printable(text: str) -> str:
    """The text without what a terminal would obey."""
    return "".join(char if char.isprintable() or char in "\n\t" + JOINERS else "\ufffd" for char in text)


def _note_control(tokens: Sequence[str], *, what: str) -> None:
    if tokens:
        _note(f"the {what} holds special tokens written out, which are read as such: {' '.join(tokens)}")


def _note(text: str) -> None:
    print(f"({redact(text)})", file=sys.stderr, flush=True)
