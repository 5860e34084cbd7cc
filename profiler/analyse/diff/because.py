"""Why one side is faster: claimed only where something that was changed can move the part that moved."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ..run.stall_breakdown import TOTAL
from .code import changed_code, code_to_look_at
from .moved import MovedFigure
from .settings import VARIES, WORD, Setting
from .times import Times

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
    """What to say of the difference."""
    part = moved_part(times)
    if not times.significant:
        return Because(NONE, None, (), ())
    if part is None:
        return Because(UNEXPLAINED, None, (), ("no part of the time moved by more than its noise",))
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


CONSEQUENCES = ("gaps of the device", "95 of 100 gaps are shorter than", "utilisation", "whyidle's own hooks")
"""Labels of figures that move because the time does, and are no reasons."""


def _said(value: Any) -> str:
    return "n/a" if value is None else f"{value:.3g}"


_ELSE = {
    "compute": ("clocks and other processes of the device",),
    "input": ("a cold page cache: run each side twice", "other programs on the CPUs"),
    "copy": ("the link, and other devices on it", "what is copied, and when, in the training loop"),
    "sync": ("calls that wait for the device (`.item()`, `.cpu()`, printing) in the training loop",),
    "host": ("other programs on the CPUs", "garbage collection"),
    "boundary": ("how often the training validates and saves", "the loader of the validation"),
}
