"""What the keys do: the last row, and the screen of help."""

from __future__ import annotations

from .lines import Row, flow, wrapped
from .options import Options

HELP_COLUMN = 15
"""Where explanations begin."""
_KEYS = (
    ("q, Ctrl-C", "quit; the training goes on"),
    ("h, ?", "this help, and back"),
    ("p, space", "pause the picture and go on"),
    ("Tab", "choose what the arrows move in: ranks, accelerators, workers"),
    ("up, down", "move in it: the chosen one is shown in detail"),
    ("s", "sort workers or ranks by something else"),
    ("r", "reverse their order"),
    ("a", "ASCII signs or drawn ones"),
)
_MEANING = (
    (
        "step",
        "the last seconds: the accelerator computed, or waited for data (input), for a copy to it, in calls that "
        "wait for it (sync), for the training loop (host), for what is outside steps (boundary)",
    ),
    ("queue", "finished batches that wait for the training"),
    ("busy", "share of time in which any kernel ran"),
    ("SM active", "share of its processors that had work"),
    ("workers", "queued: ready to run, and waiting for a CPU"),
    ("reads, disk", "what read calls got; what disks gave, with what is read ahead"),
    ("a blank, n/a", "not measured"),
)


def footer(width: int, options: Options) -> list[Row]:
    if not options.keys:
        return []
    entries = [("q", "quit"), ("h", "help"), ("p", "go on" if options.paused else "pause")]
    entries += [("Tab", options.focus or "lists"), ("s", "sort"), ("r", "reverse")]
    return [Row(" ").join(line) for line in flow(_entries(entries), width - 2, rows=1)]


def _entries(entries: list[tuple[str, str]]) -> list[Row]:
    return [Row(key, "bold").add(f" {what}", "dim") for key, what in entries]


def help_screen(width: int, height: int, options: Options) -> list[Row]:
    """Keys, then what the figures mean; what does not fit the height is left out."""
    rows = [Row(" whyidle live", "bold"), Row()]
    rows += [line for key, what in _KEYS for line in _explained(key, what, width)]
    rows.append(Row())
    rows += [line for what, meaning in _MEANING for line in _explained(what, meaning, width)]
    return [row.within(width, options.ascii_only) for row in rows[: max(1, height)]]


def _explained(what: str, meaning: str, width: int) -> list[Row]:
    """A name, and beside it what it means, in as many rows as that takes."""
    rows = wrapped(meaning, max(1, width - HELP_COLUMN))
    return [Row(f"  {what}" if not i else "", "bold").to(HELP_COLUMN).add(row) for i, row in enumerate(rows)]
