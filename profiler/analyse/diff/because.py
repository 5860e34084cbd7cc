"""Why one side is faster: claimed only where something that was changed can move the part that moved.

What loader, device and host showed on both sides: figures beside a difference, without a claim.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..run.facts import Facts
from ..run.metrics import METRICS
from ..run.stall_breakdown import TOTAL
from ..statistics import median_of_known
from .code import changed_code, code_to_look_at
from .settings import VARIES, WORD, Setting
from .sides import Side
from .times import Times

LEAST_MOVED = 0.15
"""Share of the larger of two sides' values by which a figure has to differ to have moved."""


@dataclass(frozen=True)
class MovedFigure:
    """A figure of both sides, the median over the runs of each. `None`: not measured."""

    name: str
    unit: str
    a: float | None
    b: float | None
    part: str
    """Part of the time that it belongs to."""
    moved: bool


def figures_of(a: Side, b: Side) -> tuple[MovedFigure, ...]:
    """The figures that were measured on either side."""
    found = []
    for name, unit, part, least, read in _FIGURES:
        of_a, of_b = _median(a, read), _median(b, read)
        if of_a is not None or of_b is not None:
            found.append(MovedFigure(name, unit, of_a, of_b, part, _has_moved(of_a, of_b, least)))
    return tuple(found)


def _has_moved(a: float | None, b: float | None, least: float) -> bool:
    if a is None or b is None:
        return False
    return abs(b - a) >= max(least, LEAST_MOVED * max(abs(a), abs(b)))


def _median(side: Side, read: Callable[[Facts], float | None]) -> float | None:
    return median_of_known(read(run.facts) for run in side.runs)


def _clock(facts: Facts) -> float | None:
    return None if facts.device_state is None else facts.device_state.clock_mhz


def _link(facts: Facts) -> float | None:
    link = None if facts.device_state is None else facts.device_state.link
    return None if link is None else 100 * link.share


def _gap(facts: Facts) -> float | None:
    if not facts.told_apart:
        return None
    return float(np.percentile(facts.parts.gaps_ns, 95)) / 1e6 if len(facts.parts.gaps_ns) else 0.0


def _gaps(facts: Facts) -> float | None:
    return 100.0 * len(facts.parts.gaps_ns) / facts.window.count if facts.told_apart else None


def _hidden(facts: Facts) -> float | None:
    return facts.parts.hidden_wait_ns / 1e6 / facts.window.count if facts.input_known else None


def _cold(facts: Facts) -> float | None:
    nbytes = facts.loader.storage_bytes_per_sample
    return None if nbytes is None else nbytes / 1e3


_Row = tuple[str, str, str, float, Callable[[Facts], float | None]]
"""(name, unit, part, the least change worth a line, how it is read)"""


def _of(metric: str, part: str, least: float, name: str | None = None, unit: str | None = None) -> _Row:
    """A registered metric; `name`, `unit`: said otherwise where figures of two sides stand beside each other."""
    found = METRICS[metric]
    return name or found.label, found.unit if unit is None else unit, part, least, found.of


_FIGURES: tuple[_Row, ...] = (
    _of("worker_busy_pct", "input", 5.0),
    _of("queue_ready_mean", "input", 0.25),
    _of("make_ms_per_sample", "input", 0.0, "Preparing a sample"),
    _of("read_pct", "input", 3.0, "Share of reading"),
    _of("prep_pct", "input", 3.0, "Share of decoding and transforming"),
    _of("collate_pct", "input", 3.0, "Share of collating"),
    _of("run_queue_pct", "input", 3.0, "Workers waiting for a CPU"),
    ("Read from storage", "kB/sample", "input", 0.5, _cold),
    ("Hidden wait for data", "ms/step", "input", 0.1, _hidden),
    ("Device gaps", "per 100 steps", "input", 5.0, _gaps),
    ("Device gaps, 95th percentile", "ms", "input", 0.1, _gap),
    _of("utilisation_pct", "compute", 3.0),
    _of("sm_active_pct", "compute", 3.0),
    ("Clock while computing", "MHz", "compute", 20.0, _clock),
    ("Link, share of its full bandwidth", "%", "copy", 5.0, _link),
    _of("cpus_used", "host", 0.15, "CPUs this job uses", ""),
    _of("foreign_cpus", "host", 0.15, "CPUs other programs use", ""),
    _of("cpu_steal_pct", "host", 2.0, "CPU time taken by the hypervisor"),
    _of("throttled_s", "host", 0.05, "Stopped by a CPU quota"),
    _of("overhead_pct", "host", 0.5),
)


LEAST_OF_CHANGE = 0.3
"""Share of the change of a sample's time from which a part is what the change is about. Below a half, since a change of
one setting often moves several parts at once."""

SETTING, ENVIRONMENT, COMMAND, CODE = "setting", "environment", "command", "code"
UNEXPLAINED, NONE = "unexplained", "none"


@dataclass(frozen=True)
class Because:
    """What explains a change of the time per sample."""

    kind: str
    """`setting`: something that was set does; `environment`: where it ran may; `command`: words of the command may, and
    the code where that changed too; `code`: another revision of it may; `unexplained`: nothing recorded does; `none`:
    no change was shown."""
    part: str | None
    """The part of the time that moved most in the direction of the whole; `None` without a change."""
    by: tuple[Setting, ...]
    """What was changed and can move the part; of several, these runs do not tell which it was."""
    look_at: tuple[str, ...]
    """What to look at, where nothing recorded explains the change or several things may."""


def because_of(
    times: Times, settings: Sequence[Setting], environment: Sequence[Setting], figures: Sequence[MovedFigure]
) -> Because:
    """Return what explains the difference."""
    part = moved_part(times)
    if not times.significant:
        return Because(NONE, None, (), ())
    if part is None:
        return Because(UNEXPLAINED, None, (), ("no part of the time changed by more than its noise",))
    able, around = _able(settings, part), _able(environment, part)
    if able:
        # Another machine or torch can move it just as well.
        both = (*able, *around)
        several = ("run again with only one of them changed",) if len(both) > 1 else ()
        return Because(SETTING, part, both, several)
    if around:
        return Because(ENVIRONMENT, part, around, ("run both on the same machine, one after the other",))
    looks = (*_looks(part, figures), *code_to_look_at(part, environment))
    code = changed_code(environment)
    if words := _words(settings):
        return Because(COMMAND, part, (*words, *code), looks)
    if code:
        return Because(CODE, part, code, looks)
    return Because(UNEXPLAINED, part, (), looks)


def other_words(settings: Sequence[Setting]) -> tuple[Setting, ...]:
    """Words of the command that differ, and are not how a setting that is known was changed."""
    known = [(str(each.a), str(each.b)) for each in settings if each.changed and not _is_word(each)]
    return tuple(each for each in _words(settings) if (str(each.a), str(each.b)) not in known)


def _words(settings: Sequence[Setting]) -> tuple[Setting, ...]:
    return tuple(each for each in settings if _is_word(each) and each.told)


def _is_word(each: Setting) -> bool:
    return each.name.startswith(f"{WORD} ")


def moved_part(times: Times) -> str | None:
    """The part that moved most in the direction of the whole, if it surely did and makes up much of it."""
    whole = times.terms[TOTAL].change.value
    moved: dict[str, float] = {
        name: term.change.value / whole if whole else 0.0
        for name, term in times.terms.items()
        if name != TOTAL and term.significant
    }
    best = max(moved, key=lambda name: moved[name], default=None)
    return best if best is not None and moved[best] >= LEAST_OF_CHANGE else None


def _able(settings: Sequence[Setting], part: str) -> tuple[Setting, ...]:
    """Changed settings that can move the part, without those that merely follow from another of them."""
    able = [each for each in settings if each.changed and part in each.explains and VARIES not in (each.a, each.b)]
    names = {each.name for each in able}
    return tuple(each for each in able if not names & set(_FOLLOWS_FROM.get(each.name, ())))


_LOADERS = ("planted", "pipeline", "feed")
_FOLLOWS_FROM = {
    "case": ("planted",),
    "num_workers": _LOADERS,
    "prefetch_factor": _LOADERS,
    "pin_memory": _LOADERS,
    "persistent_workers": _LOADERS,
    "in_order": _LOADERS,
    "start method of workers": _LOADERS,
    "copies from": ("pin_memory", *_LOADERS),
    "copies ahead": _LOADERS,
    "device kind": ("device",),
    "CUDA": ("torch",),
    "cuDNN": ("torch",),
    "CPUs of the machine": ("host",),
    "CPUs it may use": ("host",),
}
"""Setting → others, any of which it merely follows from if they were changed as well."""


def _looks(part: str, figures: Sequence[MovedFigure]) -> tuple[str, ...]:
    """What to look at: figures of the part that moved, then what is not recorded."""
    moved = [
        f"{f.name}: {_said(f.a)} → {_said(f.b)} {f.unit}".rstrip()
        for f in figures
        if f.moved and f.part in (part, "host") and f.name not in CONSEQUENCES
    ]
    return (*moved, *_ELSE.get(part, ()))


CONSEQUENCES = ("Device gaps", "Device gaps, 95th percentile", "Utilisation", "Time in whyidle's hooks")
"""Labels of figures that move because the time does, and are no reasons."""


def _said(value: Any) -> str:
    return "n/a" if value is None else f"{value:.3g}"


_ELSE = {
    "compute": ("clocks and other processes of the device",),
    "input": ("a cold page cache: run each side twice", "other programs on the CPUs"),
    "copy": ("the link, and other devices on it", "what the training loop copies, and when"),
    "sync": ("calls that wait for the device (`.item()`, `.cpu()`, printing) in the training loop",),
    "host": ("other programs on the CPUs", "garbage collection"),
    "boundary": ("how often the training validates and saves", "the loader of the validation"),
}
