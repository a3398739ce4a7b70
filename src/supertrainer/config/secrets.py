"""Secrets: refused in a config, hidden in a message, read from the environment when used."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from typing import Any

from supertrainer.core.errors import ConfigError, Problem

_SECRET_KEY = re.compile(
    r"(?:^|_)(?:api_?key|access_?key|secret|password|passwd|passphrase|private_?key|auth_?token|hub_token|access_token|bearer)$|^token$",
    re.I,
)
_SECRET_VALUE = re.compile(
    r"hf_[A-Za-z0-9]{16,}|sk-[A-Za-z0-9_-]{20,}|gh[pousr]_[A-Za-z0-9]{30,}|github_pat_\w{20,}|AKIA[0-9A-Z]{16}"
    r"|xox[abprs]-[\w-]{10,}|glpat-[\w-]{16,}|AIza[\w-]{30,}|eyJ[\w-]{10,}\.[\w-]{10,}\.[\w-]+"
    r"|-----BEGIN [A-Z ]*PRIVATE KEY-----"
)
_URL_PASSWORD = re.compile(r"(?<=://)[^/\s:@]+:[^/\s@]+(?=@)")
_SECRET_ENVIRONMENT = re.compile(r"(?:TOKEN|SECRET|PASSWORD|PASSWD|API_?KEY|ACCESS_?KEY|CREDENTIAL)S?$", re.I)
_ENVIRONMENT_USE = re.compile(r"\$\{oc\.env:\s*([A-Za-z_][A-Za-z0-9_]*)")
SECRET_REFERENCE = re.compile(r"\$\{secret:([A-Za-z_][A-Za-z0-9_]*)\}")
# A literal given to a key whose name says that it is a secret, as a command line or a message shows it.
_SECRET_ASSIGNMENT = re.compile(
    r"(?i)(\b[\w.]*(?:api_?key|access_?key|password|passwd|secret|hub_token|auth_?token)\w*=['\"]?)(?!['\"]?\$\{)[^\s,'\"]+"
)
_SHORTEST_SECRET = 8


def secret_problems(tree: Mapping[str, Any], *, environment: Mapping[str, str]) -> Iterator[Problem]:
    """Every place of a plain tree (interpolations unresolved) that holds a secret; the messages don't show it."""
    known = {
        text: name
        for name, text in environment.items()
        if _SECRET_ENVIRONMENT.search(name) and len(text) >= _SHORTEST_SECRET
    }
    for path, key, value in _leaves(tree, ""):
        if not isinstance(value, str) or not value or SECRET_REFERENCE.fullmatch(value):
            continue
        used = _ENVIRONMENT_USE.search(value)
        named = next((name for text, name in known.items() if text in value), None)
        if used and (_SECRET_ENVIRONMENT.search(used.group(1)) or used.group(1) in known.values()):
            named = used.group(1)
        if named or _SECRET_KEY.search(key) or _SECRET_VALUE.search(value) or _URL_PASSWORD.search(value):
            variable = named or _variable_name(key)
            yield Problem(
                f"{path}: holds a secret (not shown).",
                why="configs are copied into snapshots, logs, scripts and model cards.",
                fix=f"export {variable} in the shell and write {path}='${{secret:{variable}}}', or leave the key out.",
            )


def redact(text: str, *, environment: Mapping[str, str] | None = None) -> str:
    """The text with everything that looks like a secret, or is one in the environment, replaced by `***`."""
    for name, value in (os.environ if environment is None else environment).items():
        if _SECRET_ENVIRONMENT.search(name) and len(value) >= _SHORTEST_SECRET:
            text = text.replace(value, "***")
    text = _SECRET_VALUE.sub("***", text)
    text = _URL_PASSWORD.sub("***", text)
    return _SECRET_ASSIGNMENT.sub(r"\1***", text)


def reveal(value: str) -> str:
    """The secret behind `${secret:NAME}`; any other text unchanged.

    Raises:
        ConfigError: the environment variable isn't set.
    """
    match = SECRET_REFERENCE.fullmatch(value)
    if match is None:
        return value
    if match.group(1) not in os.environ:
        raise ConfigError(
            f"{value}: the environment variable {match.group(1)} is not set.", fix=f"export {match.group(1)}=…."
        )
    return os.environ[match.group(1)]


def _variable_name(key: str) -> str:
    return {"hub_token": "HF_TOKEN", "token": "HF_TOKEN"}.get(key.lower(), re.sub(r"\W", "_", key).upper())


def _leaves(node: Any, path: str) -> Iterator[tuple[str, str, Any]]:
    if isinstance(node, Mapping):
        for key, value in node.items():
            below = f"{path}.{key}" if path else str(key)
            if isinstance(value, Mapping | list | tuple):
                yield from _leaves(value, below)
            else:
                yield below, str(key), value
    elif isinstance(node, list | tuple):
        for index, value in enumerate(node):
            if isinstance(value, Mapping | list | tuple):
                yield from _leaves(value, f"{path}[{index}]")
            else:
                yield f"{path}[{index}]", path.rpartition(".")[2], value
