"""What may be imported on a light path stays light."""

from __future__ import annotations

import subprocess
import sys

LIGHT = """
import importlib, pkgutil, sys
import supertrainer.core, supertrainer.checkpoint
for package in (supertrainer.core, supertrainer.checkpoint):
    for module in pkgutil.iter_modules(package.__path__, package.__name__ + "."):
        importlib.import_module(module.name)
print(*sorted(name for name in sys.modules if "." not in name))
"""


def test_core_and_checkpoint_import_only_the_standard_library() -> None:
    bare = "import sys; print(*sorted(name for name in sys.modules if '.' not in name))"
    before, after = (
        set(subprocess.check_output([sys.executable, "-c", program], text=True).split()) for program in (bare, LIGHT)
    )
    assert after - before - set(sys.stdlib_module_names) == {"supertrainer"}
