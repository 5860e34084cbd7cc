"""The device waits for the training's own process: synchronising calls, garbage collection, other threads, its loop."""

from __future__ import annotations

from ..run.facts import Facts
from .divided import behind_the_host, computing
from .finding import Evidence, Finding
from .gain import removing


def sync(facts: Facts) -> Finding | None:
    """Synchronising calls kept the host from queuing work."""
    if facts.parts.sync_ns == 0:
        return None
    calls = facts.syncs
    where = "" if calls is None else f", {calls.words}"
    each = None if calls is None else calls.per_step
    hit = None if calls is None else f"{calls.steps} of {calls.of}"
    longest = None if calls is None else calls.longest_ns / 1e6
    return Finding(
        "host.sync",
        f"The device idles {_pct(facts, facts.parts.sync_ns)} of the time behind calls that wait for it{where}.",
        facts.parts.share("sync"),
        0.7,
        (
            Evidence("exposed time in synchronising calls", 100 * facts.parts.share("sync"), "%", "near 0"),
            Evidence("synchronising calls in a step", each, "", "0, but for one step in many"),
            Evidence("steps with any", hit, "", "few"),
            Evidence("the longest idling behind one", longest, "ms"),
        ),
        (
            removing(
                facts,
                "keep losses and metrics on the device (total += loss.detach()) and read them every 50th step: each "
                ".item(), .cpu(), .tolist(), float(tensor) or print of a tensor waits for all that is queued",
                facts.parts.sync_ns,
                least=0.3,
                likely=0.9,
            ),
            removing(
                facts,
                "copy what has to be read with .to('cpu', non_blocking=True) into pinned memory, and read it a step "
                "later",
                facts.parts.sync_ns,
                likely=0.8,
            ),
        ),
    )


def garbage(facts: Facts) -> Finding | None:
    """Python's garbage collection stops the training."""
    garbage_ns = behind_the_host(facts).garbage
    if garbage_ns <= 0:
        return None
    return Finding(
        "host.gc",
        f"{_loses(facts, garbage_ns)} Python's garbage collection.",
        garbage_ns / facts.parts.wall_ns,
        0.85,
        (
            Evidence("exposed garbage collection, of the wall time", 100 * garbage_ns / facts.parts.wall_ns, "%", "0"),
            Evidence("a step's share of it", garbage_ns / facts.window.count / 1e6, "ms", "near 0"),
        ),
        (
            removing(
                facts,
                "if the loop, or a library it uses, calls gc.collect() itself: call it less often, or not at all",
                garbage_ns,
                likely=0.9,
            ),
            removing(
                facts,
                "`gc.collect(); gc.freeze()` after set-up: what lives from then on is not looked through again",
                garbage_ns,
                likely=0.6,
            ),
            removing(
                facts,
                "if they come by themselves: `gc.disable()`, and `gc.collect()` by hand every few hundred steps",
                garbage_ns,
                likely=0.9,
            ),
        ),
    )


def gil(facts: Facts, handed: float = 0.0) -> Finding | None:
    """Other Python threads of the process hold the lock that the training's thread needs.

    `handed`: share of the time that it waits so for batches that are finished.
    """
    pieces = {
        "in the loop's own work" if facts.device_kind == "cpu" else "behind the loop's own work": (
            behind_the_host(facts).gil
        ),
        "between launches within the steps": computing(facts).gil,
        "for batches that were finished": handed * facts.parts.wall_ns,
    }
    gil_ns, seen = sum(pieces.values()), facts.gil
    if gil_ns <= 0 or seen is None:
        return None
    told = {where: ns for where, ns in pieces.items() if ns > 0}
    where = f" ({', '.join(f'{_pct(facts, ns)} {where}' for where, ns in told.items())})" if len(told) > 1 else ""
    loses = "stands still" if facts.device_kind == "cpu" else "idles"
    return Finding(
        "host.gil",
        f"The {facts.waiter} {loses} {_pct(facts, gil_ns)} of the time while the training's thread waits for Python's "
        f"global lock (GIL), which other Python threads of the same process hold{where}.",
        gil_ns / facts.parts.wall_ns,
        0.7 if seen.queue_known else 0.55,
        (
            Evidence("other Python threads of the process on a CPU, of one", 100 * seen.others_busy, "%", "near 0"),
            Evidence(
                "training's thread not running, of its own time"
                + (", waiting for a CPU left out" if seen.queue_known else ""),
                100 * seen.off_cpu_share,
                "%",
                "near 0",
            ),
            Evidence("waiting for the lock, of a step", gil_ns / facts.window.count / 1e6, "ms", "0"),
            *(
                Evidence(f"waiting for the lock {where}, of the wall time", 100 * ns / facts.parts.wall_ns, "%", "0")
                for where, ns in (told.items() if len(told) > 1 else ())
            ),
        ),
        (
            removing(
                facts,
                "move what those threads do (logging, metrics, loading in threads) to a process of its own: "
                "multiprocessing instead of threading, DataLoader workers instead of threads",
                gil_ns,
                least=0.5,
                likely=0.9,
            ),
            removing(
                facts,
                "`sys.setswitchinterval(0.0005)`: a thread that runs Python gives the lock up after 0.5 ms, not 5",
                gil_ns,
                likely=0.4,
            ),
        ),
    )


def step_gap(facts: Facts) -> Finding | None:
    """Other work of the training loop between the steps: what the causes above leave over."""
    left_ns = behind_the_host(facts).left
    if left_ns <= 0 or not facts.told_apart:
        return None
    gaps = facts.gaps
    if gaps is not None and gaps.is_a_stop:
        at = "" if gaps.longest_step is None else f" in step {gaps.longest_step}"
        return Finding(
            "host.step_gap",
            f"The training stood still once, for {gaps.longest_ns / 1e9:.1f} s{at}: a breakpoint, or a pause of the "
            "program.",
            left_ns / facts.parts.wall_ns,
            0.6,
            (
                Evidence("the longest stretch of the host's own work", gaps.longest_ns / 1e9, "s", "well below 1"),
                *_named(facts),
                *_places(facts),
            ),
            (
                removing(
                    facts, "nothing, if somebody stopped it; otherwise look at what the loop did in that step", left_ns
                ),
            ),
        )
    where = "" if gaps is None else f", {gaps.words}"
    return Finding(
        "host.step_gap",
        f"{_loses(facts, left_ns)} work of the training loop outside fetch"
        f"{' and computing' if facts.device_kind == 'cpu' else ', copy and synchronising calls'}{where}.",
        left_ns / facts.parts.wall_ns,
        0.6,
        (
            *_places(facts),
            *_named(facts),
            Evidence("the longest stretch", None if gaps is None else gaps.longest_ns / 1e6, "ms", "near 0"),
        ),
        (removing(facts, _less_work(facts), left_ns, likely=0.8),),
    )


HOST_RULES = (garbage, gil, step_gap)
SYNC_RULES = (sync,)
RULES = (*SYNC_RULES, *HOST_RULES)


def _less_work(facts: Facts) -> str:
    gaps = facts.gaps
    if gaps is not None and gaps.named:
        return f"do {gaps.named[0][0]} less often, or in a process of its own"
    where = "there" if gaps is None or not gaps.places else max(gaps.places, key=lambda place: place[1])[0]
    return (
        f"look at what the loop does {where} (logging, metrics, callbacks, progress bars, freeing batches): every 50th "
        'step is often enough; `with whyidle.phase("name"):` around a part of it tells what that part takes'
    )


def _places(facts: Facts) -> tuple[Evidence, ...]:
    places = () if facts.gaps is None else facts.gaps.places
    return tuple(Evidence(f"host time {where}, of the wall time", 100 * part, "%", "near 0") for where, part in places)


def _named(facts: Facts) -> tuple[Evidence, ...]:
    named = () if facts.gaps is None else facts.gaps.named
    return tuple(Evidence(f"of it, {what}, of the wall time", 100 * share, "%") for what, share in named)


def _loses(facts: Facts, ns: float) -> str:
    if facts.device_kind == "cpu":
        return f"The training spends {_pct(facts, ns)} of the time on"
    return f"The device idles {_pct(facts, ns)} of the time behind"


def _pct(facts: Facts, ns: float) -> str:
    return f"{100 * ns / facts.parts.wall_ns:.0f} %"
