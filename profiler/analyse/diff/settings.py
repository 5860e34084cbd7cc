"""What was set on either side: the loader's settings as recorded, what a scenario's trial was given, command, code."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePath
from typing import Any

from ...record.code import CODE, Code
from ..run.facts import Facts
from ..run.stall_breakdown import PARTS
from ..run.window import or_none
from .sides import Measured, Side

THREADS = "threads of torch"
WORD = "word "
"""Stands before the name of an option of the command, in a setting's name."""
NOT_GIVEN = "not given"
VARIES = "varies"
"""Instead of a value, where the runs of one side do not agree."""

Value = str | int | float | bool | None


@dataclass(frozen=True)
class Setting:
    """Something that was set, or stood, on both sides. `None`: not recorded."""

    name: str
    a: Value
    b: Value
    explains: tuple[str, ...]
    """Parts of the time that a change of it can move; none where nobody knows what a change does."""

    @property
    def changed(self) -> bool:
        """Whether both sides recorded it, and not alike."""
        return self.a is not None and self.b is not None and self.a != self.b

    @property
    def unseen(self) -> bool:
        """Whether the code may differ though both sides ran the same revision: with changes that nobody knows. That
        neither was changed, or one of them alone, says how the two compare."""
        (a, _, of_a), (b, _, of_b) = (str(value).partition(" ") for value in (self.a, self.b))
        same = self.name == CODE and None not in (self.a, self.b) and a == b != VARIES
        return same and ("" not in (of_a, of_b) or "(changes unknown)" in (of_a, of_b))

    @property
    def worth_a_line(self) -> bool:
        """Whether it changed, is recorded on one side only, or is not known to be the same."""
        return self.a != self.b or self.unseen


Read = str | Callable[[Measured], Value] | None
"""How a value is read: from run.json by its path, or by a function; `None`: of a scenario's trial, by its name."""


def settings_of(a: Side, b: Side) -> tuple[Setting, ...]:
    """Read the settings known on either side, changed or not; words of the command last."""
    # Threads of torch compute the training's steps only where the processor does.
    computes = {run.facts.device_kind for side in (a, b) for run in side.runs} == {"cpu"}
    found = _read(a, b, _SETTINGS)
    found = [Setting(THREADS, x.a, x.b, BY_LOADER) if x.name == THREADS and not computes else x for x in found]
    # Words of the command that differ, options with their values: what they mean is not known here.
    of_a, of_b = _words(a.typical), _words(b.typical)
    if of_a is not None and of_b is not None:
        named = [name for name in dict.fromkeys((*of_a, *of_b)) if of_a.get(name) != of_b.get(name)]
        found += [Setting(WORD + name, of_a.get(name, NOT_GIVEN), of_b.get(name, NOT_GIVEN), ()) for name in named]
    return tuple(found)


def environment_of(a: Side, b: Side) -> tuple[Setting, ...]:
    """Read what is known of where either side ran, changed or not."""
    return tuple(_read(a, b, _ENVIRONMENT))


def other_trainings(settings: Sequence[Setting]) -> list[Setting]:
    """Changes that make the two sides different trainings."""
    return [each for each in settings if each.changed and each.name in WHAT_IS_TRAINED]


def _read(a: Side, b: Side, rows: Sequence[tuple[str, Read, tuple[str, ...]]]) -> list[Setting]:
    found = []
    for name, read, explains in rows:
        of_a, of_b = (_value(side, read or f"trial.{name}") for side in (a, b))
        if of_a is not None or of_b is not None:
            found.append(Setting(name, of_a, of_b, explains))
    return found


def _value(side: Side, read: str | Callable[[Measured], Value]) -> Value:
    """What the runs of a side that recorded it agree on."""
    values = [_in(run.info, read) if isinstance(read, str) else read(run) for run in side.runs]
    known = [value for value in values if value is not None]
    return None if not known else known[0] if all(value == known[0] for value in known) else VARIES


def _in(info: Mapping[str, Any], path: str) -> Value:
    """A value of run.json; `None` where it holds none there."""
    value: Any = info
    for name in path.split("."):
        value = value.get(name) if isinstance(value, Mapping) else None
    return value if isinstance(value, str | int | float | bool) else None


def _with_workers(read: Callable[[Facts], Value]) -> Read:
    """A setting that only loaders with workers have."""
    return lambda run: read(run.facts) if run.facts.set_workers != 0 else None


def _of(value: bool | None, true: Value, false: Value) -> Value:
    return None if value is None else true if value else false


def _code(run: Measured) -> Value:
    code = Code.of(run.info)
    return None if code is None else str(code)


def _planted(run: Measured) -> Value:
    planted = (run.info.get("trial") or {}).get("planted")
    return " and ".join(map(str, planted)) or "nothing" if isinstance(planted, list) else None


def _first(*values: Value) -> Value:
    """The first that is known."""
    return next((value for value in values if value is not None), None)


def _command(run: Measured) -> list[str] | None:
    """The words of a command; `None` for scenarios, which are told apart by their names."""
    words = run.info.get("command")
    return None if run.info.get("trial") or not isinstance(words, list) else [str(word) for word in words]


def _program(run: Measured) -> str | None:
    """The script or module that a command runs."""
    words = _command(run) or []
    scripts = [PurePath(word).name for word in words if word.endswith(".py")]
    modules = [words[n + 1] for n, word in enumerate(words[:-1]) if word == "-m"]
    return next(iter((*scripts, *modules)), None)


def _words(run: Measured) -> dict[str, str] | None:
    """The words after the program: `--option value` under the option's name, others by their place."""
    words = _command(run)
    if words is None:
        return None
    program = _program(run)
    left = words[next((n for n, word in enumerate(words) if PurePath(word).name == program), 0) + 1 :]
    found: dict[str, str] = {}
    place = 0
    while left:
        word = left.pop(0)
        name, equals, value = word.partition("=")
        if not word.startswith("-"):
            place += 1
            found[str(place)] = word
        elif equals:
            found[name] = value
        else:
            found[word] = left.pop(0) if left and not left[0].startswith("-") else "given"
    return found


EVERYTHING = PARTS
BY_LOADER = ("input",)

_SETTINGS: tuple[tuple[str, Read, tuple[str, ...]], ...] = (
    ("scenario", None, EVERYTHING),
    ("program", _program, EVERYTHING),
    ("net", None, EVERYTHING),
    ("case", None, EVERYTHING),
    ("planted", _planted, EVERYTHING),
    ("dataset", "dataset.folder", ("input", "copy", "compute")),
    ("stand-in data", "dataset.stand_in", ("input", "copy", "compute")),
    ("feed", None, ("input", "copy", "host")),
    ("pipeline", None, ("input", "copy", "sync", "host")),
    ("store", None, BY_LOADER),
    ("augment", None, BY_LOADER),
    ("num_workers", lambda run: _first(run.facts.set_workers, _in(run.info, "trial.workers")), BY_LOADER),
    ("prefetch_factor", _with_workers(lambda facts: facts.set_prefetch), BY_LOADER),
    ("pin_memory", lambda run: run.facts.pin_memory, ("copy", "sync", "input")),
    ("persistent_workers", _with_workers(lambda facts: facts.persistent_workers), ("input", "boundary")),
    ("in_order", lambda run: _of(run.facts.out_of_order, False, True) if run.facts.set_workers else None, BY_LOADER),
    (
        "start method of workers",
        _with_workers(lambda facts: _of(facts.starts_python, "spawn or forkserver", "fork")),
        BY_LOADER,
    ),
    ("batch_size", lambda run: run.facts.batch_size, EVERYTHING),
    ("copies from", lambda run: _of(run.facts.pinned, "page-locked", "pageable"), ("copy", "sync", "host")),
    ("copies ahead", lambda run: None if run.facts.pinned is None else run.facts.copied_ahead, ("copy", "host")),
    ("ranks", lambda run: run.ranks, EVERYTHING),
    ("interconnect", None, ("compute", "host")),
    (
        THREADS,
        lambda run: _first(_in(run.info, "trial.threads"), _in(run.info, "environment.threads")),
        ("compute", "input"),
    ),
    ("evaluate", None, ("boundary",)),
)
"""(name, how it is read, what it can move)"""

WHAT_IS_TRAINED = ("scenario", "program", "net", "case", "dataset", "stand-in data", "feed")
"""Names of settings that make two sides different trainings."""

_ENVIRONMENT: tuple[tuple[str, Read, tuple[str, ...]], ...] = (
    ("device", "device.title", ("compute", "copy", "sync", "host")),
    ("device kind", lambda run: run.facts.device_kind, EVERYTHING),
    ("devices", "device.count", ("compute",)),
    ("driver", "device.driver", ("compute", "copy", "host")),
    ("host", "host.name", EVERYTHING),
    ("machine", "host.machine", EVERYTHING),
    ("CPUs of the machine", "host.cpus", ("input", "host")),
    ("CPUs it may use", lambda run: or_none(run.facts.sampled.cpu_budget), ("input", "host")),
    ("Python", "python", ("input", "host")),
    ("torch", "torch", ("compute", "copy", "sync", "host")),
    ("torchvision", "environment.torchvision", ("input", "compute")),
    ("numpy", "environment.numpy", BY_LOADER),
    ("CUDA", "environment.cuda", ("compute", "copy", "host")),
    ("cuDNN", "environment.cudnn", ("compute",)),
    ("whyidle", "whyidle", ()),
    (CODE, _code, ()),
)
