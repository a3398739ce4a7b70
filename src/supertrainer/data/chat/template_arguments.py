"""Arguments of a chat template and the date that it writes, kept in the template: whatever reads it asks the same.

They are written at its head as defaults, `{%- set enable_thinking = … if it isn't given %}`, and `strftime_now` as a
macro that knows one date. The template itself follows byte for byte.
"""

from __future__ import annotations

import datetime
import json
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from supertrainer.config.nearest import did_you_mean
from supertrainer.config.strict import thaw
from supertrainer.core.errors import ConfigError, Problem, raise_all
from supertrainer.data.chat.question_prefix import prefix_length

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

    from supertrainer.data.chat_schema import ConversationDatasetConfig

DATE = datetime.date(2024, 7, 26)
"""What a template writes that would write today's date; Llama's own where it can't know the day."""

_MARK = "{#- template arguments: "
# Its line end is eaten by trim_blocks, so that the template goes on as at its own beginning.
_END = "{#- the template without them #}\n"
_HEAD = re.compile(re.escape(_MARK) + r"([^#]*) -#\}.*?" + re.escape(_END), re.DOTALL)
_OURS = ("messages", "tools", "documents", "add_generation_prompt", "continue_final_message")
SPECIAL_TOKENS = tuple(f"{name}_token" for name in ("bos", "eos", "unk", "sep", "pad", "cls", "mask"))
_CLOCK, _DATE_NAME = "strftime_now", "date_string"
_LLAMA_DATE = "%d %b %Y"  # how a date_string is written
_ASIDE = "\ue0f3"
_MONTHS = (
    *("January", "February", "March", "April", "May", "June"),
    *("July", "August", "September", "October", "November", "December"),
)
_DAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")


@dataclass(frozen=True)
class TemplateArguments:
    """What a template is rendered with, beside messages and tools.

    Attributes:
        values: `dataset.template_kwargs`, by name; what a template has of it and isn't named stays.
        date: `dataset.template_date`; None: the one that the template has, else `DATE` where it writes today's.
    """

    values: Mapping[str, Any] = field(default_factory=dict)
    date: datetime.date | None = None

    @classmethod
    def of(cls, config: ConversationDatasetConfig) -> TemplateArguments:
        """Those of a dataset's config."""
        date = config.template_date
        return cls(thaw(config.template_kwargs), None if date is None else datetime.date.fromisoformat(date))


def set_template_arguments(tokenizer: PreTrainedTokenizerBase, arguments: TemplateArguments) -> None:
    """Writes arguments and date into the template that a tokenizer has. The same ones again change nothing.

    Raises:
        ConfigError: the template never reads one of them, or writes no date.
    """
    own: Any = tokenizer.chat_template
    texts: dict[str, str] = own if isinstance(own, dict) else {"": own}
    bare = {name: _divided(text)[2] for name, text in texts.items()}
    reads = frozenset[str]().union(*(read_names(text) for text in bare.values()))
    raise_all(ConfigError, unread(arguments, reads, known=tokenizer.special_tokens_map))
    changed = {name: _with_head(text, arguments) for name, text in texts.items()}
    tokenizer.chat_template = changed if isinstance(own, dict) else changed[""]


def arguments_of(template: str) -> TemplateArguments:
    """The arguments and the date that are written into a template."""
    noted = _divided(template)[1]
    date = noted.pop(_CLOCK, None)
    return TemplateArguments(noted, None if date is None else datetime.date.fromisoformat(date))


def read_names(template: str) -> frozenset[str]:
    """The names that a template reads and doesn't make itself, `strftime_now` among them; none of a faulty one."""
    import jinja2
    from jinja2.ext import Extension, loopcontrols
    from jinja2.meta import find_undeclared_variables
    from jinja2.nodes import Scope

    class Answers(Extension):
        """{% generation %} … {% endgeneration %}"""

        def parse(self, parser: Any) -> Any:
            line = next(parser.stream).lineno
            body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
            return Scope(body, lineno=line)

    Answers.tags = {"generation"}
    environment = jinja2.Environment(extensions=[Answers, loopcontrols])
    environment.globals["raise_exception"] = None
    try:
        return frozenset(find_undeclared_variables(environment.parse(template)))
    except jinja2.TemplateSyntaxError:
        return frozenset()  # rendering tells it


def unread(
    arguments: TemplateArguments, reads: Collection[str], *, known: Iterable[str] = SPECIAL_TOKENS
) -> list[Problem]:
    """What is wrong with arguments.

    Args:
        reads: the names that the template reads.
        known: names of special tokens, which the tokenizer tells.
    """
    problems = []
    known = {*_OURS, *known}
    free = sorted({*reads} - known - {_CLOCK, _DATE_NAME})
    for name in arguments.values:
        what = f"dataset.template_kwargs.{name}: "
        if name in known:
            problems.append(Problem(f"{what}is what a row or the tokenizer says.", fix="leave it out."))
        elif name in (_CLOCK, _DATE_NAME):
            problems.append(Problem(f"{what}is a date.", fix="dataset.template_date=2024-07-26, such as."))
        elif name not in reads:
            names = did_you_mean(name, free) if free else "leave it out: the template reads no argument."
            problems.append(
                Problem(f"{what}the chat template never reads it.", why="it would change nothing.", fix=names)
            )
    if arguments.date is not None and not {_CLOCK, _DATE_NAME} & {*reads}:
        problems.append(
            Problem(
                f"dataset.template_date={arguments.date}: the chat template writes no date.",
                why="it would change nothing.",
                fix="dataset.template_date=null.",
            )
        )
    return problems


def _divided(template: str) -> tuple[str, dict[str, Any], str]:
    """What goes before every question, the noted arguments, and the template itself."""
    before = prefix_length(template)
    found = _HEAD.match(template, before)
    noted = {} if found is None else json.loads(found[1])
    return template[:before], noted, template[before if found is None else found.end() :]


def _with_head(template: str, arguments: TemplateArguments) -> str:
    prefix, noted, bare = _divided(template)
    reads = read_names(bare)
    was = noted.pop(_CLOCK, None)
    values = {name: value for name, value in {**noted, **arguments.values}.items() if name in reads}
    date = arguments.date or (None if was is None else datetime.date.fromisoformat(was))
    date = date or (DATE if _CLOCK in reads else None)
    date = date if {_CLOCK, _DATE_NAME} & reads else None
    if not values and date is None:
        return prefix + bare
    lines = [f"{{%- set {name} = {name} if {name} is defined else {_literal(values[name])} %}}" for name in values]
    if date is not None and _CLOCK in reads:
        lines.append(_clock(date))
    elif date is not None:
        written = _literal(_strftime(date, _LLAMA_DATE))
        lines.append(f"{{%- set {_DATE_NAME} = {_DATE_NAME} if {_DATE_NAME} is defined else {written} %}}")
    told = {**values, **({} if date is None else {_CLOCK: date.isoformat()})}
    note = json.dumps(told).replace("#", "\\u0023")
    return "".join([prefix, _MARK, note, " -#}\n", *(f"{line}\n" for line in lines), _END, bare])


def _directives(date: datetime.date) -> dict[str, str]:
    """What stands for each directive, in English wherever it is read, at the beginning of the day."""
    day, month = _DAYS[date.weekday()], _MONTHS[date.month - 1]
    made = {"%A": day, "%a": day[:3], "%B": month, "%b": month[:3], "%h": month[:3], "%p": "AM", "%I": "12"}
    made |= {
        "%-d": str(date.day),
        "%-m": str(date.month),
        "%e": f"{date.day:2}",
        "%-j": date.strftime("%j").lstrip("0"),
    }
    made |= {"%Y": f"{date.year:04}", "%F": date.isoformat(), "%T": "00:00:00", "%R": "00:00", "%f": "000000"}
    made |= {"%D": date.strftime("%m/%d/%y"), "%x": date.strftime("%m/%d/%y"), "%X": "00:00:00", "%z": "", "%Z": ""}
    made |= {"%c": f"{day[:3]} {month[:3]} {date.day:2} 00:00:00 {date.year:04}"}
    numbers = ("%d", "%m", "%y", "%j", "%u", "%w", "%U", "%W", "%V", "%G", "%H", "%M", "%S")
    return made | {name: date.strftime(name) for name in numbers}


def _strftime(date: datetime.date, text: str) -> str:
    for name, written in _directives(date).items():
        text = text.replace(name, written)
    return text


def _clock(date: datetime.date) -> str:
    """A macro in place of what asks the machine's clock. %% is set aside while the others are replaced."""
    steps = [("%%", _ASIDE), *_directives(date).items(), (_ASIDE, "%")]
    chain = "".join(f" | replace({_literal(name)}, {_literal(written)})" for name, written in steps)
    return f"{{%- macro {_CLOCK}(format) %}}{{{{ format{chain} }}}}{{% endmacro %}}"


def _literal(value: Any) -> str:
    """A JSON value as Jinja reads it."""
    if value is None or isinstance(value, bool):
        return {None: "none", True: "true", False: "false"}[value]
    if isinstance(value, str):
        return '"' + "".join(_escaped(letter) for letter in value) + '"'
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{_literal(name)}: {_literal(item)}" for name, item in value.items()) + "}"
    if isinstance(value, Sequence):
        return "[" + ", ".join(map(_literal, value)) + "]"
    return repr(value)


def _escaped(letter: str) -> str:
    """Nothing that would end the text, or the template's own code."""
    plain = " " <= letter <= "~" and letter not in '"\\{}#'
    return letter if plain else f"\\U{ord(letter):08x}"
