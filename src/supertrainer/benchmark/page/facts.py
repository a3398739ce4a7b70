"""Sections that say what was run, on what, and how to go on."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from typing import Any

from supertrainer.benchmark.page.findings import Findings
from supertrainer.benchmark.page.markup import Html, Section, code, facts, folded, join, paragraph, tag, text
from supertrainer.benchmark.summary import data_text, model_text, timing_text

PACKAGES = (
    *("supertrainer", "torch", "transformers", "peft", "accelerate", "datasets", "tokenizers", "bitsandbytes"),
    *("trl", "onnxruntime", "vllm", "numpy"),
)
"""Whose versions stand open; environment.json has all."""


def about(findings: Findings) -> Section:
    """Model, data, time, and where it lies."""
    report = findings.report
    rows = {
        "experiment": report.experiment or "-",
        "operation": f"{report.operation}, {report.status} (mode {report.mode})",
        "model": model_text(report),
        "data": data_text(report),
        "time": timing_text(report),
        "run directory": report.directory,
    }
    return Section("about", "Model and data", facts(rows))


def environment(findings: Findings) -> Section | None:
    """Versions, machine and code."""
    found = findings.environment
    if not found:
        return None
    rows = {key: shown for key, shown in _environment(found).items() if shown}
    packages = found.get("packages")
    more: list[Html] = []
    if isinstance(packages, Mapping):
        listed = "\n".join(f"{package}=={version}" for package, version in packages.items())
        more.append(folded(f"All {len(packages):,} packages", code(listed)))
    return Section("environment", "Environment", join([facts(rows), *more]))


def commands(findings: Findings) -> Section | None:
    """How it was started, how to go on, and the whole config."""
    parts: list[Html] = []
    if findings.command:
        words = " ".join(word if word.startswith("~/") else shlex.quote(word) for word in findings.command)
        parts += [paragraph(text("Started with:")), code(words)]
    for purpose, command in findings.report.commands.items():
        parts += [paragraph(text(f"To {purpose}:")), code(command)]
    if findings.config:
        parts.append(folded("The whole config", code(findings.config)))
    return Section("commands", "Commands", join(parts)) if parts else None


def files(findings: Findings) -> Section | None:
    """Links to the files beside the page."""
    if not findings.files:
        return None
    links = [tag("li", {}, tag("a", {"href": file}, text(file))) for file in findings.files]
    words = paragraph(text("In the run directory, beside this page:"))
    return Section("files", "Files", join([words, tag("ul", {"class": "files"}, *links)]))


def _environment(found: Mapping[str, Any]) -> dict[str, str]:
    torch, packages, version = _part(found, "torch"), _part(found, "packages"), _part(found, "code")
    versions = [f"{package} {packages[package]}" for package in PACKAGES if package in packages]
    cpus = f"{found.get('cpu', '-')}, {found.get('usable_cpu_count', '?')} of {found.get('cpu_count', '?')} cores"
    memory = found.get("memory_gib")
    devices = torch.get("devices")
    return {
        "started": str(found.get("time", "")),
        "python": str(found.get("python", "")),
        "packages": ", ".join(versions),
        "devices": ", ".join(map(str, devices)) or "CPU only" if isinstance(devices, list) else "",
        "CUDA or HIP": str(torch.get("cuda") or torch.get("hip") or ""),
        "machine": f"{cpus}{f', {memory} GiB memory' if memory is not None else ''}",
        "platform": str(found.get("platform", "")),
        "code": f"{version.get('commit', '')}{', with changes' if version.get('dirty') else ''}" if version else "",
        "variables": ", ".join(f"{key}={value}" for key, value in _part(found, "variables").items()),
    }


def _part(found: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    value = found.get(key)
    return value if isinstance(value, Mapping) else {}
