"""report.html: one file for people to look at, made of sections. No torch, no matplotlib, no network.

`findings` gathers what a run directory holds, with secrets and home directories taken out. Each section is a pure
function of it that returns a `Section`, or None where there is nothing to tell; `document.SECTIONS` lists them in the
order of the page. `charts` and `matrix` draw from plain numbers, `markup` escapes. What it may import: `benchmark`'s
results, summary and display, `config.secrets`, `metrics.scores` and `schema`, `core`.
"""
