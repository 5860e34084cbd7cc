"""What was set on either side: the loader's settings as recorded, what a scenario's trial was told, command, code."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import PurePath
from typing import Any

from ...record.code import CODE, Code
from ..cells.comparison import rate_of
from ..run.facts import Facts
from ..run.stall_breakdown import PARTS
from .sides import Measured, Side

EVERYTHING = PARTS
BY_LOADER = ("input",)
BY_CODE: tuple[str, ...] = ()
"""Parts that a change may move of which nobody knows what it does: none is claimed."""
THREADS = "threads of torch"
WORD = "word"
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
    """Parts of the time that a change of it can move."""
    unseen: bool = False
    """Whether it may differ though the values are alike, which do not say all: code with changes beside its
    revision."""

    @property
    def known(self) -> bool:
        """Whether both sides recorded it."""
        return self.a is not None and self.b is not None

    @property
    def changed(self) -> bool:
        """Whether both sides recorded it, and not alike."""
        return self.known and self.a != self.b

    @property
    def told(self) -> bool:
        """Whether it is worth a line: changed, or recorded on one side only, or not known to be the same."""
        return self.a != self.b or self.unseen


Read = Callable[[Measured], Value]


def settings_of(a: Side, b: Side) -> tuple[Setting, ...]:
    """Settings known on either side, changed or not; words of the command last."""
    # Threads of torch compute the training's steps only where the processor does.
    computes = {run.device_kind for side in (a, b) for run in side.runs} == {"cpu"}
    found = [
        Setting(name, _of(a, read), _of(b, read), explains if name != THREADS or computes else BY_LOADER)
        for name, read, explains in _SETTINGS
    ]
    return (*(each for each in found if each.a is not None or each.b is not None), *_words(a, b))


def environment_of(a: Side, b: Side) -> tuple[Setting, ...]:
    """What is known of where either side ran, changed or not."""
    found = [Setting(name, _of(a, read), _of(b, read), explains) for name, read, explains in _ENVIRONMENT]
    found.append(_code_of(a, b))
    return tuple(each for each in found if each.a is not None or each.b is not None)


def _code_of(a: Side, b: Side) -> Setting:
    codes = [{code for run in side.runs if (code := Code.of(run.info)) is not None} for side in (a, b)]
    revisions = {code.revision for each in codes for code in each}
    changed = [{code.changed for code in each} for each in codes]
    unseen = len(revisions) == 1 and all(len(each) == 1 for each in changed)
    # Only that neither was changed, or one of them, says how the two compare.
    unseen = unseen and sorted(changed, key=str) not in ([{False}, {False}], [{False}, {True}])
    return Setting(CODE, _of(a, _code), _of(b, _code), BY_CODE, unseen)


def _code(run: Measured) -> Value:
    code = Code.of(run.info)
    return None if code is None else str(code)


def other_trainings(settings: tuple[Setting, ...]) -> list[Setting]:
    """Changes that make the two sides different trainings."""
    return [each for each in settings if each.changed and each.name in WHAT_IS_TRAINED]


def _of(side: Side, read: Read) -> Value:
    values = [read(run) for run in side.runs]
    told = [value for value in values if value is not None]
    if not told:
        return None
    return told[0] if all(value == told[0] for value in told) else VARIES


def _fact(read: Callable[[Facts], Value]) -> Read:
    return lambda run: read(run.facts)


def _info(*path: str) -> Read:
    """A value of run.json."""

    def read(run: Measured) -> Value:
        value: Any = run.info
        for name in path:
            value = value.get(name) if isinstance(value, Mapping) else None
        return value if isinstance(value, str | int | float | bool) else None

    return read


def _trial(name: str) -> Read:
    return _info("trial", name)


def _either(one: Read, other: Read) -> Read:
    def read(run: Measured) -> Value:
        value = one(run)
        return other(run) if value is None else value

    return read


def _in_order(facts: Facts) -> Value:
    return None if facts.out_of_order is None or not facts.set_workers else not facts.out_of_order


def _of_workers(read: Callable[[Facts], Value]) -> Read:
    """A setting that only loaders with workers have."""
    return _fact(lambda facts: read(facts) if facts.set_workers != 0 else None)


def _start_method(facts: Facts) -> Value:
    return None if facts.starts_python is None else "spawn or forkserver" if facts.starts_python else "fork"


def _seen_pinned(facts: Facts) -> Value:
    return None if facts.pinned is None else "page-locked" if facts.pinned else "pageable"


def _seen_ahead(facts: Facts) -> Value:
    return None if facts.pinned is None else facts.copied_ahead


def _planted(run: Measured) -> Value:
    trial = run.info.get("trial") or {}
    planted = trial.get("planted")
    if not isinstance(planted, list):
        return None
    return " and ".join(map(str, planted)) or "nothing"


def _program(run: Measured) -> Value:
    """The script or module that a command runs; scenarios are told apart by their names."""
    words = run.info.get("command")
    if run.info.get("trial") or not isinstance(words, list):
        return None
    scripts = [PurePath(str(word)).name for word in words if str(word).endswith(".py")]
    modules = [str(words[n + 1]) for n, word in enumerate(words[:-1]) if word == "-m"]
    return next(iter((*scripts, *modules)), None)


_SETTINGS: tuple[tuple[str, Read, tuple[str, ...]], ...] = (
    ("scenario", _trial("scenario"), EVERYTHING),
    ("program", _program, EVERYTHING),
    ("net", _trial("net"), EVERYTHING),
    ("case", _trial("case"), EVERYTHING),
    ("planted", _planted, EVERYTHING),
    ("dataset", _info("dataset", "folder"), ("input", "copy", "compute")),
    ("stand-in data", _info("dataset", "stand_in"), ("input", "copy", "compute")),
    ("feed", _trial("feed"), ("input", "copy", "host")),
    ("pipeline", _trial("pipeline"), ("input", "copy", "sync", "host")),
    ("store", _trial("store"), BY_LOADER),
    ("augment", _trial("augment"), BY_LOADER),
    ("num_workers", _either(_fact(lambda f: f.set_workers), _trial("workers")), BY_LOADER),
    ("prefetch_factor", _of_workers(lambda f: f.set_prefetch), BY_LOADER),
    ("pin_memory", _fact(lambda f: f.pin_memory), ("copy", "sync", "input")),
    ("persistent_workers", _of_workers(lambda f: f.persistent_workers), ("input", "boundary")),
    ("in_order", _fact(_in_order), BY_LOADER),
    ("start method of workers", _of_workers(_start_method), BY_LOADER),
    ("batch_size", _fact(lambda f: f.batch_size), EVERYTHING),
    ("copies from", _fact(_seen_pinned), ("copy", "sync", "host")),
    ("copies ahead", _fact(_seen_ahead), ("copy", "host")),
    ("ranks", lambda run: run.ranks, EVERYTHING),
    ("interconnect", _trial("interconnect"), ("compute", "host")),
    (THREADS, _either(_trial("threads"), _info("environment", "threads")), ("compute", "input")),
    ("evaluate", _trial("evaluate"), ("boundary",)),
)
"""(name, how it is read, what it can move)"""

WHAT_IS_TRAINED = ("scenario", "program", "net", "case", "dataset", "stand-in data", "feed")
"""Names of settings that make two sides different trainings."""

_ENVIRONMENT: tuple[tuple[str, Read, tuple[str, ...]], ...] = (
    ("device", _info("device", "title"), ("compute", "copy", "sync", "host")),
    ("device kind", lambda run: run.device_kind, EVERYTHING),
    ("devices", _info("device", "count"), ("compute",)),
    ("driver", _info("device", "driver"), ("compute", "copy", "host")),
    ("host", _info("host", "name"), EVERYTHING),
    ("machine", _info("host", "machine"), EVERYTHING),
    ("CPUs of the machine", _info("host", "cpus"), ("input", "host")),
    ("CPUs it may use", _fact(lambda f: f.sampled.cpu_budget), ("input", "host")),
    ("Python", _info("python"), ("input", "host")),
    ("torch", _info("torch"), ("compute", "copy", "sync", "host")),
    ("torchvision", _info("environment", "torchvision"), ("input", "compute")),
    ("numpy", _info("environment", "numpy"), BY_LOADER),
    ("CUDA", _info("environment", "cuda"), ("compute", "copy", "host")),
    ("cuDNN", _info("environment", "cudnn"), ("compute",)),
    ("whyidle", _info("whyidle"), BY_CODE),
)


def _words(a: Side, b: Side) -> list[Setting]:
    """Words of the command that differ, options with their values: what they mean is not known here."""
    of_a, of_b = _options(a.typical), _options(b.typical)
    if of_a is None or of_b is None:
        return []
    named = [name for name in dict.fromkeys((*of_a, *of_b)) if of_a.get(name) != of_b.get(name)]
    return [Setting(f"{WORD} {name}", of_a.get(name, NOT_GIVEN), of_b.get(name, NOT_GIVEN), BY_CODE) for name in named]


def _options(run: Measured) -> dict[str, str] | None:
    """The words after the program: `--option value` under the option's name, others by their place."""
    words = run.info.get("command")
    if run.info.get("trial") or not isinstance(words, list):
        return None
    said = [str(word) for word in words]
    program = _program(run)
    begin = next((n for n, word in enumerate(said) if PurePath(word).name == program), 0)
    found: dict[str, str] = {}
    place, number = 0, begin + 1
    while number < len(said):
        word = said[number]
        name, equals, value = word.partition("=")
        if not word.startswith("-"):
            place += 1
            found[str(place)] = word
        elif equals:
            found[name] = value
        elif number + 1 < len(said) and not said[number + 1].startswith("-"):
            number += 1
            found[word] = said[number]
        else:
            found[word] = "given"
        number += 1
    return found


def rates(side: Side) -> list[float]:
    """Samples/s of each run, of all its ranks."""
    return [rate for run in side.runs if (rate := rate_of(run.analysis)) is not None and run.facts.samples_known]
