"""The pages of causes as the site has them: from the rule's docstring, a golden recording, and what docs/causes adds.

A page of docs/causes holds what no declaration says, at most 25 lines of text. The meaning, an example, its evidence
and the command that proves a change are put around that when the site is built.
"""

from __future__ import annotations

import ast
import inspect
import json
import re
from dataclasses import fields
from pathlib import Path
from typing import Any

from whyidle.analyse.causes import pieces, run, wait
from whyidle.analyse.causes.diagnosis import CODES, ORDER

ROOT = Path(__file__).resolve().parents[1]
CAUSES = ROOT / "docs" / "causes"
RECORDINGS = ROOT / "tests" / "golden" / "expected"
MOST_LINES = 25
"""Lines of text in a page of docs/causes, blank ones aside."""
THRESHOLDS = "<!-- thresholds: put here by scripts/cause_pages.py -->"


def page_of(code: str) -> str:
    """Return the name of a cause's page."""
    return re.sub(r"[._]", "-", code) + ".md"


def meaning(code: str) -> list[str]:
    """Return the paragraphs of the docstring of a cause's first rule; nothing for `none`."""
    said = next((rule.meaning for rule in ORDER if rule.code == code), "")
    return [" ".join(part.split()) for part in inspect.cleandoc(said).split("\n\n") if part]


def index() -> str:
    """Return all causes by what a user sees, as Markdown."""
    rows = ["| what you see | cause | what it is |", "|---|---|---|"]
    for code in (*CODES, "none"):
        text = (CAUSES / page_of(code)).read_text(encoding="utf-8")
        seen = " ".join(re.search(r"\*You see\* ((?:.|\n)+?)\.\n\n", text)[1].split())
        what = (meaning(code) or ["Nothing is worth changing."])[0]
        rows.append(f"| {seen} | [`{code}`]({page_of(code)}) | {what} |")
    return "\n".join(rows)


def example(code: str) -> tuple[str, str, list[dict[str, Any]]]:
    """Return the name of a golden recording with this verdict, its short report, and the verdict's evidence."""
    verdict = re.compile(rf"^Verdict  {re.escape(code)}( |$)", re.MULTILINE)
    texts = {file.parent.name: file.read_text(encoding="utf-8") for file in sorted(RECORDINGS.glob("*/report.txt"))}
    names = [name for name, text in texts.items() if verdict.search(text)]
    own = code.partition(".")[2].replace("_", "-")
    # The recording that is called as the cause is, else the one whose report is shortest.
    name = own if own in names else min(names, key=lambda name: len(texts[name]))
    report = json.loads((RECORDINGS / name / "report.json").read_text(encoding="utf-8"))
    found = next((each for each in report["findings"] if isinstance(each, dict) and each["cause"] == code), {})
    text = texts[name][texts[name].index("Verdict") :].rpartition("\n\n")[0]
    return name, text, found.get("evidence", [])


def cause_page(text: str) -> str:
    """Return a page of docs/causes as the site has it."""
    title, _, rest = text.partition("\n\n")
    code = title.strip("# `")
    says = meaning(code)
    told = "".join(f"{part}\n\n" for part in ([f"**{says[0]}**", *says[1:]] if says else []))
    at = min(found for mark in ("| it is not", "## ") if (found := rest.find(mark)) >= 0)
    name, report, evidence = example(code)
    table = "| evidence | here | without the cause |\n|---|---|---|\n" + "".join(_row(each) for each in evidence)
    shows = f"## How it shows\n\n```\n{report}\n```\n\n*From the recording `{name}` of the golden tests.*\n\n"
    prove = "## Prove it\n\n```\nwhyidle diff runs/before runs/after\n```\n\n"
    shows += f"{table}\n" if evidence else ""
    limits = rest.find("## Limits")
    return f"{title}\n\n{told}{rest[:at]}{shows}{rest[at:limits]}{prove}{rest[limits:]}"


def _row(evidence: dict[str, Any]) -> str:
    value = evidence["value"]
    value = "not measured" if value is None else f"{value:.3g}" if isinstance(value, float) else value
    cells = (evidence["what"], f"{value} {evidence['unit'] or ''}".strip(), evidence["expected"] or "")
    return f"| {' | '.join(str(cell).replace('|', chr(92) + '|') for cell in cells)} |\n"


def thresholds() -> str:
    """Return all thresholds of rules with their meanings, as Markdown."""
    rows = ["| threshold | value | of what |", "|---|---|---|"]
    for domain in (wait.INPUT, pieces.DEVICE, run.RUN):
        body = ast.parse(inspect.getsource(type(domain))).body[0].body
        texts = [each.value.value for each in body[1:] if isinstance(each, ast.Expr)]
        for field, text in zip(fields(domain), texts, strict=True):
            rows.append(f"| `{field.name}` | {getattr(domain, field.name):g} | {' '.join(text.split())} |")
    return "\n".join(rows)


def as_on_the_site(page: str, text: str) -> str:
    """Return a page of docs as the site has it; `page`: its path in docs."""
    if page.startswith("causes/") and page != "causes/index.md":
        return cause_page(text)
    return text.replace(THRESHOLDS, thresholds())


def navigation() -> list[Any]:
    """Return the menu of the causes: a part for each family."""
    families: dict[str, list[Any]] = {}
    for code in CODES:
        families.setdefault(code.partition(".")[0].capitalize(), []).append({code: f"causes/{page_of(code)}"})
    return ["causes/index.md", *({name: pages} for name, pages in families.items()), {"none": "causes/none.md"}]
