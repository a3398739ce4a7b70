"""argparse, with errors as ours are: what is wrong, and the nearest option."""

from __future__ import annotations

import argparse
from typing import Any, NoReturn

from supertrainer.config.nearest import did_you_mean
from supertrainer.core.errors import ConfigError


class OptionParser(argparse.ArgumentParser):
    """A parser that takes no abbreviations, keeps the lines of its texts, and raises ConfigError."""

    def __init__(self, *, formatter_class: Any = argparse.RawDescriptionHelpFormatter, **options: Any) -> None:
        super().__init__(formatter_class=formatter_class, allow_abbrev=False, **options)

    def error(self, message: str) -> NoReturn:
        """Ends the parsing.

        Raises:
            ConfigError: always.
        """
        unknown = message.removeprefix("unrecognized arguments: ").split()
        names = [name for name in self._option_string_actions if name.startswith("--")]
        fix = did_you_mean(unknown[0].split("=")[0], names) if message.startswith("unrecog") else "--help lists all."
        raise ConfigError(f"{message}.", fix=fix)
