"""The single entry: compose, validate, one operation, an exit code.

Exit codes: 0 done, or saved for requeue; 1 failed; 2 usage, config or check; 75 saved, not requeued; 130 interrupted.
"""

from __future__ import annotations

import gc
import importlib
import sys
from pathlib import Path

if __name__ == "__main__":
    # Python put this file's folder first, where `data`, `metrics` and `models` would shadow other packages' modules.
    here = str(Path(__file__).resolve().parent)
    sys.path[:] = [str(Path(here).parent), *(entry for entry in sys.path if entry != here)]
    # Up to an operation this is a short program that only allocates: looking for garbage would be a tenth of its time.
    gc.disable()
    code = importlib.import_module("supertrainer.main").cli()
    if not gc.isenabled():
        gc.freeze()  # nor at its end
    sys.exit(code)

import os
import signal
import time
from collections.abc import Sequence
from typing import Any, NoReturn

from omegaconf import OmegaConf

from supertrainer import __version__
from supertrainer.config.command import Command, parse_command
from supertrainer.config.compose import Composed
from supertrainer.config.front_door import HELP, asks_nothing, compose_command, experiments_text
from supertrainer.config.groups import read_groups
from supertrainer.config.nearest import did_you_mean
from supertrainer.config.secrets import redact
from supertrainer.config.snapshot import as_yaml
from supertrainer.config.validate import resolve, validate
from supertrainer.core.distributed import is_main, rank
from supertrainer.core.errors import INTERRUPTED, ConfigError, SupertrainerError
from supertrainer.core.job import STOP_SIGNALS, StopRequested, ask_for_requeue, stop_on_signals
from supertrainer.core.run_directory import RunDirectory
from supertrainer.operations.paths import program

MAIN_SPEAKS_SECONDS = 15.0  # how much later than the others the main process may come to its error


def cli() -> int:
    """The console command."""
    return main(sys.argv[1:])


def main(argv: Sequence[str]) -> int:
    """Runs one command.

    Args:
        argv: the words after the program's name.

    Returns:
        The exit code.
    """
    command: Command | None = None
    try:
        stop_on_signals()
        command = parse_command(argv)
        return _run(command)
    except StopRequested as stop:
        _end_for_requeue(command, stop)
    except SupertrainerError as error:
        _tell(error)
        return error.exit_code
    except KeyboardInterrupt:
        return INTERRUPTED


def _tell(error: SupertrainerError) -> None:
    """Prints it, once for all processes of the run.

    A launcher ends all processes as soon as one has failed. So the others wait until it ends them: were they faster
    than the main one, its message would be lost. One that is still there after that had an error of its own.
    """
    text = redact(str(error))
    if not is_main():
        for number in (*STOP_SIGNALS, signal.SIGINT):
            signal.signal(number, signal.SIG_DFL)
        time.sleep(MAIN_SPEAKS_SECONDS)
        text = f"[rank {rank()}] {text}"
    print(text, file=sys.stderr)


def _end_for_requeue(command: Command | None, stop: StopRequested) -> NoReturn:
    """Ends a process of a job that a signal stopped where it had nothing to save; the job goes on later."""
    if is_main() and command is not None and command.source is not None:
        ask_for_requeue(RunDirectory(command.source), reason=stop.signal)
        print(f"{stop.signal}: stopped before there was anything new to save; the job goes on later", file=sys.stderr)
    sys.stdout.flush()
    os._exit(0)  # the other processes are ending too: nothing may wait for them


def _run(command: Command) -> int:
    if command.version:
        print(f"supertrainer {__version__}")
        return 0
    groups = read_groups(command.config_dirs)
    if command.help or asks_nothing(command, environment=os.environ):
        print(experiments_text(groups, program=program()) + (HELP if command.help else ""))
        return 0 if command.help else 2
    if command.multirun:
        from supertrainer.launch.sweep import preview_sweep, run_sweep

        if command.show is None:
            return run_sweep(command, environment=os.environ)
        print(redact(preview_sweep(command, environment=os.environ)), end="")
        return 0
    if command.show is None and command.source is not None:
        from supertrainer.operations.finished import print_if_finished

        if print_if_finished(command):
            return 0
    composed = compose_command(command, environment=os.environ, groups=groups)
    if command.show is not None:
        return _show(command, composed)
    config = validate(composed, environment=os.environ)
    gc.enable()
    # Threads that wait in a loop make a shared CPU several times slower; set before torch reads it.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    sequence = importlib.import_module("supertrainer.operations.sequence")  # from here on torch may be imported
    code: int = sequence.run(config, source=command.source)
    return code


def _show(command: Command, composed: Composed) -> int:
    """Prints the config, then raises what is wrong with it: the tree on stdout, errors on stderr."""
    tree: dict[str, Any] = resolve(composed.tree)[0]
    error: ConfigError | None = None
    try:
        tree = validate(composed, environment=os.environ).dump()
    except ConfigError as found:
        error = found
    hydra = OmegaConf.to_container(composed.hydra)
    shown: Any = {"job": tree, "hydra": {"hydra": hydra}, "all": {"hydra": hydra, **tree}}[command.show or "job"]
    for part in (command.package or "").split(".") if command.package else ():
        if not isinstance(shown, dict) or part not in shown:
            raise ConfigError(
                f"--package {command.package}: the config has no such node.", fix=did_you_mean(part, shown or ())
            )
        shown = shown[part]
    print(redact(as_yaml(shown)), end="", flush=True)
    if error is not None:
        raise error
    return 0
