"""Writes what pages of commands say of options, from the parser, and of metrics, from their registry.

`python scripts/docs.py`; `--check` only looks. Each docs/commands/VERB.md has its options between two markers; a page
without them gets them at its end. The metrics stand in docs/commands/report.md, between markers of their own.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from whyidle.analyse.run.metrics import METRICS
from whyidle.commands.main import parser

PAGES = Path(__file__).resolve().parents[1] / "docs" / "commands"
BEGIN = "<!-- options: made by scripts/docs.py from the parser -->"
END = "<!-- /options -->"
METRICS_BEGIN = "<!-- metrics: made by scripts/docs.py from the registry -->"
METRICS_END = "<!-- /metrics -->"
PAGE_OF_METRICS = "report"


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


def page_of(verb: str, of: argparse.ArgumentParser, before: str) -> str:
    """The page of a command with all that is written here up to date."""
    page = placed(before, options(verb, of))
    if verb != PAGE_OF_METRICS:
        return page
    head, _, rest = page.partition(METRICS_BEGIN)
    return f"{head}{METRICS_BEGIN}\n\n{metrics()}\n\n{METRICS_END}{rest.partition(METRICS_END)[2]}"


def placed(page: str, text: str) -> str:
    """A page with `text` between its markers."""
    block = f"{BEGIN}\n\n{text}\n\n{END}"
    if BEGIN not in page:
        return f"{page.rstrip()}\n\n## Options\n\n{block}\n"
    before, _, rest = page.partition(BEGIN)
    _, _, after = rest.partition(END)
    return before + block + after


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
        return f"{', '.join(action.option_strings)} {value}".rstrip()
    return {"*": f"[{value} …]", "+": f"{value} …", "?": f"[{value}]", "...": f"{value} …"}.get(
        str(action.nargs), value
    )


def main() -> int:
    look_only = "--check" in sys.argv[1:]
    stale = []
    for verb, of in verbs().items():
        page = PAGES / f"{verb}.md"
        before = page.read_text(encoding="utf-8") if page.exists() else f"# whyidle {verb}\n\n{of.description}\n"
        after = page_of(verb, of, before)
        if after != before:
            stale.append(page.name)
            if not look_only:
                page.write_text(after, encoding="utf-8")
    print(f"{'stale' if look_only else 'written'}: {', '.join(stale)}" if stale else "docs/commands is up to date")
    return int(look_only and bool(stale))


if __name__ == "__main__":
    sys.exit(main())
