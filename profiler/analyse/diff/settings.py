"""What was set on either side: the loader's settings as recorded, what a scenario's trial was given, command, code."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import count, pairwise
from pathlib import PurePath
from typing import Any

from ...record.code import CODE, Code
from ..run.analysis import Analysis
from ..run.stall_breakdown import PARTS
from ..run.window import or_none
from .sides import Side

THREADS = "threads of torch"
WORD = "word "
"""Stands before the name of an option of the command, in a setting's name."""
NOT_GIVEN = "not given"
FORK, SPAWN = "fork", "spawn or forkserver"
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
WHAT_IS_TRAINED = ("scenario", "program", "net", "case", "dataset", "stand-in data", "feed")
"""Names of settings that make two sides different trainings."""


def settings_of(a: Side, b: Side) -> tuple[Setting, ...]:
    """Read the settings known on either side, changed or not; words of the command last."""
    # Threads of torch compute the training's steps only where the processor does.
    computes = {run.facts.device_kind for side in (a, b) for run in side.runs} == {"cpu"}
    found = _known(a, b, partial(what_was_set, threads_compute=computes))
    # Words of the command that differ, options with their values: what they mean is not known here.
    commands = _command(a.info), _command(b.info)
    if commands[0] is not None and commands[1] is not None:
        of_a, of_b = commands[0][1], commands[1][1]
        named = [name for name in dict.fromkeys((*of_a, *of_b)) if of_a.get(name) != of_b.get(name)]
        found += [Setting(WORD + name, of_a.get(name, NOT_GIVEN), of_b.get(name, NOT_GIVEN), ()) for name in named]
    return tuple(found)


def environment_of(a: Side, b: Side) -> tuple[Setting, ...]:
    """Read what is known of where either side ran, changed or not."""
    return tuple(_known(a, b, where_it_ran))


def other_trainings(settings: Sequence[Setting]) -> list[Setting]:
    """Changes that make the two sides different trainings."""
    return [each for each in settings if each.changed and each.name in WHAT_IS_TRAINED]


_Rows = dict[str, tuple[Any, tuple[str, ...]]]
"""Name → (value, `None` where it was not recorded; parts of the time that a change of it can move)."""


def _known(a: Side, b: Side, read: Callable[[Analysis], _Rows]) -> list[Setting]:
    """Compare what the runs of each side that recorded it agree on."""
    of_sides = [[read(run.analysis) for run in side.runs] for side in (a, b)]
    found = []
    for name, (_, explains) in of_sides[0][0].items():
        values: list[Value] = []
        for runs in of_sides:
            known = [value for run in runs if isinstance(value := run[name][0], str | int | float | bool)]
            values.append(VARIES if any(each != known[0] for each in known) else known[0] if known else None)
        if values != [None, None]:
            found.append(Setting(name, values[0], values[1], explains))
    return found


def what_was_set(run: Analysis, threads_compute: bool = False) -> _Rows:
    """Read what was set for a run that has steps. `threads_compute`: threads of torch compute them."""
    facts, (trial, dataset, versions) = run.facts, _tables(run, "trial", "dataset", "environment")
    assert facts is not None
    of_trial, command, workers, planted = trial.get, _command(run.info), facts.set_workers, trial.get("planted")
    # Only loaders with workers have these.
    prefetch, persist, starts_python = (
        (None, None, None) if workers == 0 else (facts.set_prefetch, facts.persistent_workers, facts.starts_python)
    )
    ways = {None: None, True: SPAWN, False: FORK}
    memory = {None: None, True: "page-locked", False: "pageable"}
    threads = of_trial("threads")
    return {
        "scenario": (of_trial("scenario"), PARTS),
        "program": (command and command[0], PARTS),
        "net": (of_trial("net"), PARTS),
        "case": (of_trial("case"), PARTS),
        "planted": (" and ".join(map(str, planted)) or "nothing" if isinstance(planted, list) else None, PARTS),
        "dataset": (dataset.get("folder"), ("input", "copy", "compute")),
        "stand-in data": (dataset.get("stand_in"), ("input", "copy", "compute")),
        "feed": (of_trial("feed"), ("input", "copy", "host")),
        "pipeline": (of_trial("pipeline"), ("input", "copy", "sync", "host")),
        "store": (of_trial("store"), _LOADER),
        "augment": (of_trial("augment"), _LOADER),
        "num_workers": (of_trial("workers") if workers is None else workers, _LOADER),
        "prefetch_factor": (prefetch, _LOADER),
        "pin_memory": (facts.pin_memory, ("copy", "sync", "input")),
        "persistent_workers": (persist, ("input", "boundary")),
        "in_order": (None if facts.out_of_order is None or not workers else not facts.out_of_order, _LOADER),
        "start method of workers": (ways[starts_python], _LOADER),
        "batch_size": (facts.batch_size, PARTS),
        "copies from": (memory[facts.pinned], ("copy", "sync", "host")),
        "copies ahead": (None if facts.pinned is None else facts.copied_ahead, ("copy", "host")),
        "ranks": (max(1, len(run.ranks)), PARTS),
        "interconnect": (of_trial("interconnect"), ("compute", "host")),
        THREADS: (
            versions.get("threads") if threads is None else threads,
            ("compute", "input") if threads_compute else _LOADER,
        ),
        "evaluate": (of_trial("evaluate"), ("boundary",)),
    }


def where_it_ran(run: Analysis) -> _Rows:
    """Read where a run that has steps ran."""
    facts, info, code = run.facts, run.info, Code.of(run.info)
    assert facts is not None
    device, host, versions = _tables(run, "device", "host", "environment")
    return {
        "device": (device.get("title"), ("compute", "copy", "sync", "host")),
        "device kind": (facts.device_kind, PARTS),
        "devices": (device.get("count"), ("compute",)),
        "driver": (device.get("driver"), ("compute", "copy", "host")),
        "host": (host.get("name"), PARTS),
        "machine": (host.get("machine"), PARTS),
        "CPUs of the machine": (host.get("cpus"), ("input", "host")),
        "CPUs it may use": (or_none(facts.sampled.cpu_budget), ("input", "host")),
        "Python": (info.get("python"), ("input", "host")),
        "torch": (info.get("torch"), ("compute", "copy", "sync", "host")),
        "torchvision": (versions.get("torchvision"), ("input", "compute")),
        "numpy": (versions.get("numpy"), _LOADER),
        "CUDA": (versions.get("cuda"), ("compute", "copy", "host")),
        "cuDNN": (versions.get("cudnn"), ("compute",)),
        "whyidle": (info.get("whyidle"), ()),
        CODE: (None if code is None else str(code), ()),
    }


def _tables(run: Analysis, *names: str) -> Iterator[dict[str, Any]]:
    """Yield tables of run.json; empty ones where it has none of that name."""
    return (found if isinstance(found := run.info.get(name), dict) else {} for name in names)


def _command(info: Mapping[str, Any]) -> tuple[str, dict[str, str]] | None:
    """Split a command into the script or module that it runs, and the words after it: `--option value` under the
    option's name, others by their place. `None` for scenarios, which are told apart by their names."""
    words = info.get("command")
    if info.get("trial") or not isinstance(words, list) or not words:
        return None
    left = [str(word) for word in words]
    names = [PurePath(word).name for word in left]
    scripts = [name for name in names if name.endswith(".py")]
    modules = [after for flag, after in pairwise(names) if flag == "-m"]
    program = (*scripts, *modules, *names)[0]
    del left[: names.index(program) + 1]
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
