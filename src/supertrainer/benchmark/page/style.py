"""The page's style: light, dark, narrow and printed. What a chart shows stands in its SVG, its colours stand here."""

LIGHT = """
  --paper: #ffffff; --raised: #f5f7fa; --ink: #1a202c; --soft: #596579; --line: #dde3ea; --link: #1d5fb4;
  --c0: #2563c9; --c1: #d05a0c; --c2: #2a7f4f; --faint: #9db4d3; --good: #23704a; --bad: #b42318;
  --right: 37 99 201; --wrong: 208 90 12;
"""
DARK = """
  --paper: #14181f; --raised: #1d232d; --ink: #e6eaf0; --soft: #9aa7b8; --line: #323b49; --link: #7db3ff;
  --c0: #6ea8ff; --c1: #ff9a52; --c2: #63cb94; --faint: #47628c; --good: #6fd3a0; --bad: #ff8a7d;
  --right: 80 140 240; --wrong: 240 130 60;
"""
SHADES = "\n".join(
    f".matrix .right.s{level} {{ background: rgb(var(--right) / {level / 20 * 0.85:.3f}) }}\n"
    f".matrix .wrong.s{level} {{ background: rgb(var(--wrong) / {(level / 20) ** 0.6 * 0.85:.3f}) }}"
    for level in range(1, 21)
)
STRONG = ",\n".join(f".matrix .s{level}" for level in range(13, 21))
STYLE = f"""
:root {{ color-scheme: light dark; {LIGHT} --strong: #ffffff }}
@media screen and (prefers-color-scheme: dark) {{ :root {{ {DARK} --strong: #ffffff }} }}
* {{ box-sizing: border-box }}
html {{ -webkit-text-size-adjust: 100%; scroll-behavior: smooth }}
body {{ margin: 0 auto; padding: 0 1.25rem 4rem; max-width: 68rem; background: var(--paper); color: var(--ink);
  font: 15px/1.55 system-ui, "Segoe UI", Roboto, "Noto Sans", "Helvetica Neue", Arial, sans-serif }}
header {{ padding: 2rem 0 0.75rem }}
h1 {{ margin: 0; font-size: 1.7rem; line-height: 1.25; overflow-wrap: anywhere }}
h2 {{ margin: 0 0 0.75rem; font-size: 1.25rem }}
h3 {{ margin: 0; font-size: 1rem }}
section {{ padding: 1.5rem 0; border-top: 1px solid var(--line) }}
p {{ margin: 0 0 0.75rem }}
ul {{ margin: 0 0 0.75rem; padding-inline-start: 1.25rem }}
li, dd, p {{ overflow-wrap: anywhere }}
a {{ color: var(--link) }}
.muted {{ color: var(--soft) }}
.chips {{ display: flex; flex-wrap: wrap; gap: 0.4rem; margin-top: 0.6rem }}
.chip {{ padding: 0.1rem 0.6rem; border: 1px solid var(--line); border-radius: 1rem; font-size: 0.85rem;
  color: var(--soft) }}
.chip.good {{ color: var(--good); border-color: currentColor }}
nav {{ display: flex; flex-wrap: wrap; gap: 0.2rem 1rem; padding: 0.5rem 0 1rem; font-size: 0.9rem }}
nav a {{ text-decoration: none }}
nav a:hover {{ text-decoration: underline }}
.hero {{ display: flex; flex-wrap: wrap; align-items: baseline; gap: 0 0.75rem; color: var(--soft) }}
.hero b {{ font-size: 3rem; line-height: 1.1; color: var(--ink); font-variant-numeric: tabular-nums }}
.warning {{ color: var(--bad) }}
figure {{ margin: 0 }}
.bars {{ max-width: 40rem; margin: 0 0 1rem }}
.bars figcaption {{ margin-bottom: 0.4rem }}
.bar-row {{ display: grid; grid-template-columns: 9rem 1fr 4.5rem; gap: 0.75rem; align-items: center;
  padding: 0.15rem 0 }}
.bar-row span {{ overflow-wrap: anywhere; line-height: 1.25 }}
.bar-row b {{ font-weight: 400; text-align: end; font-variant-numeric: tabular-nums }}
.bar-row .bar {{ height: 14px }}
.bar-row .filled {{ fill: var(--faint) }}
.strong .filled {{ fill: var(--c0) }}
.strong, .strong b {{ font-weight: 600 }}
.bar {{ display: block; width: 100%; height: 5px }}
.rail {{ fill: var(--line) }}
.filled {{ fill: var(--c0) }}
.charts {{ display: flex; flex-wrap: wrap; gap: 1.75rem 2rem }}
.chart {{ flex: 1 1 19rem; min-width: 0 }}
.charts > .chart:first-child {{ flex-basis: 100% }}
figcaption {{ display: flex; flex-wrap: wrap; align-items: baseline; gap: 0.1rem 1rem; margin-bottom: 0.6rem;
  font-size: 0.85rem; color: var(--soft) }}
figcaption h3 {{ color: var(--ink) }}
figcaption b {{ color: var(--ink); font-variant-numeric: tabular-nums }}
.at b {{ display: inline-block; min-width: 2ch }}
.swatch {{ width: 22px; height: 10px; margin-inline-end: 0.35rem; overflow: visible }}
.frame {{ display: grid; grid-template-columns: 3.4rem 1fr; padding: 0.4rem 0.6rem 0 0 }}
.frame svg {{ display: block; overflow: visible }}
.frame text {{ font-size: 12px; fill: var(--soft); font-variant-numeric: tabular-nums }}
.left, .plot {{ width: 100%; height: 180px }}
.below {{ grid-column: 2; width: 100%; height: 42px }}
.charts > .chart:first-child :is(.left, .plot) {{ height: 260px }}
.square :is(.left, .plot) {{ height: 320px }}
.square {{ max-width: 32rem }}
.plot {{ cursor: crosshair; touch-action: pan-y; outline-offset: 4px; border-inline-start: 1px solid var(--line) }}
.grid {{ stroke: var(--line) }}
.cursor {{ stroke: var(--soft); stroke-dasharray: 3 3 }}
.diagonal {{ stroke: var(--soft); stroke-dasharray: 5 4 }}
.curves {{ overflow: visible }}
.curve {{ fill: none; stroke-width: 2; stroke-linejoin: round; vector-effect: non-scaling-stroke }}
.curve.c0 {{ stroke: var(--c0) }}
.curve.c1 {{ stroke: var(--c1) }}
.curve.c2 {{ stroke: var(--c2) }}
.curve.faint {{ stroke: var(--faint); stroke-width: 1 }}
.curve.marked {{ stroke-width: 1.4 }}
.dot.c0 {{ fill: var(--c0) }}
.dot.c1 {{ fill: var(--c1) }}
.dot.c2 {{ fill: var(--c2) }}
.dot {{ stroke: var(--paper); stroke-width: 1.5 }}
.dot.small {{ stroke: none }}
.faint-dot {{ stroke: none; fill-opacity: 0.45 }}
.scroll {{ overflow-x: auto; margin: 0 0 0.9rem }}
table {{ border-collapse: collapse; font-size: 0.92rem }}
th, td {{ padding: 0.3rem 0.9rem 0.3rem 0; text-align: start; vertical-align: top }}
th {{ font-weight: 600; color: var(--soft) }}
tbody tr {{ border-top: 1px solid var(--line) }}
.number {{ text-align: end; font-variant-numeric: tabular-nums; white-space: nowrap }}
.class-bars table {{ width: 100% }}
.class-bars td.number {{ width: 17% }}
.class-bars td, .class-bars th {{ padding: 0.35rem 0 0.35rem 0.9rem }}
.class-bars :is(td, th):first-child {{ padding-inline-start: 0; overflow-wrap: anywhere }}
.confusion.few .matrix td {{ min-width: 5rem; padding: 0.7rem 0.6rem }}
.confusion.few i::after {{ content: " %" }}
.matrix {{ border-collapse: separate; border-spacing: 2px }}
.matrix td {{ text-align: center; vertical-align: middle; border-radius: 3px; background: var(--raised);
  font-variant-numeric: tabular-nums }}
.matrix b {{ display: block; font-weight: 600; line-height: 1.25 }}
.matrix i {{ display: block; font-style: normal; font-size: 0.85em; opacity: 0.85 }}
.matrix th {{ color: var(--ink); font-weight: 400 }}
.matrix tbody tr {{ border: 0 }}
.matrix tbody th, .corner {{ position: sticky; inset-inline-start: 0; background: var(--paper); max-width: 11rem;
  padding-inline-end: 0.5rem; overflow: hidden; text-overflow: ellipsis; white-space: nowrap;
  vertical-align: middle }}
.matrix .corner {{ color: var(--soft); font-size: 0.8rem; vertical-align: bottom; white-space: normal }}
.matrix thead th {{ vertical-align: bottom; text-align: center }}
.few thead th span {{ display: block; max-width: 8rem; overflow: hidden; text-overflow: ellipsis;
  white-space: nowrap }}
.many thead th:not(.corner) {{ padding: 0 }}
.many thead th span {{ display: inline-block; writing-mode: vertical-rl; transform: rotate(180deg); max-height: 9rem;
  overflow: hidden; text-overflow: ellipsis; white-space: nowrap; line-height: 1.4 }}
.many .matrix {{ font-size: 0.75rem; border-spacing: 1px }}
.many td {{ min-width: 1.65rem; height: 1.65rem; padding: 0 2px }}
.many b {{ font-weight: 400 }}
.many .none {{ color: var(--soft) }}
.many .none :is(b, i) {{ opacity: 0.45 }}
.many:has(input.counts:checked) td i, .many:has(input.shares:checked) td b {{ display: none }}
.switch {{ display: flex; flex-wrap: wrap; gap: 0.3rem 1rem; margin-bottom: 0.6rem; font-size: 0.9rem;
  color: var(--soft) }}
.switch input {{ margin: 0 0.35rem 0 0; accent-color: var(--c0) }}
{SHADES}
{STRONG} {{ color: var(--strong) }}
.card {{ margin: 0 0 0.7rem; padding: 0.6rem 0.9rem 0.7rem; background: var(--raised); border-radius: 6px;
  border-inline-start: 3px solid var(--line); break-inside: avoid }}
.card.right {{ border-inline-start-color: var(--good) }}
.card.wrong {{ border-inline-start-color: var(--bad) }}
.card-head {{ display: flex; flex-wrap: wrap; gap: 0 1.25rem; font-size: 0.88rem; margin-bottom: 0.25rem;
  overflow-wrap: anywhere }}
.row-text {{ white-space: pre-wrap; overflow-wrap: anywhere; unicode-bidi: isolate }}
.row-text + .row-text {{ margin-top: 0.4rem }}
.facts {{ margin: 0 0 0.75rem }}
.facts div {{ display: grid; grid-template-columns: 9rem 1fr; gap: 1rem; padding: 0.3rem 0;
  border-top: 1px solid var(--line) }}
.facts div:first-child {{ border-top: 0 }}
dt {{ color: var(--soft) }}
dd {{ margin: 0 }}
pre {{ margin: 0 0 0.9rem; padding: 0.7rem 0.9rem; background: var(--raised); border-radius: 6px; overflow: auto;
  max-height: 30rem; font: 13px/1.5 ui-monospace, "SFMono-Regular", Menlo, Consolas, "DejaVu Sans Mono", monospace;
  white-space: pre-wrap; overflow-wrap: anywhere }}
summary {{ cursor: pointer; color: var(--link); font-size: 0.9rem }}
details > :not(summary) {{ margin-top: 0.5rem }}
.files {{ columns: 12rem; list-style: none; padding: 0 }}
@media (max-width: 40rem) {{
  body {{ padding: 0 0.9rem 3rem; font-size: 15px }}
  header {{ padding-top: 1.2rem }}
  h1 {{ font-size: 1.35rem }}
  .hero b {{ font-size: 2.5rem }}
  .bar-row {{ grid-template-columns: 6.2rem 1fr 3.6rem; gap: 0.5rem; font-size: 0.9rem }}
  .facts div {{ grid-template-columns: 1fr; gap: 0 }}
  .charts > .chart:first-child :is(.left, .plot) {{ height: 210px }}
  .frame {{ grid-template-columns: 2.9rem 1fr }}
  .class-bars td, .class-bars th {{ padding-inline-start: 0.5rem }}
  .confusion.few .matrix td {{ min-width: 3.6rem; padding: 0.5rem 0.3rem }}
  .matrix tbody th, .corner {{ max-width: 6.5rem }}
  .few thead th span {{ max-width: 4.4rem }}
  th, td {{ padding-inline-end: 0.6rem }}
  .scroll:not(.class-bars *) td:first-child {{ min-width: 5.5rem }}
  .class-bars table {{ font-size: 0.8rem }}
  .class-bars td.number {{ width: 16% }}
}}
@media print {{
  @page {{ margin: 14mm }}
  * {{ -webkit-print-color-adjust: exact; print-color-adjust: exact }}
  body {{ max-width: none; padding: 0; font-size: 10pt }}
  nav, .switch, .cursor {{ display: none }}
  section {{ padding: 0.8rem 0 }}
  figure, tr, .hero {{ break-inside: avoid }}
  h2, h3 {{ break-after: avoid }}
  .scroll, pre {{ overflow: visible; max-height: none }}
  .matrix {{ break-inside: avoid }}
  .matrix tbody th, .corner {{ position: static }}
  .many .matrix {{ font-size: 5.5pt }}
  .many td {{ min-width: 0; height: auto; padding: 1px }}
  .many tbody th {{ max-width: 6rem }}
  pre {{ font-size: 8pt }}
  .left, .plot {{ height: 150px }}
}}
"""
