"""Which looks show what a cause claims: whose stacks, during which of the time."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import chain

import numpy as np

from ...record.reader import Records
from ...record.schema import NOT_MEASURED, EventKind, PauseKind, StepFlag, ThreadState
from ..causes.run import grows_most
from ..intervals import EMPTY, Intervals, clip, union
from ..run.facts import Facts
from ..run.window import lasting, under_way
from .looks import Looks, ProcessLooks
from .places import Where, outside_models, places
from .stage_shares import Stages, making_stages


@dataclass(frozen=True)
class Evidenced:
    """What a cause's lines are found from."""

    facts: Facts
    looks: ProcessLooks
    events: Records
    pauses: Records


@dataclass(frozen=True)
class Selected:
    """Looks that show a cause, and what they are of, in words."""

    looks: Looks
    time: str
    before: Looks | None = None
    """Looks whose lines are taken off: what grew is what is left."""
    often: float = 1.0
    """How many looks each of these counts for."""
    calls_models: bool = False
    """Where a model is called here, the call is the line, and none of the model's own."""

    def lines(self) -> tuple[Where, ...]:
        """The lines in which most of it was spent."""
        before = () if self.before is None else self.before.stacks()
        earlier = ((stack, -round(self.often * count)) for stack, count in before)
        stacks = chain(self.looks.stacks(), earlier)
        return places(((outside_models(s), n) for s, n in stacks) if self.calls_models else stacks, self.time)


Select = Callable[[Evidenced], Selected]

WHOLE = np.array([[0, np.iinfo(np.int64).max]])
MAKING = "the time in which workers prepare batches"
FETCHING = "the time in which the training waits for data"
MAKING_TIMES = MAKING, FETCHING
"""In which samples and batches are made."""


def _fetching(of: Evidenced) -> Selected:
    return Selected(of.looks.training.during(of.facts.parts.loading), FETCHING)


def _supply(of: Evidenced) -> Selected:
    """What preparing batches consists of: in workers, else in the fetches of the training itself."""
    if of.facts.made_in_training or len(of.looks.workers) == 0:
        return _fetching(of)
    window = of.facts.window
    return Selected(of.looks.making.between(window.begin_ns, window.end_ns), MAKING)


def making_stages_of(of: Evidenced) -> Stages | None:
    """What preparing batches consists of, by stages; `None` where too few looks saw it."""
    making = _supply(of)
    time = MAKING if making.time == MAKING else "the time in which the training prepares batches"
    return making_stages(making.looks, time, [each.name for each in of.facts.loader.transforms])


def _sampling(of: Evidenced) -> Selected:
    return Selected(of.looks.training.during(of.facts.parts.sampling), "the time of the dataset sampler")


def _staging(of: Evidenced) -> Selected:
    staging = of.facts.staging
    intervals = of.facts.parts.hosting if staging is None else staging.when
    return Selected(of.looks.training.during(intervals), "the time between a batch's arrival and the model's call")


def _starting(of: Evidenced) -> Selected:
    steps = of.facts.window.steps
    first = steps[(steps["flags"] & StepFlag.FIRST_OF_EPOCH) != 0]
    fetches = union(first["fetch_begin_ns"], first["fetch_end_ns"])
    return Selected(of.looks.training.during(fetches), "the time in which the training starts its loader")


def _handing(of: Evidenced) -> Selected:
    window = of.facts.window
    sending = of.looks.sending.between(window.begin_ns, window.end_ns).in_state(ThreadState.RUNS)
    taking = of.looks.training.during(of.facts.parts.loading).in_state(ThreadState.RUNS)
    records = np.concatenate((sending.records, taking.records))
    return Selected(Looks(records, sending.table), "the time in which batches are packed and unpacked")


def _threads(of: Evidenced) -> Selected:
    window = of.facts.window
    threads = of.looks.threads.between(window.begin_ns, window.end_ns).in_state(ThreadState.RUNS)
    return Selected(threads, "the time in which other Python threads run")


def _hosting(of: Evidenced) -> Selected:
    hosting = of.looks.training.during(of.facts.parts.hosting)
    return Selected(hosting, "the training loop's own time", calls_models=True)


def _outside(of: Evidenced) -> Selected:
    outside = of.looks.training.during(of.facts.parts.outside)
    return Selected(outside, "the time outside the steps", calls_models=True)


def _collecting(of: Evidenced) -> Selected:
    collections = under_way(lasting(of.events, EventKind.GARBAGE))
    return Selected(of.looks.training.during(_counted(of, collections)), "the time in garbage collections")


def _compiling(of: Evidenced) -> Selected:
    compiles = under_way(lasting(of.events, EventKind.COMPILE))
    return Selected(of.looks.training.during(_counted(of, compiles)), "the time in torch's compiler")


def _syncing(of: Evidenced) -> Selected:
    return Selected(_calls(of, PauseKind.SYNC), "the time in calls that wait for the device")


def _copying(of: Evidenced) -> Selected:
    steps = of.facts.window.steps
    known = steps[(steps["copy_begin_ns"] != NOT_MEASURED) & (steps["copy_end_ns"] != NOT_MEASURED)]
    first = of.looks.training.during(union(known["copy_begin_ns"], known["copy_end_ns"]))
    further = _calls(of, PauseKind.COPY)
    records = np.sort(np.concatenate((first.records, further.records)), order="t_ns")
    return Selected(Looks(records, first.table), "the time in calls that copy")


def _starting_up(of: Evidenced) -> Selected:
    """The stages before the first step that a program could do without, imports left out."""
    startup = of.facts.startup
    stages = [] if startup is None else [startup.stretches[stage] for stage in startup.own_ns if startup.own_ns[stage]]
    together = union(*np.concatenate((EMPTY, *stages)).T)
    return Selected(of.looks.training.during(together), "the time before the first step, imports left out")


def _growing(of: Evidenced) -> Selected:
    """The part that grows, in the later half of the window; what stood there in the earlier half is taken off."""
    part, parts, window = grows_most(of.facts), of.facts.parts, of.facts.window
    middle = (window.begin_ns + window.end_ns) // 2
    if part == "input":
        looks = _supply(of).looks
    else:
        by_part = {"host": parts.hosting, "compute": parts.computing, "boundary": parts.outside, "sync": parts.syncing}
        looks = of.looks.training.during(by_part.get(part or "", clip(WHOLE, window.begin_ns, window.end_ns)))
    time = "that part of the steps in the second half of the run"
    # The training was not looked at equally often in both halves.
    later, earlier = (
        len(of.looks.training.between(*half)) for half in ((middle, window.end_ns), (window.begin_ns, middle))
    )
    often = later / earlier if earlier else 1.0
    return Selected(looks.between(middle, window.end_ns), time, looks.between(window.begin_ns, middle), often=often)


def _launching(of: Evidenced) -> Selected:
    steps = of.facts.window.steps
    known = steps[(steps["forward_begin_ns"] != NOT_MEASURED) & (steps["optimizer_end_ns"] != NOT_MEASURED)]
    launches = union(known["forward_begin_ns"], known["optimizer_end_ns"])
    return Selected(of.looks.training.during(launches), "the time in which the training launches kernels")


def _calls(of: Evidenced, what: int) -> Looks:
    calls = of.pauses[of.pauses["what"] == what]
    return of.looks.training.during(_counted(of, union(calls["begin_ns"], calls["end_ns"])))


def _counted(of: Evidenced, intervals: Intervals) -> Intervals:
    return clip(intervals, of.facts.window.begin_ns, of.facts.window.end_ns)


SHOWN_BY: dict[str, Select] = {
    "input.worker_restart": _starting,
    "input.handoff": _handing,
    "input.overkill": _handing,
    "input.main_process": _staging,
    "input.sampler": _sampling,
    "copy.pageable": _copying,
    "copy.serial": _copying,
    "copy.link": _copying,
    "host.sync": _syncing,
    "host.launch": _launching,
    "host.gc": _collecting,
    "host.gil": _threads,
    "host.step_gap": _hosting,
    "host.boundary": _outside,
    "device.shape_churn": _compiling,
    "run.startup": _starting_up,
    "run.slowing": _growing,
}
"""By the code of the cause. Every other cause of `input` is shown by how batches are made, one of `device` or `rank`
by no line."""


def selected(cause: str, of: Evidenced) -> Selected | None:
    """The looks that show a cause; `None` where no line is to blame."""
    select = SHOWN_BY.get(cause) or (_supply if cause.startswith("input.") else None)
    return None if select is None else select(of)
