"""Marks of a run, as its jobs, attempts and processes leave them, and SLURM's answers about its jobs."""

import json

from supertrainer.launch.status import run_statuses

UNKNOWN = "slurm_load_jobs error: Invalid job id specified\n"
EXPLAINED = "RuntimeError: CUDA error: an illegal memory access was encountered"


def at(second):
    return f"2026-11-30T15:{second // 60:02}:{second % 60:02}+00:00"


def submit(job_id, second=0, **more):
    return {"event": "submit", "time": at(second), "job_id": job_id, "limit_seconds": 3600} | more


def start(job_id, second, restart=0):
    return {"event": "start", "time": at(second).replace("+00:00", "Z"), "job_id": job_id, "restart": restart}


def end(job_id, second, code, requeued=False):
    return {"event": "end", "time": at(second), "job_id": job_id, "restart": 0, "exit_code": code, "requeued": requeued}


def attempt(number, second, outcome=None, *, job_id="12", step=None, reason=""):
    rows = [
        {
            "event": "start", "attempt": number, "time": at(second), "command": ["main.py"], "host": "n1", "pid": 7,
            "job_id": job_id, "processes": 2, "resumed_step": None,
        },
        {"event": "plan", "attempt": number, "planned_steps": 100},
    ]  # fmt: skip
    if outcome:
        ended = {"event": "end", "attempt": number, "time": at(second + 30), "outcome": outcome}
        rows.append(ended | {"step": step, "reason": reason})
    return rows


def write(run, *, jobs=(), attempts=(), metrics=(), log=None, report=None):
    for path, rows in ((run.jobs_jsonl, jobs), (run.attempts_jsonl, attempts), (run.metrics_jsonl, metrics)):
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    if log is not None:
        (run.logs / "slurm-12.out").write_text(log)
    if report is not None:
        run.report_json.write_text(json.dumps(report))


def slurm_says(programs, *rows):
    """Rows of `ID|STATE|REASON|NODES|USED|LIMIT|STATUS|RESTARTS`, as squeue gives them."""
    programs.add("squeue", stdout="".join(f"{row.split('|')[0]}|{row}|\n" for row in rows))
    slurm_is_up(programs)


def slurm_is_up(programs):
    programs.add("squeue", stderr=UNKNOWN, code=1)
    programs.add("scontrol", stdout="Slurmctld(primary) at vm is UP\n", when="ping")
    programs.add("scontrol", stderr=UNKNOWN, code=1)
    programs.add("sacct", stderr="Slurm accounting storage is disabled\n", code=1)


def status(run):
    [found] = run_statuses([run])
    return found


def state(run):
    found = status(run)
    return found.state, found.reason
