"""The page: its sections in their order, with style and script inside, and nothing to fetch."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Callable, Sequence

from supertrainer.benchmark.page.classes import classes, confusion, types
from supertrainer.benchmark.page.facts import about, commands, environment, files
from supertrainer.benchmark.page.findings import Findings
from supertrainer.benchmark.page.markup import Html, Section, join, name, tag, text
from supertrainer.benchmark.page.result import notes, result
from supertrainer.benchmark.page.rows import mistakes, numbers, samples
from supertrainer.benchmark.page.script import SCRIPT
from supertrainer.benchmark.page.style import STYLE
from supertrainer.benchmark.page.training import attempts, curves

SECTIONS: tuple[Callable[[Findings], Section | None], ...] = (
    *(result, notes, types, curves, classes, confusion, numbers, mistakes, samples),
    *(about, environment, attempts, commands, files),
)
"""In the order of the page. Another kind of result is one more function here; of None nothing is shown."""


def render(findings: Findings, *, sections: Sequence[Callable[[Findings], Section | None]] = SECTIONS) -> str:
    """The whole page as one HTML file."""
    made = [section for build in sections if (section := build(findings)) is not None]
    head = [
        Html('<meta charset="utf-8"/>'),
        tag("meta", {"name": "viewport", "content": "width=device-width, initial-scale=1"}),
        tag("meta", {"name": "color-scheme", "content": "light dark"}),
        tag("meta", {"name": "referrer", "content": "no-referrer"}),
        tag("meta", {"http-equiv": "Content-Security-Policy", "content": _policy()}),
        tag("title", {}, text(f"{findings.report.name} · report")),
        Html('<link rel="icon" href="data:,"/>'),
        Html(f"<style>{STYLE}</style>"),
    ]
    links = [tag("a", {"href": f"#{section.name}"}, text(section.title)) for section in made]
    body = [
        _header(findings),
        tag("nav", {}, *links),
        tag("main", {}, *(_section(section) for section in made)),
        Html(f"<script>{SCRIPT}</script>"),
    ]
    language = '<html lang="en">'
    return f"<!doctype html>\n{language}<head>{join(head)}</head>\n<body>{chr(10).join(body)}</body></html>\n"


def _header(findings: Findings) -> Html:
    report = findings.report
    chips = [report.status, report.operation, f"mode {report.mode}"]
    chips += [f"{report.steps:,} steps"] if report.steps else []
    shown = [tag("span", {"class": f"chip {'good' if chip == 'finished' else ''}"}, text(chip)) for chip in chips]
    return tag("header", {}, tag("h1", {}, name(report.name)), tag("div", {"class": "chips"}, *shown))


def _section(section: Section) -> Html:
    return tag("section", {"id": section.name}, tag("h2", {}, text(section.title)), section.body)


def _policy() -> str:
    """Nothing is fetched, and only this style and this script count, whatever a text may hold."""
    hashes = {
        kind: base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()
        for kind, content in (("style", STYLE), ("script", SCRIPT))
    }
    allowed = "; ".join(f"{kind}-src 'sha256-{digest}'" for kind, digest in hashes.items())
    return f"default-src 'none'; img-src data:; {allowed}; base-uri 'none'; form-action 'none'"
