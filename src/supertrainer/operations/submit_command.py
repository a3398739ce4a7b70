"""`scripts/submit.py`: submit a run to SLURM, see how runs stand, cancel them. No torch before the check."""

from __future__ import annotations

import argparse
import difflib
import json
import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NoReturn, TextIO

from supertrainer.config.command import Command, parse_command
from supertrainer.config.for_job import validate_for_job
from supertrainer.config.front_door import compose_command
from supertrainer.config.groups import read_groups
from supertrainer.config.secrets import redact
from supertrainer.config.spine import Config
from supertrainer.core.errors import INTERRUPTED, ConfigError, SupertrainerError
from supertrainer.core.run_directory import RunDirectory
from supertrainer.launch.jobs import cancel
from supertrainer.launch.script import render_script
from supertrainer.launch.slurm import controller_answers
from supertrainer.launch.status import as_rows, expand, run_statuses, table
from supertrainer.launch.sweep_directory import is_sweep, write_results
from supertrainer.operations.before_submit import check_configs, needs_fetching
from supertrainer.operations.opening import locate
from supertrainer.operations.paths import relative
from supertrainer.operations.submission import planned_job, prepare, queue
from supertrainer.operations.submittable import require_controller, require_submittable

_FLAGS = ("--dry-run", "--yes", "--no-check")
USAGE = """usage: submit.py (+experiment=NAME | CONFIG | runs/NAME) [KEY=VALUE …]
                 [--dry-run] [--yes] [--json] [--no-check]
       submit.py status RUN… [--json] [--watch]
       submit.py cancel RUN… [--json]

  CONFIG      a .yaml, .json or .toml file; cluster=OPTION and cluster.slurm.KEY=VALUE say where and with what
  RUN         a run directory, or a sweep's (sweeps/NAME)
  --dry-run   check and show the script; nothing is written or sent
  --yes       don't ask; without a terminal nothing is asked anyway
  --no-check  send without reading data and model first (the config and the cluster's limits are always checked)
  --watch     look again until every run has ended

exit codes: 0 done · 1 SLURM failed · 2 the command, its config or the cluster's limits refuse it · 130 interrupted"""


def main(argv: Sequence[str]) -> int:
    """Runs one command and returns its exit code, as `main.py` does."""
    as_json = "--json" in argv
    words = [word for word in argv if word != "--json"]
    try:
        if not words or set(words) & {"--help", "-h"}:
            print(USAGE)
            return 0 if words else 2
        if words[0] in ("status", "cancel"):
            command = _status if words[0] == "status" else _cancel
            return command(words[1:], as_json=as_json)
        return _submit(words, as_json=as_json)
    except SupertrainerError as error:
        if as_json:
            problems = [{"what": p.what, "why": p.why, "fix": p.fix} for p in error.problems]
            print(redact(json.dumps({"errors": problems}, indent=2)))
        else:
            print(redact(str(error)), file=sys.stderr)
        return error.exit_code
    except KeyboardInterrupt:
        return INTERRUPTED


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise ConfigError(f"command line: {message}.", fix="see --help.")


def _submit(words: Sequence[str], *, as_json: bool) -> int:
    parser = _Parser(add_help=False, allow_abbrev=False)
    for flag in _FLAGS:
        parser.add_argument(flag, action="store_true")
    options, rest = parser.parse_known_args(words)
    _require_no_misspelt_command(words[0])
    command = parse_command(rest, bare_path=True, further_flags=_FLAGS)
    config = _config(command)
    told: TextIO = sys.stderr if as_json else sys.stdout
    if not options.dry_run:
        require_controller()
    elif not controller_answers():
        print("SLURM doesn't answer here: the cluster's limits are not compared.", file=told)
    require_submittable([config], environment=os.environ)
    commits = [{}] if options.no_check else check_configs([config], stream=told)
    offline = not options.no_check or not needs_fetching([config])
    run = locate(config, source=command.source)
    if not as_json:
        print(f"\n{redact(render_script(planned_job(config, run, offline=offline)))}", flush=True)
    if options.dry_run:
        return _tell(as_json, "nothing was written or sent", run=run, state="dry run", job_ids=())
    if sys.stdin.isatty() and sys.stdout.isatty() and not options.yes and not as_json and not _agreed():
        return _tell(as_json, "nothing was written or sent", run=run, state="not sent", job_ids=())
    [submission] = prepare([config], sources=[command.source], commits=commits, offline=offline)
    submission = queue(submission)
    there = relative(submission.run.path)
    follow = f"follow it: python scripts/submit.py status {there}; stop it: python scripts/submit.py cancel {there}"
    ids = ", ".join(submission.job_ids)
    text = {
        "queued": f"{there} is queued as job {ids}; {follow}",
        "already queued": f"{there} is in SLURM already as job {ids}; {follow}",
        "finished": f"{there} has finished: {submission.run.report_md}",
    }[submission.state]
    return _tell(as_json, text, run=submission.run, state=submission.state, job_ids=submission.job_ids)


def _config(command: Command) -> Config:
    if command.multirun:
        raise ConfigError(
            "submit.py sends one run.", fix="main.py --multirun hydra/launcher=submitit_slurm KEY=A,B sends several."
        )
    if command.show is not None:
        raise ConfigError("submit.py has no --cfg.", fix="main.py … --cfg job previews a config; --dry-run a script.")
    composed = compose_command(command, environment=os.environ, groups=read_groups(command.config_dirs))
    return validate_for_job(composed, environment=os.environ)


def _require_no_misspelt_command(word: str) -> None:
    close = difflib.get_close_matches(word, ("status", "cancel"), n=1)
    if close and not Path(word).exists():
        raise ConfigError(f"{word}: there is no such command, file or run directory.", fix=f"did you mean {close[0]}?")


def _agreed() -> bool:
    try:
        return input("Submit it? [y/N] ").strip().lower() in ("y", "yes")
    except EOFError:
        return False


def _tell(as_json: bool, text: str, *, run: RunDirectory, state: str, job_ids: Sequence[str]) -> int:
    facts: dict[str, Any] = {"run": run.name, "directory": str(run.path.resolve()), "state": state}
    facts |= {"job_ids": list(job_ids), "script": str(run.slurm_sh.resolve())}
    print(json.dumps(facts, indent=2) if as_json else text, flush=True)
    return 0


def _status(words: Sequence[str], *, as_json: bool) -> int:
    parser = _Parser(add_help=False, allow_abbrev=False)
    parser.add_argument("--watch", action="store_true")
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("runs", nargs="+", type=Path)
    options = parser.parse_args(words)
    runs = expand(options.runs)
    shown = ""
    while True:
        statuses = run_statuses(runs)
        for sweep in filter(is_sweep, options.runs):
            write_results(sweep)
        text = json.dumps(as_rows(statuses), indent=2) if as_json else table(statuses)
        if text != shown:
            print(text, flush=True)
            shown = text
        if not options.watch or not any(status.is_live for status in statuses):
            return 0
        time.sleep(options.seconds)


def _cancel(words: Sequence[str], *, as_json: bool) -> int:
    parser = _Parser(add_help=False, allow_abbrev=False)
    parser.add_argument("runs", nargs="+", type=Path)
    runs = expand(parser.parse_args(words).runs)
    ids = {status.run: status.job_ids for status in run_statuses(runs)}
    ends = cancel(job for jobs in ids.values() for job in jobs)
    rows = [{"run": run, "jobs": {job: ends[job] for job in jobs}} for run, jobs in ids.items()]
    if as_json:
        print(json.dumps(rows, indent=2))
        return 0
    for run, jobs in ids.items():
        print(f"{run}: " + ("; ".join(f"job {job} {ends[job]}" for job in jobs) or "was never submitted"))
    return 0
