"""Shows which learning rate is best at each width, under μP and the standard parametrization. See --help."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path[:] = [str(Path(__file__).resolve().parents[1] / "src"), *sys.path[1:]]  # this checkout, installed or not

if __name__ == "__main__":
    from supertrainer.operations.lr_transfer_command import main

    sys.exit(main(sys.argv[1:]))
