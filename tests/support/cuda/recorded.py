"""Programs recorded as `whyidle run` records them, and what is true of them by the machine's own engines."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader

from whyidle.analyse.intervals import EMPTY, Intervals, clip, complement, intersect, subtract, total, union, union_of
from whyidle.analyse.run.facts import Facts, facts_of
from whyidle.analyse.run.stall_breakdown import PARTS
from whyidle.capture import active
from whyidle.capture.bootstrap import OPTIONS, RUN, arm
from whyidle.capture.loop_detector import detector as loop_detector
from whyidle.record.notices import read_notices
from whyidle.record.run import create_run, open_run, processes

from ..gpu_programs import compute
from .clock import MS
from .install import installed
from .machine import BOUNDARY, COPY, D2H, H2D, HOST, INPUT, KERNEL, SYNC, Gpu, GpuSpec, Machine

ADJACENT_NS = loop_detector.ADJACENT_NS
"""As it is in the program; tests on the real clock stretch it, for machines that are busy."""
LAUNCHES_NS = 100_000
"""Shorter stretches between two kernels belong to the computation."""


@dataclass(frozen=True)
class Recorded:
    """What became of a program that was recorded."""

    machine: Machine
    folder: Path
    error: BaseException | None
    """What ended the program, if that was an error."""

    @property
    def facts(self) -> Facts:
        found = facts_of(open_run(self.folder))
        assert found is not None, "nothing was recorded that can be judged"
        return found

    @property
    def device(self) -> str:
        """Of which device the recording is; empty where nothing was recorded."""
        found = processes(self.folder)
        return str(found[0].device["name"]) if found else ""

    @property
    def notices(self) -> list[str]:
        return read_notices(self.folder)

    def off_by(self, *gpus: Gpu) -> dict[str, float]:
        """Part → how many points of the wall time the report says more than there is. `gpus`: those that train, by
        default the first."""
        facts = self.facts
        true = truth(self.machine, gpus or (self.machine.gpu,), facts.window.begin_ns, facts.window.end_ns)
        return {part: 100 * (facts.parts.share(part) - true[part] / facts.window.wall_ns) for part in PARTS}


def truth(machine: Machine, gpus: Sequence[Gpu], begin_ns: int, end_ns: int) -> dict[str, int]:
    """Where a stretch of wall time went, from what the device's engines did and what the host said it was at, ns.

    What a device computed of the steps is compute, and so are copies between devices, and the moment between two
    kernels where the host was at nothing else. Of the rest, each moment is blamed once: time outside steps, with what
    the host queued there; a queued copy, the loader, a call that copies, one that waits, the host.
    """

    def clipped(spans: list[tuple[int, int]]) -> Intervals:
        if not spans:
            return EMPTY
        return clip(union(*np.array(spans, dtype=np.int64).T), begin_ns, end_ns)

    def host(what: str) -> Intervals:
        return clipped([(begin, end) for name, begin, end in machine.spans if name == what])

    def did(*what: str, outside: bool) -> Intervals:
        done = [work for gpu in gpus for work in gpu.works if work.what in what]
        works = [work for work in done if _within(outsides, work.queued_ns) == outside]
        return clipped([(work.begin_ns, work.end_ns) for work in works])

    outsides = [(begin, end) for what, begin, end in machine.spans if what == BOUNDARY]
    busy, copies = did(KERNEL, outside=False), did(H2D, D2H, outside=False)
    gaps = complement(busy, begin_ns, end_ns)
    for what in (BOUNDARY, INPUT, COPY, SYNC, HOST):
        gaps = subtract(gaps, host(what))
    gaps = subtract(gaps, copies)
    short = gaps[gaps[:, 1] - gaps[:, 0] < LAUNCHES_NS]
    inside = [span for span in short.tolist() if _between(busy, span)]
    computing = union(*np.concatenate((busy, np.array(inside, dtype=np.int64).reshape(-1, 2))).T)
    left = complement(computing, begin_ns, end_ns)
    found = {"compute": total(computing)}
    for part, reason in (
        ("boundary", union_of(host(BOUNDARY), did(KERNEL, H2D, D2H, outside=True))),
        ("copy", copies),
        ("input", host(INPUT)),
        ("copy", host(COPY)),
        ("sync", host(SYNC)),
        ("host", left),
    ):
        taken = intersect(left, reason)
        found[part] = found.get(part, 0) + total(taken)
        left = subtract(left, taken)
    return found


def _within(spans: list[tuple[int, int]], moment_ns: int) -> bool:
    return any(begin <= moment_ns <= end for begin, end in spans)


def _between(busy: Intervals, span: list[int]) -> bool:
    return bool((busy[:, 1] == span[0]).any() and (busy[:, 0] == span[1]).any())


def record(
    machine: Machine, patch: pytest.MonkeyPatch, folder: Path, program: Callable[[], object], error: type | None = None
) -> Recorded:
    """Run a program as `whyidle run` does, with the triggers that begin a recording in an ordinary program; `error`:
    what it ends with."""
    create_run(folder, {"device": None})
    patch.setenv(RUN, str(folder))
    patch.setenv(OPTIONS, "{}")
    patch.setattr(loop_detector, "ADJACENT_NS", ADJACENT_NS)
    patch.setattr(active, "_failed_in", 0)
    patch.setattr(active, "_current", None)
    for owner, name in ((torch.optim.Optimizer, "__init__"), (DataLoader, "__iter__"), (torch.autograd, "backward")):
        patch.setattr(owner, name, getattr(owner, name))  # the trigger, put over this, goes with the patch
    arm._trigger_on_optimizer()
    arm._trigger(DataLoader, "__iter__")
    arm._trigger(torch.autograd, "backward")
    raised: BaseException | None = None
    try:
        program()
    except Exception as ended:
        if error is None or not isinstance(ended, error):
            raise
        raised = ended
    finally:
        active.end()
    return Recorded(machine, folder, raised)


def assert_true(recorded: Recorded, *gpus: Gpu, points: float = 0.1) -> None:
    """The report is right, and no hook failed on its way there. `gpus`: as in `Recorded.off_by`."""
    assert recorded.notices == []
    assert max(map(abs, recorded.off_by(*gpus).values())) < points, recorded.off_by(*gpus)


Run = Callable[..., Recorded]


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Run:
    """Runs a program, recorded, on a machine with such devices; `step_ns`: how long a step of `net` computes."""

    def run(
        program: Callable[[Machine], object], *specs: GpuSpec, step_ns: int = 40 * MS, error: type | None = None
    ) -> Recorded:
        machine = installed(Machine(*specs), monkeypatch)
        machine.durations = compute(step_ns)
        return record(machine, monkeypatch, tmp_path / "run", lambda: program(machine), error)

    return run
