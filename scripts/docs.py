"""Writes what pages say of options, from the parser, of metrics, from their registry, and of causes, from their table.

`python scripts/docs.py`; `--check` only looks. Each docs/commands/VERB.md has its options between two markers; a
page without them gets them at its end. Metrics and causes stand between markers of their own.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import cause_pages

from whyidle.analyse.causes.claim import Piece
from whyidle.analyse.causes.diagnosis import ORDER
from whyidle.analyse.run.metrics import METRICS
from whyidle.commands.main import parser

DOCS = Path(__file__).resolve().parents[1] / "docs"
PAGES = DOCS / "commands"
BEGIN = "<!-- options: made by scripts/docs.py from the parser -->"
END = "<!-- /options -->"


def verbs() -> dict[str, argparse.ArgumentParser]:
    """Name of each verb, and its parser."""
    (choice,) = (action for action in parser()._actions if isinstance(action, argparse._SubParsersAction))
    return dict(choice.choices)


def options(verb: str, of: argparse.ArgumentParser) -> str:
    """Usage and options as Markdown: what stands between the markers."""
    parts = [f"```\n{_usage(verb, of)}\n```"]
    for group in of._action_groups:
        rows = [_row(of, action) for action in group._group_actions if not isinstance(action, argparse._HelpAction)]
        if rows:
            head = {"positional arguments": "argument", "options": "option"}.get(str(group.title), group.title)
            parts.append("\n".join([f"| {head} | meaning |", "|---|---|", *rows]))
    return "\n\n".join(parts)


def metrics() -> str:
    """Names, units and what is normal, as Markdown."""
    rows = ["| name | figure | unit | without a cause | for loggers | for Prometheus |", "|---|---|---|---|---|---|"]
    for m in METRICS.values():
        gauge = f"whyidle_{m.gauge}" if m.gauge else ""
        rows.append(f"| `{m.name}` | {m.label} | {m.unit} | {m.normal} | {_code(m.logged)} | {_code(gauge)} |")
    return "\n".join(rows)


def _code(name: str) -> str:
    return f"`{name}`" if name else ""


def causes() -> str:
    """The pieces of the time, and the causes that are asked of each, as Markdown."""
    rows = ["| part | piece | causes, as they are asked |", "|---|---|---|"]
    for piece in Piece:
        codes = dict.fromkeys(f"`{rule.code}`" for rule in ORDER if piece in rule.claims)
        rows.append(f"| {', '.join(piece.parts)} | {piece.meaning} | {', '.join(codes)} |")
    return "\n".join(rows)


TABLES = {
    PAGES / "report.md": ("<!-- metrics: made by scripts/docs.py -->", metrics, "<!-- /metrics -->"),
    DOCS / "causes" / "index.md": ("<!-- causes: made by scripts/docs.py -->", cause_pages.index, "<!-- /causes -->"),
    DOCS / "diagnosis.md": ("<!-- causes: made by scripts/docs.py -->", causes, "<!-- /causes -->"),
}
"""Pages, and what stands between which markers of theirs."""


def tabled(page: str, begin: str, text: str, end: str) -> str:
    """A page with `text` between markers that it has."""
    head, _, rest = page.partition(begin)
    return f"{head}{begin}\n\n{text}\n\n{end}{rest.partition(end)[2]}"


def placed(page: str, text: str) -> str:
    """A page with `text` between its markers, at its end where it has none."""
    page = page if BEGIN in page else f"{page.rstrip()}\n\n## Options\n\n{BEGIN}{END}\n"
    return tabled(page, BEGIN, text, END)


def _usage(verb: str, of: argparse.ArgumentParser) -> str:
    """As the parser was told, else composed here: argparse words it differently from one Python to the next."""
    if of.usage is not None:
        return "\n".join(line.strip() for line in (of.usage % {"prog": of.prog}).splitlines())
    return " ".join([f"whyidle {verb} [options]", *(_written(action) for action in of._get_positional_actions())])


def _row(of: argparse.ArgumentParser, action: argparse.Action) -> str:
    says = (action.help or "").replace("|", r"\|").replace("<", "&lt;")
    default = f"{action.default:g}" if isinstance(action.default, float) else action.default
    told = "default" in says or f"({default}" in says
    if action.option_strings and not told and default not in (None, False, True, argparse.SUPPRESS):
        says += f" (default: {default})"
    for exclusive in of._mutually_exclusive_groups:
        others = [other for other in exclusive._group_actions if other is not action]
        if action in exclusive._group_actions and others:
            says += f"; not with {' or '.join(f'`{other.option_strings[-1]}`' for other in others)}"
    return f"| `{_written(action).replace('|', chr(92) + '|')}` | {says} |"


def _written(action: argparse.Action) -> str:
    """An option or argument as a user writes it: `-o FILE, --output FILE`, `[RUN …]`."""
    value = ""
    if action.nargs != 0:
        metavar = action.metavar if isinstance(action.metavar, str) else None
        alternatives = "|".join(map(str, action.choices)) if action.choices is not None else None
        value = metavar or alternatives or (action.dest.upper() if action.option_strings else action.dest)
        value = value.removesuffix(" …")
    if action.option_strings:
        value = f"[{value}]" if action.nargs == "?" else value
        return f"{', '.join(action.option_strings)} {value}".rstrip()
    return {"*": f"[{value} …]", "+": f"{value} …", "?": f"[{value}]", "...": f"{value} …"}.get(
        str(action.nargs), value
    )


def _read(verb: str, of: argparse.ArgumentParser) -> str:
    page = PAGES / f"{verb}.md"
    return page.read_text(encoding="utf-8") if page.exists() else f"# whyidle {verb}\n\n{of.description}\n"


def main() -> int:
    look_only = "--check" in sys.argv[1:]
    pages = {PAGES / f"{verb}.md": placed(_read(verb, of), options(verb, of)) for verb, of in verbs().items()}
    for page, (begin, text, end) in TABLES.items():
        pages[page] = tabled(pages.get(page) or page.read_text(encoding="utf-8"), begin, text(), end)
    stale = [page for page, text in pages.items() if not page.exists() or page.read_text(encoding="utf-8") != text]
    for page in () if look_only else stale:
        page.write_text(pages[page], encoding="utf-8")
    names = ", ".join(str(page.relative_to(DOCS)) for page in stale)
    print(f"{'stale' if look_only else 'written'}: {names}" if stale else "docs is up to date")
    return int(look_only and bool(stale))


if __name__ == "__main__":
    sys.exit(main())
