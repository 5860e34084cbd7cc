"""What was set on either side: the loader's settings as recorded, what a scenario's trial was given, command, code."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import count
from pathlib import PurePath
from typing import Any

from ...record.code import CODE, Code
from ..run.stall_breakdown import PARTS
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


_LOADER = ("input",)
_SETTINGS: Mapping[str, tuple[str, ...]] = {
    "scenario": PARTS,
    "program": PARTS,
    "net": PARTS,
    "case": PARTS,
    "planted": PARTS,
    "dataset": ("input", "copy", "compute"),
    "stand-in data": ("input", "copy", "compute"),
    "feed": ("input", "copy", "host"),
    "pipeline": ("input", "copy", "sync", "host"),
    "store": _LOADER,
    "augment": _LOADER,
    "num_workers": _LOADER,
    "prefetch_factor": _LOADER,
    "pin_memory": ("copy", "sync", "input"),
    "persistent_workers": ("input", "boundary"),
    "in_order": _LOADER,
    "start method of workers": _LOADER,
    "batch_size": PARTS,
    "copies from": ("copy", "sync", "host"),
    "copies ahead": ("copy", "host"),
    "ranks": PARTS,
    "interconnect": ("compute", "host"),
    THREADS: ("compute", "input"),
    "evaluate": ("boundary",),
}
"""Name → what a change of it can move."""
_ENVIRONMENT: Mapping[str, tuple[str, ...]] = {
    "device": ("compute", "copy", "sync", "host"),
    "device kind": PARTS,
    "devices": ("compute",),
    "driver": ("compute", "copy", "host"),
    "host": PARTS,
    "machine": PARTS,
    "CPUs of the machine": ("input", "host"),
    "CPUs it may use": ("input", "host"),
    "Python": ("input", "host"),
    "torch": ("compute", "copy", "sync", "host"),
    "torchvision": ("input", "compute"),
    "numpy": _LOADER,
    "CUDA": ("compute", "copy", "host"),
    "cuDNN": ("compute",),
    "whyidle": (),
    CODE: (),
}
"""The same of what is not set."""
WHAT_IS_TRAINED = ("scenario", "program", "net", "case", "dataset", "stand-in data", "feed")
"""Names of settings that make two sides different trainings."""


def settings_of(a: Side, b: Side) -> tuple[Setting, ...]:
    """Read the settings known on either side, changed or not; words of the command last."""
    # Threads of torch compute the training's steps only where the processor does.
    computes = {run.facts.device_kind for side in (a, b) for run in side.runs} == {"cpu"}
    found = _known(a, b, _SETTINGS if computes else {**_SETTINGS, THREADS: _LOADER})
    # Words of the command that differ, options with their values: what they mean is not known here.
    commands = _command(a.typical), _command(b.typical)
    if commands[0] is not None and commands[1] is not None:
        of_a, of_b = commands[0][1], commands[1][1]
        named = [name for name in dict.fromkeys((*of_a, *of_b)) if of_a.get(name) != of_b.get(name)]
        found += [Setting(WORD + name, of_a.get(name, NOT_GIVEN), of_b.get(name, NOT_GIVEN), ()) for name in named]
    return tuple(found)


def environment_of(a: Side, b: Side) -> tuple[Setting, ...]:
    """Read what is known of where either side ran, changed or not."""
    return tuple(_known(a, b, _ENVIRONMENT))


def other_trainings(settings: Sequence[Setting]) -> list[Setting]:
    """Changes that make the two sides different trainings."""
    return [each for each in settings if each.changed and each.name in WHAT_IS_TRAINED]


def _known(a: Side, b: Side, explains: Mapping[str, tuple[str, ...]]) -> list[Setting]:
    """Compare what the runs of each side that recorded it agree on."""
    of_sides = [[_recorded(run) for run in side.runs] for side in (a, b)]
    found = []
    for name, parts in explains.items():
        values: list[Value] = []
        for runs in of_sides:
            known = [run[name] for run in runs if run[name] is not None]
            values.append(VARIES if any(each != known[0] for each in known) else known[0] if known else None)
        if values != [None, None]:
            found.append(Setting(name, values[0], values[1], parts))
    return found


def _recorded(run: Measured) -> dict[str, Value]:
    """Read what was set for a run and where it ran, by name; `None`: not recorded."""
    facts, info = run.facts, run.info
    tables = (info.get(name) for name in ("trial", "dataset", "device", "host", "environment"))
    trial, dataset, device, host, versions = (each if isinstance(each, dict) else {} for each in tables)
    planted, code, threads, command = trial.get("planted"), Code.of(info), trial.get("threads"), _command(run)
    ways = {True: "spawn or forkserver", False: "fork", None: None}
    found: dict[str, Any] = {name: trial.get(name) for name in _SETTINGS} | {
        "program": command and command[0],
        "planted": " and ".join(map(str, planted)) or "nothing" if isinstance(planted, list) else None,
        "dataset": dataset.get("folder"),
        "stand-in data": dataset.get("stand_in"),
        "num_workers": trial.get("workers") if facts.set_workers is None else facts.set_workers,
        "prefetch_factor": facts.set_prefetch,
        "pin_memory": facts.pin_memory,
        "persistent_workers": facts.persistent_workers,
        "in_order": None if facts.out_of_order is None or not facts.set_workers else not facts.out_of_order,
        "start method of workers": ways[facts.starts_python],
        "batch_size": facts.batch_size,
        "copies from": {True: "page-locked", False: "pageable", None: None}[facts.pinned],
        "copies ahead": None if facts.pinned is None else facts.copied_ahead,
        "ranks": run.ranks,
        THREADS: versions.get("threads") if threads is None else threads,
        "device": device.get("title"),
        "device kind": facts.device_kind,
        "devices": device.get("count"),
        "driver": device.get("driver"),
        "host": host.get("name"),
        "machine": host.get("machine"),
        "CPUs of the machine": host.get("cpus"),
        "CPUs it may use": facts.sampled.cpu_budget,
        "Python": info.get("python"),
        "torch": info.get("torch"),
        "torchvision": versions.get("torchvision"),
        "numpy": versions.get("numpy"),
        "CUDA": versions.get("cuda"),
        "cuDNN": versions.get("cudnn"),
        "whyidle": info.get("whyidle"),
        CODE: None if code is None else str(code),
    }
    if facts.set_workers == 0:
        # Only loaders with workers have these.
        found |= dict.fromkeys(("prefetch_factor", "persistent_workers", "start method of workers"))
    return {name: value if isinstance(value, str | int | float | bool) else None for name, value in found.items()}


def _command(run: Measured) -> tuple[str | None, dict[str, str]] | None:
    """Split a command into the script or module that it runs, and the words after it: `--option value` under the
    option's name, others by their place. `None` for scenarios, which are told apart by their names."""
    words = run.info.get("command")
    if run.info.get("trial") or not isinstance(words, list):
        return None
    left = [str(word) for word in words]
    scripts = [PurePath(word).name for word in left if word.endswith(".py")]
    modules = [left[n + 1] for n, word in enumerate(left[:-1]) if word == "-m"]
    program = next(iter((*scripts, *modules)), None)
    del left[: next((n for n, word in enumerate(left) if PurePath(word).name == program), 0) + 1]
    found: dict[str, str] = {}
    places = count(1)
    while left:
        word = left.pop(0)
        name, equals, value = word.partition("=")
        if not word.startswith("-"):
            found[str(next(places))] = word
        elif equals:
            found[name] = value
        else:
            found[word] = left.pop(0) if left and not left[0].startswith("-") else "given"
    return program, found
