"""Adds the top-level `configs/` to a wheel as `supertrainer/configs`; everything else stands in pyproject.toml.

In a checkout, and so in an editable install, the configs stay where a reader looks for them. A `package-dir` mapping
would do the same for the wheel, but makes setuptools replace the plain path entry of an editable install by an import
hook, which static tools don't follow and every start of Python pays for.
"""

from __future__ import annotations

import shutil
from pathlib import Path

from setuptools import setup
from setuptools.command.build_py import build_py


class BuildWithConfigs(build_py):
    """Builds the package, then lays `configs/` beside its modules."""

    def run(self) -> None:
        super().run()
        if self.editable_mode:
            return
        target = Path(self.build_lib, "supertrainer", "configs")
        shutil.rmtree(target, ignore_errors=True)  # build/ outlives a config that was renamed
        shutil.copytree(Path(__file__).parent / "configs", target, ignore=shutil.ignore_patterns("__pycache__", ".*"))


setup(cmdclass={"build_py": BuildWithConfigs})
