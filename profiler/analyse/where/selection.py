"""How lines of code show a cause: by whose stack samples, during which of the time, and what mending a line brings."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from itertools import chain

import numpy as np

from ...record.reader import Records
from ...record.schema import EventKind, PauseKind, ThreadState
from ...record.stacks import Call, CallStack
from ..intervals import EMPTY, Intervals, clip, union
from ..predict.predict import VanishedWork
from ..run.facts import Facts
from ..run.trends import growing
from ..run.window import lasting, under_way
from .looks import Looks, ProcessLooks
from .places import FETCHER, Where, is_file, is_users, outside_models, places, within
from .remedies import Remedy
from .source import left_out, returned
from .stages import Rows, Stages, making_stages


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
    taken_off: tuple[tuple[CallStack, int], ...] = ()
    """Stacks that lessen the shares of their lines, with numbers below 0: what grew is what is left."""
    calls_models: bool = False
    """Where a model is called here, the call is the line, and none of the model's own."""

    def lines(self) -> tuple[Where, ...]:
        """The lines in which most of it was spent."""
        stacks = chain(self.looks.stacks(), self.taken_off)
        return places(((outside_models(s), n) for s, n in stacks) if self.calls_models else stacks, self.time)


Select = Callable[[Evidenced], Selected]


@dataclass(frozen=True)
class Lines:
    """How lines of code show a cause, and what is gained where one of them is mended."""

    select: Select
    """The looks that show it."""
    remedies: Rows[Remedy] | None = None
    """Advice for its lines; `None`: that for making batches where these are made meanwhile, else that for the loop."""
    mended: bool = True
    """Whether cheaper lines mend it; not where what the time is spent on is not why it is lost."""
    elsewhere: bool = False
    """Whether the cause lies elsewhere, so that cheaper code is a help at best, behind all other advice."""
    worth: float = 1.0
    """Gain of mending a line over that of the finding's first advice, from which the line comes first."""
    spared: Callable[[Facts, float], VanishedWork | None] | None = None
    """From ns a step that a line takes to the work that is gone without it, for the replay; `None` from it: only
    time. `None`: what the training is like without a line is not told, but where batches are made meanwhile."""
    part: str = ""
    """The part of the wall time that the looks are of, where that is more than the finding's own, such as `host`."""
    stages: bool = False
    """Whether the stages of making batches are shown."""
    stage_advised: bool = False
    """Whether the costliest stage of making has advice of its own, where no line has."""
    first: Callable[[Selected, ProcessLooks], tuple[Where, ...]] | None = None
    """Lines that go before those of the looks."""


WORTH_A_LINE = 0.6
"""`Lines.worth` of causes that only say when the time is lost, or on what kind of work."""
WHOLE = np.array([[0, np.iinfo(np.int64).max]])
MAKING = "the time in which workers prepare batches"
FETCHING = "the time in which the training waits for data"
MAKING_TIMES = MAKING, FETCHING
"""In which samples and batches are made."""
COLLATED = 1_000_000
"""Weight of a look within the program's own collate function: what that returns is what is handed over."""


def grows_most(facts: Facts) -> str | None:
    """Return the part whose growth takes most time; `None` where none grows."""
    grown = growing(facts.trends)
    return max(grown, key=lambda name: grown[name].value) if grown else None


def time_only(_: Facts, __: float) -> None:
    """`Lines.spared` where a line's time goes with it, and no replay knows of it."""


def work_of_the_loop(_: Facts, each_ns: float) -> VanishedWork:
    """`Lines.spared` where a line is the training's own part of a step."""
    return VanishedWork(loop_ns=each_ns)


def making(of: Evidenced) -> Selected:
    """Select what preparing batches consists of: in workers, else in the fetches of the training itself."""
    if of.facts.made_in_training or len(of.looks.workers) == 0:
        return Selected(of.looks.training.during(of.facts.parts.when["input"]), FETCHING)
    window = of.facts.window
    return Selected(of.looks.making.between(window.begin_ns, window.end_ns), MAKING)


def making_stages_of(of: Evidenced) -> Stages | None:
    """Divide what preparing batches consists of by stages; `None` where too few looks saw it."""
    selected = making(of)
    time = MAKING if selected.time == MAKING else "the time in which the training prepares batches"
    return making_stages(selected.looks, time, [each.name for each in of.facts.loader.transforms])


def _during(intervals: Callable[[Evidenced], Intervals], time: str, calls_models: bool = False) -> Select:
    """Select looks at the training's thread during such a time."""
    return lambda of: Selected(of.looks.training.during(intervals(of)), time, calls_models=calls_models)


def _counted(of: Evidenced, intervals: Intervals) -> Intervals:
    return clip(intervals, of.facts.window.begin_ns, of.facts.window.end_ns)


def _events(of: Evidenced, what: int) -> Intervals:
    return _counted(of, under_way(lasting(of.events, what)))


def _calls(of: Evidenced, what: int) -> Intervals:
    calls = of.pauses[of.pauses["what"] == what]
    return _counted(of, union(calls["begin_ns"], calls["end_ns"]))


def _first_fetches(of: Evidenced) -> Intervals:
    first = of.facts.window.steps[of.facts.window.firsts]
    return union(first["fetch_begin_ns"], first["fetch_end_ns"])


def _between(of: Evidenced, begin: str, end: str) -> Intervals:
    """Return the time between two stamps of the steps that have both."""
    return union(of.facts.window.steps[begin], of.facts.window.steps[end])


def _before_the_first_step(of: Evidenced) -> Intervals:
    """Return the stages before the first step that a program could do without, imports left out."""
    startup = of.facts.startup
    stages = [] if startup is None else [startup.stretches[stage] for stage in startup.own_ns if startup.own_ns[stage]]
    return union(*np.concatenate((EMPTY, *stages)).T)


sampling = _during(lambda of: of.facts.parts.sampling, "the time of the dataset sampler")
staging = _during(
    lambda of: of.facts.parts.when["host"] if of.facts.staging is None else of.facts.staging.when,
    "the time between a batch's arrival and the model's call",
)
starting_workers = _during(_first_fetches, "the time in which the training starts its loader")
hosting = _during(lambda of: of.facts.parts.when["host"], "the training loop's own time", calls_models=True)
outside = _during(lambda of: of.facts.parts.when["boundary"], "the time outside the steps", calls_models=True)
collecting = _during(lambda of: _events(of, EventKind.GARBAGE), "the time in garbage collections")
compiling = _during(lambda of: _events(of, EventKind.COMPILE), "the time in torch's compiler")
syncing = _during(lambda of: _calls(of, PauseKind.SYNC), "the time in calls that wait for the device")
starting_up = _during(_before_the_first_step, "the time before the first step, imports left out")
launching = _during(
    lambda of: _between(of, "forward_begin_ns", "optimizer_end_ns"), "the time in which the training launches kernels"
)


def handing(of: Evidenced) -> Selected:
    """Select the packing and the unpacking of batches."""
    window = of.facts.window
    sending = of.looks.sending.between(window.begin_ns, window.end_ns).in_state(ThreadState.RUNS)
    taking = of.looks.training.during(of.facts.parts.when["input"]).in_state(ThreadState.RUNS)
    records = np.concatenate((sending.records, taking.records))
    return Selected(Looks(records, sending.table), "the time in which batches are packed and unpacked")


def threads(of: Evidenced) -> Selected:
    """Select other Python threads of the training's process while they run."""
    window = of.facts.window
    running = of.looks.threads.between(window.begin_ns, window.end_ns).in_state(ThreadState.RUNS)
    return Selected(running, "the time in which other Python threads run")


def copying(of: Evidenced) -> Selected:
    """Select the calls that copy to the device."""
    first = of.looks.training.during(_between(of, "copy_begin_ns", "copy_end_ns"))
    further = of.looks.training.during(_calls(of, PauseKind.COPY))
    records = np.sort(np.concatenate((first.records, further.records)), order="t_ns")
    return Selected(Looks(records, first.table), "the time in calls that copy")


def growing_part(of: Evidenced) -> Selected:
    """Select the part that grows, in the later half of the window; what was in the earlier half is taken off."""
    part, parts, window = grows_most(of.facts), of.facts.parts, of.facts.window
    middle = (window.begin_ns + window.end_ns) // 2
    if part == "input":
        looks = making(of).looks
    else:
        by_part = {each: parts.when[each] for each in ("host", "compute", "boundary", "sync")}
        looks = of.looks.training.during(by_part.get(part or "", clip(WHOLE, window.begin_ns, window.end_ns)))
    time = "that part of the steps in the second half of the run"
    # The training was not looked at equally often in both halves.
    later, earlier = (
        len(of.looks.training.between(*half)) for half in ((middle, window.end_ns), (window.begin_ns, middle))
    )
    often, before = later / earlier if earlier else 1.0, looks.between(window.begin_ns, middle).stacks()
    taken_off = tuple((stack, -round(often * count)) for stack, count in before)
    return Selected(looks.between(middle, window.end_ns), time, taken_off)


def handed_over(_: Selected, looks: ProcessLooks) -> tuple[Where, ...]:
    """Return the line that gives back what workers hand over: the end of the program's collate
    function, else of the function that prepares a sample."""
    seen: Counter[Call] = Counter()
    for stack, count in looks.making.stacks():
        begin = max((at for at, call in enumerate(stack) if is_file(FETCHER, call.file)), default=None)
        inner = None if begin is None else next((call for call in stack[begin + 1 :] if is_users(call)), None)
        if begin is not None and inner is not None:
            seen[returned(inner)] += count * (COLLATED if "collate_fn" in stack[begin].text else 1)
    return tuple(unseen(call, "creates what workers hand over") for call, _ in seen.most_common(1))


def samples_left_out(shown: Selected, _: ProcessLooks) -> tuple[Where, ...]:
    """Return the line at which the program's function that torch's fetcher calls leaves samples
    out, or else goes through the stream of which only some are kept."""
    seen: Counter[Where] = Counter()
    for stack, count in shown.looks.stacks():
        outermost = next((call for call in within(stack, FETCHER) or () if is_users(call)), None)
        if outermost is None:
            continue
        if (found := left_out(outermost)) is not None:
            seen[unseen(found, "leaves samples out")] += count
        elif not outermost.function.endswith(("__getitem__", "__getitems__")):
            seen[unseen(outermost, "prepares samples of which only some are kept")] += count
    return tuple(where for where, _ in seen.most_common(1))


def unseen(call: Call, what: str) -> Where:
    """Return a line that no looks were counted at."""
    return Where(call.file, call.line, call.function, call.text, None, 0, time=what)


PREPARING = Lines(making)
"""Most causes of `input` are shown by how batches are prepared."""
NOT_MENDED = Lines(making, mended=False)
OF_THE_MACHINE = Lines(making, elsewhere=True)
OF_HANDS = Lines(making, stages=True, stage_advised=True)
"""Causes that more workers mend, and cheaper batches as well."""
