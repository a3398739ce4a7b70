"""Keys that go through to a third-party class, checked against its installed source without importing it.

Reading `TrainingArguments` from source takes 0.03 s; importing it takes 10 s.
"""

from __future__ import annotations

import ast
import functools
import importlib.util
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from supertrainer.config.nearest import did_you_mean
from supertrainer.core.errors import MissingDependencyError, Problem

_SIMPLE_TYPES: dict[str, tuple[type, ...]] = {
    "bool": (bool,),
    "int": (int,),
    "float": (int, float),
    "str": (str,),
    "dict": (dict, Mapping),
    "list": (list, tuple),
    "None": (type(None),),
}


@dataclass(frozen=True)
class Passthrough:
    """Annotated metadata of a `*_kwargs` field: which class its keys go to.

    Attributes:
        package: top-level package, such as `transformers`.
        file: path of the defining file inside it, such as `training_args.py`.
        class_name: the class whose parameters the keys must be.
        refused: keys that exist there but are set elsewhere here, each with what to set instead.
        not_identity: keys that don't change what a run computes.
    """

    package: str
    file: str
    class_name: str
    refused: Mapping[str, str] = field(default_factory=dict)
    not_identity: frozenset[str] = frozenset()

    def problems(self, values: Mapping[str, Any], *, path: str) -> Iterator[Problem]:
        """Every unknown, refused or wrongly typed key of `values`, with dotted paths below `path`."""
        known = parameters(self.package, self.file, self.class_name)
        for key, value in values.items():
            where = f"{path}.{key}"
            if key in self.refused:
                yield Problem(
                    f"{where}={value!r} is not set here.",
                    why="it is derived, or one place decides it for every task.",
                    fix=self.refused[key],
                )
            elif key not in known:
                valid = known.keys() - self.refused.keys()
                yield Problem(
                    f"{where}={value!r}: {self.class_name} has no parameter {key!r}.", fix=did_you_mean(key, valid)
                )
            elif not known[key].fits(value):
                expected = known[key]
                a_misspelt_choice = isinstance(value, str) and expected.choices
                yield Problem(
                    f"{where}={value!r} ({type(value).__name__}): {self.class_name} takes {expected.wanted()}.",
                    fix=did_you_mean(value, expected.choices) if a_misspelt_choice else f"give {expected.wanted()}.",
                )


@dataclass(frozen=True)
class Parameter:
    """What a parameter's annotation says of its values; empty sets: anything goes."""

    types: frozenset[str] = frozenset()
    choices: frozenset[str] = frozenset()

    def fits(self, value: Any) -> bool:
        """Whether a value from a config may be given. None always may: third-party defaults use it freely."""
        if value is None:
            return True
        if self.choices:
            return value in self.choices if isinstance(value, str) else isinstance(value, bool) and "bool" in self.types
        if not self.types:
            return True
        if isinstance(value, bool):
            return "bool" in self.types
        return any(isinstance(value, _SIMPLE_TYPES[name]) for name in self.types)

    def wanted(self, *, most: int = 12) -> str:
        """What may be given, in words."""
        if self.choices:
            shown = sorted(self.choices)[:most]
            return "one of " + ", ".join(shown) + (", …" if len(self.choices) > most else "")
        return "a " + " or ".join(sorted(self.types - {"None"}))


@functools.cache
def parameters(package: str, file: str, class_name: str) -> dict[str, Parameter]:
    """The parameters of a class in an installed package, read from its source.

    A hand-written `__init__` wins over dataclass fields, since that is what Python calls. Bases count, in the same
    file or imported from the same package.

    Raises:
        MissingDependencyError: the package isn't installed, or has no such file or class.
    """
    spec = importlib.util.find_spec(package)  # top level only: a dotted name would import the parent
    root = Path(next(iter(spec.submodule_search_locations or ("",)))) if spec else None
    if root is None or not (root / file).is_file():
        raise MissingDependencyError(
            f"{class_name} of {package} is not installed.", fix=f"pip install {package} (see README, Install)."
        )
    found = _Source(root, root / file).find(class_name)
    if found is None:
        raise MissingDependencyError(
            f"the installed {package} has no {class_name} in {file}.",
            fix="install a version inside the range that pyproject.toml gives.",
        )
    source, node = found
    return source.parameters(node)


@dataclass(frozen=True)
class _Source:
    """One parsed file of a package, able to follow names that it imports from the same package."""

    root: Path
    file: Path

    def find(self, name: str) -> tuple[_Source, ast.ClassDef] | None:
        """The class definition behind a name, and the file that it stands in."""
        node = _class_in(self.file, name)
        if node is not None:
            return self, node
        for statement in _imports_in(self.file):
            for alias in statement.names:
                if (alias.asname or alias.name) == name and (target := self._module_file(statement)):
                    return _Source(self.root, target).find(alias.name)
        return None

    def _module_file(self, statement: ast.ImportFrom) -> Path | None:
        parts = (statement.module or "").split(".") if statement.module else []
        if statement.level:
            base = self.file.parents[statement.level - 1]
        elif parts and parts[0] == self.root.name:
            base, parts = self.root, parts[1:]
        else:
            return None
        path = base.joinpath(*parts)
        candidates = (path.with_suffix(".py"), path / "__init__.py")
        return next((candidate for candidate in candidates if candidate.is_file()), None)

    def parameters(self, node: ast.ClassDef) -> dict[str, Parameter]:
        for statement in node.body:
            if isinstance(statement, ast.FunctionDef) and statement.name == "__init__":
                return self._signature(statement.args)
        known: dict[str, Parameter] = {}
        for base in node.bases:
            if isinstance(base, ast.Name) and (found := self.find(base.id)):
                known |= found[0].parameters(found[1])
        for statement in node.body:
            if isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name) and _is_field(statement):
                known[statement.target.id] = self._parameter(statement.annotation)
        return known

    def _signature(self, arguments: ast.arguments) -> dict[str, Parameter]:
        positional = arguments.args[1:]
        defaults = [None] * (len(positional) - len(arguments.defaults)) + list(arguments.defaults)
        pairs = [
            *zip(positional, defaults, strict=False),
            *zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True),
        ]
        return {
            argument.arg: self._parameter(argument.annotation) if argument.annotation else _type_of_default(default)
            for argument, default in pairs
        }

    def _parameter(self, annotation: ast.expr | None) -> Parameter:
        literals = _literals(annotation)
        if literals:
            return Parameter(types=frozenset(_alternatives(annotation) & _SIMPLE_TYPES.keys()), choices=literals)
        names = _alternatives(annotation)
        if names and all(name in _SIMPLE_TYPES for name in names):
            return Parameter(types=names)
        others = names - _SIMPLE_TYPES.keys()
        choices: set[str] = set()
        for name in others:
            found = self.find(name) if name.isidentifier() else None
            values = _enum_values(found[1]) if found else frozenset()
            if not values:
                return Parameter()
            choices |= values
        return Parameter(types=frozenset(names & _SIMPLE_TYPES.keys()), choices=frozenset(choices))


# Parsing whole files takes most of the time of a preview, so only what is asked for is cut out and parsed.


@functools.cache
def _text_of(file: Path) -> str:
    return file.read_text(encoding="utf-8")


@functools.cache
def _class_in(file: Path, name: str) -> ast.ClassDef | None:
    """The class definition of a name at the top of a file, up to its methods where it has no `__init__`."""
    found = re.search(rf"^class {name}\b[^:]*:[^\n]*\n(?:(?:[ \t][^\n]*)?\n)*", _text_of(file), flags=re.MULTILINE)
    if found is None:
        return None
    text = found.group()
    if "\n    def __init__(" not in text:  # fields alone say what the parameters are
        text = re.split(r"\n(?:    @[^\n]*\n)*    def ", text, maxsplit=1)[0]
    try:
        [node] = ast.parse(text).body
    except (SyntaxError, ValueError):  # a docstring with lines that aren't indented, say
        body = ast.parse(_text_of(file)).body
        node = next(item for item in body if isinstance(item, ast.ClassDef) and item.name == name)
    return node if isinstance(node, ast.ClassDef) else None


@functools.cache
def _imports_in(file: Path) -> tuple[ast.ImportFrom, ...]:
    """The `from … import …` statements at the top of a file."""
    texts = re.findall(r"^from [\w.]+ import (?:\([^)]*\)|[^\n(]+)$", _text_of(file), flags=re.MULTILINE)
    statements = (ast.parse(text).body[0] for text in texts)
    return tuple(statement for statement in statements if isinstance(statement, ast.ImportFrom))


def _is_field(statement: ast.AnnAssign) -> bool:
    if "ClassVar" in ast.unparse(statement.annotation):
        return False
    if isinstance(statement.value, ast.Call):
        keywords = {keyword.arg: keyword.value for keyword in statement.value.keywords}
        init = keywords.get("init")
        return not (isinstance(init, ast.Constant) and init.value is False)
    return True


def _alternatives(annotation: ast.expr | None) -> frozenset[str]:
    """The members of a union annotation by name, subscripts dropped: `Optional[list[str]]` is {list, None}."""
    if annotation is None:
        return frozenset()
    if isinstance(annotation, ast.Constant):
        if isinstance(annotation.value, str):
            return _alternatives(ast.parse(annotation.value, mode="eval").body)
        return frozenset({str(annotation.value)})
    if isinstance(annotation, ast.BinOp):
        return _alternatives(annotation.left) | _alternatives(annotation.right)
    if isinstance(annotation, ast.Subscript):
        name = ast.unparse(annotation.value).rsplit(".", 1)[-1]
        if name == "Optional":
            return _alternatives(annotation.slice) | {"None"}
        if name == "Union" and isinstance(annotation.slice, ast.Tuple):
            return frozenset().union(*(_alternatives(item) for item in annotation.slice.elts))
        return frozenset({name})
    return frozenset({ast.unparse(annotation).rsplit(".", 1)[-1]})


def _literals(annotation: ast.expr | None) -> frozenset[str]:
    """The strings of a `Literal[...]` annotation; empty where it has other values too."""
    if not isinstance(annotation, ast.Subscript) or not ast.unparse(annotation.value).endswith("Literal"):
        return frozenset()
    items = annotation.slice.elts if isinstance(annotation.slice, ast.Tuple) else [annotation.slice]
    values = [item.value for item in items if isinstance(item, ast.Constant)]
    return frozenset(map(str, values)) if all(isinstance(value, str) for value in values) else frozenset()


def _type_of_default(default: ast.expr | None) -> Parameter:
    """Where a parameter has no annotation, its default's type; a number takes any number."""
    if not isinstance(default, ast.Constant) or default.value is None:
        return Parameter()
    name = type(default.value).__name__
    return Parameter(types=frozenset({"float" if name == "int" else name})) if name in _SIMPLE_TYPES else Parameter()


def _enum_values(node: ast.ClassDef) -> frozenset[str]:
    if not any("Enum" in ast.unparse(base) for base in node.bases):
        return frozenset()
    return frozenset(
        statement.value.value
        for statement in node.body
        if isinstance(statement, ast.Assign)
        and isinstance(statement.value, ast.Constant)
        and isinstance(statement.value.value, str)
    )
