"""Workers that exclude each other: together they make no more than one of them would."""

from __future__ import annotations

from ....record.schema import ThreadState
from ...predict.what_if import VanishedWork
from ...run.exclusion import Exclusion, SeenWaiting, TimeGrowth
from ..finding import Evidence, Finding, Next
from .wait import Wait

SURE, LIKELY, BOTH = 0.85, 0.7, 0.95
"""Confidence from looks at a lock, from batches that take longer the more workers are at work, and from both."""
_DOING = {
    ThreadState.RUNS: "computes",
    ThreadState.FILE: "reads or writes a file",
    ThreadState.SOCKET: "waits at a socket",
    ThreadState.PIPE: "waits at a pipe",
    ThreadState.SLEEP: "sleeps",
}
"""What whoever holds the lock does meanwhile."""
_REMOTE = (ThreadState.SOCKET, ThreadState.POLL, ThreadState.PIPE)


def exclusive(wait: Wait) -> Finding | None:
    """Workers wait for a lock that one of them holds, or take the longer for a batch the more of them are at work."""
    told = wait.facts.exclusion
    if told is None or wait.facts.made_in_training or wait.cpu_used:
        return None
    if told.waiting is not None and told.waits_for_lock:
        return _by_lock(wait, told, told.waiting)
    if told.growth is not None and told.grows and wait.behind and _waits(wait, told.waiting):
        return _by_growth(wait, told, told.growth)
    return None


def _waits(wait: Wait, seen: SeenWaiting | None) -> bool:
    """Whether workers mostly wait, for no file: reads that take longer side by side are the storage's affair. Counters
    take what comes through a socket for a read, looks do not."""
    return wait.waits_mostly or (seen is not None and seen.elsewhere in (*_REMOTE, ThreadState.SLEEP))


def _by_lock(wait: Wait, told: Exclusion, waiting: SeenWaiting) -> Finding:
    lock = "the lock of a file" if waiting.of_file else "a lock that they share"
    doing = _DOING.get(waiting.elsewhere or 0)
    others = f"{told.together * waiting.lock.value:.1f} wait for {lock}{_at(waiting)}"
    return wait.found(
        f"{wait.begins}: workers exclude each other. Of {told.together:.1f} at work at a time {others}"
        f"{f', while one {doing}' if doing else ''}.",
        BOTH if told.grows else SURE,
        (
            Evidence(
                f"waiting for {lock}, of {waiting.looks} looks at workers that make batches",
                100 * waiting.lock.value,
                "%",
                "near 0",
            ),
            *_evidence(wait, told),
        ),
        (
            _freed(
                wait,
                told,
                "a file of its own for each worker to lock, or a lock for each thing that is guarded instead of one "
                "for all; more workers bring nothing"
                if waiting.of_file
                else "each worker its own (connection, handle, reader: opened in the worker), or less done while the "
                "lock is held; more workers bring nothing",
            ),
        ),
    )


def _by_growth(wait: Wait, told: Exclusion, growth: TimeGrowth) -> Finding:
    seen = None if told.waiting is None else told.waiting.elsewhere
    remote = seen in _REMOTE
    what = "one connection, or the bandwidth of a remote store" if remote else "a rate or a connection that they share"
    change = (
        "a connection of its own for each worker; where the other end is the limit, fewer bytes from there: a local "
        "copy, smaller files"
        if remote
        else "a limit, connection or handle of its own for each worker"
    )
    return wait.found(
        f"{wait.begins}: workers exclude each other by {what}. A batch takes {growth.usual_ms:.0f} ms, and "
        f"{growth.fewer_ms:.0f} ms when fewer of them are at work: together they deliver what one would.",
        LIKELY,
        (*_evidence(wait, told), *wait.waiting_evidence),
        (_freed(wait, told, f"{change}; more workers bring nothing", shared_beyond=True),),
    )


def _evidence(wait: Wait, told: Exclusion) -> tuple[Evidence, ...]:
    growth = told.growth
    grown = (
        ()
        if growth is None
        else (
            Evidence(
                "a batch's time, by how many workers are at work (0: no matter, 1: in proportion)",
                growth.exponent.value,
                "",
                "near 0",
            ),
            Evidence("making a batch with fewer workers at work", growth.fewer_ms, "ms", f"{growth.usual_ms:.0f}"),
        )
    )
    return (
        Evidence("workers that make batches at a time", told.together),
        *grown,
        wait.evidence("cpu_pct", "near 100"),
        *wait.cpu_evidence,
    )


def _freed(wait: Wait, told: Exclusion, change: str, *, shared_beyond: bool = False) -> Next:
    """What is gained if workers wait for each other no more, so that a batch takes as long as one alone takes, on these
    CPUs. `shared_beyond`: what they share may be none of theirs, so that nothing need be gained."""
    alone, freed = told.alone, 1 - told.alone.value
    # What is computed is not waited for.
    freed = min(freed, 1 - (wait.loader.cpu_pct or 0.0) / 100)
    if freed <= 0:
        return wait.overlapping(change).of("own_handle")
    least = 0.0 if shared_beyond else max(0.0, 1 - alone.high) / freed
    return wait.lighter(change, VanishedWork(queueing=freed), least=least, likely=1.0, kind="own_handle")


def _at(waiting: SeenWaiting) -> str:
    return f" ({waiting.at})" if waiting.at else ""
