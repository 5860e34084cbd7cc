"""Rules of the wait for data, by what speaks for them: workers, CPUs, reads, epochs, hand-over, waste, memory."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from support.crafted import evidence, records_of
from support.judged_waits import (
    COMPUTING,
    CPUS,
    FULL,
    NOTHING,
    QUEUING,
    judge,
    only,
    pieces,
    rates,
    waiting_for_data,
)
from whyidle.analyse.causes.claim import Claim
from whyidle.analyse.causes.diagnosis import findings_of, verdict_of
from whyidle.analyse.causes.finding import Finding
from whyidle.analyse.causes.input_batches import memory
from whyidle.analyse.run.exposed_data_wait import Sampling, Shape, Spread
from whyidle.analyse.run.facts import Facts
from whyidle.analyse.run.loader_stats import (
    Exclusion,
    HandedOver,
    LoaderStats,
    SeenWaiting,
    TimeGrowth,
    WastedSamples,
    wasted_samples_of,
)
from whyidle.analyse.run.resource_usage import MemoryGrowth, MemoryLimitSeen, memory_growth_of
from whyidle.analyse.run.stall_breakdown import Gil
from whyidle.analyse.statistics import SCATTER_SD, Estimate, wilson
from whyidle.analyse.where.stages import Stages, StageShare
from whyidle.record.schema import CONTENT, HOST, MEMORY, NOT_MEASURED, MemoryLimitOf, StepFlag, ThreadState
from whyidle.scenarios.planted import MS


def stages(stage: str, share: float) -> Stages:
    """As 100 looks tell them."""
    parts = (stage, "", share), ("sample", "Shards.__getitem__", 1 - share)
    each = (StageShare(kind, name, wilson(part, 100), round(100 * part)) for kind, name, part in parts)
    return Stages("the time in which workers prepare batches", 100, tuple(each))


SOME = HandedOver(114, 114 * 48, 0)
CHEAP = {"make_ms_per_sample": 0.1, "work_ms_per_batch": 0.5, "mean_batch_bytes": 1e3}
POOLS = {"worker_busy_pct": 75.0, "process_cpu_pct": 100.0, "mean_batch_bytes": 300.0}
COLD = {"read_chars_bytes_per_sample": 1e6, "storage_bytes_per_sample": 9e5}
UNPACKED = {"mean_batch_bytes": 8e5}
SLOW = {"read_chars_bytes_per_sample": 4e5, "mean_batch_bytes": 8e6, "make_ms_per_sample": 50.0}
NOISE = math.exp(1.645 * SCATTER_SD)
TINY = {"make_ms_per_sample": 0.01, "work_ms_per_batch": 2.5, "mean_batch_bytes": 4e3, "worker_busy_pct": 30.0}


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Facts:
    return waiting_for_data(tmp_path_factory.mktemp("run") / "run")


WAITS = COMPUTING | {"workers": 4, "cpu_pct": 4.0, "make_ms_per_sample": 10.0}
QUEUE = SeenWaiting(100, Estimate(0.7, 0.6, 0.78), False, "data.py:27", ThreadState.SOCKET)
PROPORTIONAL = TimeGrowth(Estimate(0.95, 0.85, 1.05), 50.0, 100.0)
INDEPENDENT = TimeGrowth(Estimate(0.02, -0.1, 0.1), 100.0, 100.0)


def at(state: int) -> SeenWaiting:
    return SeenWaiting(100, Estimate(0.0, 0.0, 0.04), False, "", state)


def case(
    cause: str,
    loader: dict[str, Any] | None = None,
    sampled: dict[str, Any] | None = None,
    *says: str,
    waits: dict[str, float] | None = None,
    spread: dict[str, Any] | None = None,
    changes: list[str] | None = None,
    **facts: Any,
) -> tuple[Any, ...]:
    """What is measured of a loader whose workers compute all the time, with CPUs left over, but for what is given; the
    cause, words of its title, evidence or advice, and in `changes` a word of each change. `waits`: shares of the wait;
    `spread`: figures of how it is spread over the steps, and of epochs."""
    loader, sampled = COMPUTING | (loader or {}), CPUS | (sampled or {})
    return f"input.{cause}", loader, sampled, says, waits or {}, spread or {}, changes, facts


def handed(says: str, tensors: float, nbytes: float, objects: float, *changes: str, **loader: float) -> tuple[Any, ...]:
    """Finished batches that consist of so much, and are waited for."""
    consists = HandedOver(tensors, nbytes, objects)
    return case("handoff", LARGE | loader, {}, says, waits={"handed": 0.99}, changes=[*changes], handed=consists)


def epochs(cause: str, piece: str, spread: dict[str, Any], *says: str, **facts: Any) -> tuple[Any, ...]:
    """Waits where epochs begin."""
    return case(cause, {}, {}, *says, waits={piece: 1.0}, spread=spread, **facts)


def shared(
    cause: str, says: str, waiting: SeenWaiting | None, growth: TimeGrowth | None, sampled: Any = None, **loader: Any
) -> tuple[Any, ...]:
    """Four workers that wait; what looks and batches say of what they share."""
    excludes, changes = Exclusion(3.6, waiting, growth), ["Give each worker its own"] if cause == "exclusive" else None
    return case(cause, WAITS | loader, sampled, says, changes=changes, set_workers=4, exclusion=excludes)


def mostly(stage: str, share: float, *says: str, **loader: float) -> tuple[Any, ...]:
    """CPUs that are used up, by what stack samples saw most."""
    return case("cpu_exhausted", loader, USED_UP, *says, machine_cpus=2, stages=stages(stage, share))


MACHINE_2 = {"machine_cpus": 2}
CROWDED_2 = FULL | {"tree_cpus": 0.5}
READS = {"read_pct": 80.0, "cpu_pct": 15.0}
SLEEPING = {"cpu_pct": 2.0, "run_queue_pct": 3.0, "unsplit_pct": 99.0}
CACHED = READS | {"storage_bytes_per_sample": 0.0}
IDLE = {"worker_busy_pct": 20.0, "mean_batch_bytes": 4e3, "sent_bytes_per_batch": 400.0}
LARGE = {"worker_busy_pct": 30.0, "sent_bytes_per_batch": 300.0, "mean_batch_bytes": 2e7}
NEARLY, ALL = {"handed": 0.95}, {"handed": 0.99}
QUEUED_ALL: dict[str, Any] = {"waits": ALL, "main_queued_ns": 0.9}
SINGLE = {"shape": Shape(Spread.SINGLE, 5, 100, None, 300 * MS), "slow_times": 9.0}
UNEVEN = {"shape": Shape(Spread.IRREGULAR, 30, 100, None, 80 * MS), "slow_times": 2.0}
SPARE = {"worker_busy_pct": 40.0, "queue_ready_mean": 3.5}
SUPPLIES = {"worker_busy_pct": 60.0, "queue_ready_mean": 1.2, "samples_per_s_limit": 1e6}
SLOWER = SUPPLIES | {"samples_per_s_limit": 1.0, "worker_busy_pct": 95.0}
LEFT = {"epochs": 90, "iterators": 90, "batches_per_epoch": 1.0, "left_early": 0.97}
ENDING = {"persistent_workers": False}
SPLIT = {"unsplit_pct": math.nan, "decode_pct": 20.0, "transform_pct": 70.0}
USED_UP = FULL | {"tree_cpus": 1.95}
HALF = WastedSamples(0.5, 0.0, 0.0)


@pytest.mark.parametrize(
    "row",
    [
        case("too_few_workers", {}, {}, "num_workers="),
        case("too_few_workers", {"cpu_pct": 3.0, "unsplit_pct": 97.0}, CROWDED_2, "num_workers="),
        case("too_few_workers", {"worker_busy_pct": 40.0}, {}, "what was measured does not say why"),
        case("cpu_exhausted", {}, FULL, "less CPU per sample", **MACHINE_2),
        # A machine that is full, more than half of it with this job.
        case("cpu_exhausted", QUEUING, FULL | {"tree_cpus": 1.1}, "less CPU per sample", **MACHINE_2),
        case("cpu_quota", QUEUING, {"throttled_s": 1.0, "cpu_budget": 1.5}, "more CPUs"),
        case("cpu_quota", QUEUING, {"tree_cpus": 0.8, "cpu_budget": 2.0, "machine_busy_pct": 40.0}, "more CPUs"),
        case("serial", {}, {}, "num_workers=", set_workers=0),
        case("storage", READS, {}, "faster storage"),
        # One CPU for one worker, which never waits for it; a pool of threads with CPUs of its own; it made all batches.
        case("too_few_workers", {"cpus": 1, "workers": 1}),
        case("too_few_workers", {"process_cpu_pct": 190.0}),
        case("too_few_workers", {"even_workers": 1.0}, iterable=False),
        # Six hundredths of the time of 48 CPUs: somebody else of the group, or a moment.
        case("too_few_workers", {}, {"throttled_s": 0.2, "cpu_budget": 48.0, "tree_cpus": 30.0}),
        # Workers that wait for the network do not wait for the quota.
        case("too_few_workers", {"cpu_pct": 3.0}, {"throttled_s": 1.0, "cpu_budget": 2.0, "tree_cpus": 0.3}),
        # Who waits for the network needs more workers than CPUs, whoever uses those: the device wants a batch in 10 ms.
        case("too_few_workers", SLEEPING, CROWDED_2, "95 % waiting", "num_workers=5` (more than CPUs", **MACHINE_2),
        case("foreign_load", SLEEPING | {"run_queue_pct": 90.0}, CROWDED_2, "where nothing else runs", **MACHINE_2),
        case("serial", SLEEPING, {"cpu_budget": 2.0}, "num_workers=5` (more than CPUs", set_workers=0, **MACHINE_2),
        case("serial", {}, {"tree_cpus": 0.3, "cpu_budget": 2.0}, "Set `num_workers=2` to", set_workers=0, **MACHINE_2),
        # Cheap samples on a machine that others fill.
        case("foreign_load", CHEAP | QUEUING, CROWDED_2, **MACHINE_2),
        # What sends the batches of workers that queue for CPUs queues too.
        case("worker_threads", QUEUING | POOLS, FULL, waits={"handed": 0.9}, **MACHINE_2),
        # A small piece is told with the largest.
        case("too_few_workers", waits={"filling": 0.02, "reading": 0.03}),
        # Tiny samples that are worth a worker are to be handed over in fewer pieces.
        case("overkill", TINY, waits=ALL, handed=HandedOver(3, 3e3, 0)),
        case("overkill", TINY | {"work_ms_per_batch": 0.3}, waits=ALL, handed=SOME),
        case("handoff", TINY, waits=ALL, handed=SOME),
        # Large batches are handed over however busy the workers look, unless they are seen to make them meanwhile.
        case("handoff", {"mean_batch_bytes": 4e7, "sent_bytes_per_batch": 500.0}, waits=NEARLY),
        case("too_few_workers", {"mean_batch_bytes": 4e3, "sent_bytes_per_batch": 500.0}, waits=NEARLY),
        # Finished batches that nobody has a CPU to take are no hand-over.
        case("foreign_load", IDLE, CROWDED_2, waits=ALL, main_queued_ns=0.9, **MACHINE_2),
        case("cpu_exhausted", IDLE, FULL, waits=ALL, changes=["fewer workers"], main_queued_ns=0.9, **MACHINE_2),
        case("handoff", IDLE, waits=ALL, main_queued_ns=0.9, **MACHINE_2),
        # What a batch consists of tells what is to change about it.
        case("handoff", LARGE, {}, "takes long.", waits=ALL, changes=["fewer bytes", "fewer, larger tensors"]),
        handed("takes long.", 2, 2e7, 5, "fewer bytes"),
        handed("as 1,203 tensors of 48 bytes", 1203, 1203 * 48, 0, "fewer, larger tensors"),
        handed("as 64 tensors of 1,000,000 bytes", 64, 64e6, 0, "fewer, larger", "fewer bytes"),
        handed(
            "for only 8,192 bytes", 2, 8192, 0, "Index whole batches", mean_batch_bytes=8192.0, work_ms_per_batch=3.0
        ),
        handed("as 12,034 Python objects", 1, 8, 12_034, "a few tensors instead of many Python objects"),
        handed("pickled through a pipe", 0, 0, 3, "torch tensors", "fewer bytes", sent_bytes_per_batch=2e7),
        # What is quickly made is not given to workers.
        case("serial", {"workers": 1, "work_ms_per_batch": 0.4}, {}, changes=["Index a whole batch"], set_workers=0),
        # The stage that stack samples saw most, but for the loader's own clocks where they tell decoding from
        # transforming, and for the program's own code.
        mostly(
            *("decompress", 0.61, "mostly on decompressing", "Decompress less"),
            "Decompressing, share of preparing batches 61.0",
        ),
        mostly("decompress", 0.61, "mostly on transforming", **SPLIT),
        mostly("decode", 0.3, "mostly on preparing samples", "less CPU per sample"),
        # Epochs.
        epochs(
            *("pipeline_fill", "filling", {"epochs": 20, "batches_per_epoch": 4.0}),
            *("fewer batches than there are workers", "smaller batches"),
            set_workers=8,
        ),
        epochs("pipeline_fill", "filling", {}, "longer epochs", set_workers=None, persistent_workers=None),
        # A loader that is made anew restarts its workers whatever its flag.
        epochs("worker_restart", "starting", {"epochs": 5, "iterators": 5}, "Create the DataLoader once"),
        epochs("pipeline_fill", "starting", {"epochs": 5, "iterators": 1}),
        # A loop that leaves its iterators after a batch is told to keep one.
        *(
            epochs(cause, piece, LEFT, "takes only 1 batch of each and starts over", "next(batches)", **ENDING)
            for cause, piece in (("worker_restart", "starting"), ("pipeline_fill", "filling"))
        ),
        *(
            epochs("worker_restart", "starting", LEFT | whole, changes=["Set `persistent"], **ENDING)
            for whole in ({"left_early": 0.1}, {"left_early": math.nan}, {"batches_per_epoch": 40.0})
        ),
        # Single slow samples, unless order does not matter; uneven batches, unless the loader could not supply them.
        case(
            *("straggler", SPARE, {}, "at 5 of 100 steps, the longest 300 ms", "in_order=False"),
            **{"waits": {"slow": 1.0, "blocked": 0.9}, "spread": SINGLE},
        ),
        case("prefetch_depth", SPARE, waits={"slow": 1.0}, spread=SINGLE, out_of_order=True),
        case("prefetch_depth", SUPPLIES, {}, "prefetch_factor=4` instead of 2", spread=UNEVEN),
        case("too_few_workers", SLOWER, spread=UNEVEN),
        # What workers share is told by locks, and by what fewer workers take.
        shared("exclusive", "2.5 of 3.6 busy ones wait for a lock that they share (data.py:27).", QUEUE, None),
        shared("exclusive", "A batch takes 100 ms, but 50 ms when fewer workers are active", None, PROPORTIONAL),
        shared("exclusive", "the bandwidth of a remote store", at(ThreadState.SOCKET), PROPORTIONAL),
        # Remote latency wants more requests under way; used up CPUs are what workers wait for.
        shared("too_few_workers", "num_workers=", at(ThreadState.SOCKET), INDEPENDENT),
        shared("cpu_exhausted", "", QUEUE, PROPORTIONAL, FULL),
        # Counters take what comes through a socket for a read of a file.
        shared("exclusive", "", at(ThreadState.SOCKET), PROPORTIONAL, read_pct=95.0),
        shared("storage", "", at(ThreadState.FILE), PROPORTIONAL, read_pct=95.0),
        # Where CPUs are short, what is made for nothing delays what is handed over.
        case("wasted", SUPPLIES, {"tree_cpus": 1.9, "cpu_budget": 2.0}, waits=ALL, wasted=HALF),
        case("handoff", SUPPLIES, {"tree_cpus": 0.9, "cpu_budget": 2.0}, waits=ALL, wasted=HALF),
    ],
)
def test_what_is_measured_names_the_cause_and_what_to_change(run: Facts, row: tuple[Any, ...]) -> None:
    cause, loader, sampled, says, waits, spread, changes, facts = row
    if "main_queued_ns" in facts:
        facts = facts | {"main_queued_ns": facts["main_queued_ns"] * run.parts.input_ns}
    found = only(judge(run, loader, sampled, pieces(run, **waits) | spread, **facts))
    assert (found.cause, found.share) == (cause, pytest.approx(run.parts.share("input")))
    shown = (f"{each.what} {each.value}" for each in found.evidence)
    told = " ".join((found.title, *shown, *(each.change for each in found.next)))
    assert [words for words in says if words not in told] == []
    assert found.evidence
    assert ("at every step" in found.title) == ("shape" not in spread)
    if changes is not None:
        assert len(found.next) == len(changes)
        assert all(words in each.change for words, each in zip(changes, found.next, strict=True))
    headroom = run.samples_per_s_without(run.parts.input_ns)
    assert headroom is not None
    if not (waits or spread or "exclusion" in facts):
        for low, rate, high in map(rates, found.next):
            assert run.samples_per_s / NOISE <= low < rate <= headroom * 1.0001
            assert rate <= high <= headroom * NOISE * 1.0001


def limit(cause: str, figure: str, holds: float, fails: float, *case_of: Any, **facts: Any) -> tuple[Any, ...]:
    """A figure (`loader.name`, `sampled.name` or of the facts) with a value for the cause, and one beyond its limit."""
    return (*case(cause, *case_of, **facts), figure, holds, fails)


FULL_2 = FULL | {"cpu_budget": 2.0}
TENTH = {"worker_busy_pct": 30.0, "make_ms_per_sample": 0.1, "work_ms_per_batch": 0.6, "mean_batch_bytes": 4e3}
GROWING = MemoryGrowth(1e7, False, 2, 100_000_000_000, 60.0, 0.0, 0.0, 0)


@pytest.mark.parametrize(
    "row",
    [
        limit("cpu_quota", "sampled.throttled_s", 0.101, 0.099, {}, {"cpu_budget": 2.0, "tree_cpus": 1.9}),
        limit("cpu_quota", "sampled.tree_cpus", 1.21, 1.19, {}, {"throttled_s": 1.0, "cpu_budget": 2.0}),
        limit("cpu_quota", "sampled.machine_busy_pct", 69, 71, QUEUING, {"tree_cpus": 0.8, "cpu_budget": 2.0}),
        # CPU time of workers' other threads, of preparing batches and beside the threads that prepare them.
        limit("worker_threads", "loader.process_cpu_pct", 109, 108, {"cpu_pct": 60.0}, FULL),
        limit("worker_threads", "loader.process_cpu_pct", 141, 139, {"cpu_pct": 80.0}, FULL),
        limit("oversubscribed", "loader.workers", 3, 2.9, QUEUING, FULL_2, **MACHINE_2),
        limit("sharding", "loader.even_workers", 1.49, 1.51, iterable=True),
        limit("foreign_load", "main_queued_ns", 0.51, 0.49, IDLE, CROWDED_2, waits=ALL, **MACHINE_2),
        limit("foreign_load", "loader.sent_bytes_per_batch", 4096, 4097, IDLE, CROWDED_2, **MACHINE_2, **QUEUED_ALL),
        # A loader whose waiting for a CPU was not counted, on a full machine.
        limit("foreign_load", "loader.cpu_pct", 79, 81, {"run_queue_pct": math.nan}, CROWDED_2, **MACHINE_2),
        limit("overkill", "loader.make_ms_per_sample", 0.19, 0.21, TENTH, waits=ALL),
        limit("overkill", "loader.mean_batch_bytes", 0.99e6, 1.01e6, TENTH, waits=ALL),
        limit("overkill", "loader.work_ms_per_batch", 6.5, 7.5, TENTH, waits=ALL),
        limit("prefetch_depth", "loader.queue_ready_mean", 2.0, 1.9, {"worker_busy_pct": 60.0}),
        limit("handoff", "making_seen", 0.59, 0.61, LARGE, waits=ALL),
        limit("wasted", "wasted", WastedSamples(0.16, 0.0, 0.0), WastedSamples(0.14, 0.0, 0.0)),
        limit("memory", "memory", replace(GROWING, stalled_share=0.051), replace(GROWING, stalled_share=0.049)),
        limit("memory", "memory", replace(GROWING, full_share=0.31), replace(GROWING, full_share=0.29)),
        # Words of the title.
        limit("too_few_workers", "loader.cpu_pct", 46, 48, {}, {}, "is 51 % waiting"),
        limit("storage", "loader.storage_bytes_per_sample", 5.1e5, 4.9e5, READS | COLD, {}, "not in the page cache"),
        limit("storage", "loader.read_chars_bytes_per_sample", 4.1e5, 3.9e5, CACHED | UNPACKED, {}, "4 bytes for each"),
        limit("storage", "loader.read_chars_bytes_per_sample", 2.6e5, 2.7e5, CACHED | SLOW, {}, "many small reads"),
        limit("storage", "loader.make_ms_per_sample", 10.1, 9.9, CACHED | SLOW, {}, "which is slow"),
        limit("handoff", "loader.sent_bytes_per_batch", 1.01e7, 0.99e7, LARGE, {}, "pickled through a pipe", waits=ALL),
        limit("handoff", "handed", HandedOver(32, 3e6, 0), HandedOver(31, 3e6, 0), LARGE, {}, "as 32", waits=ALL),
        limit("handoff", "handed", HandedOver(1, 8, 1000), HandedOver(1, 8, 999), LARGE, {}, "as 1,000", waits=ALL),
    ],
)
def test_a_threshold_parts_a_cause_or_its_words_from_others(run: Facts, row: tuple[Any, ...]) -> None:
    cause, loader, sampled, says, waits, *_, facts, figure, holds, fails = row
    of, _, name = figure.rpartition(".")
    for value, wanted in ((holds, True), (fails, False)):
        given = {"loader": dict(loader), "sampled": dict(sampled), "": dict(facts)}
        given[of][name] = value * run.parts.wall_ns / 1e9 if name == "throttled_s" else value
        if "main_queued_ns" in given[""]:
            given[""]["main_queued_ns"] *= run.parts.input_ns
        found = only(judge(run, given["loader"], given["sampled"], pieces(run, **waits), **given[""]))
        assert (found.cause == cause and all(words in found.title for words in says)) is wanted, (value, found.title)


READ = {"read_pct": 45.0}
UNREAD = {"loader_unread": LoaderStats(**NOTHING | COMPUTING)}
"""Of all batches many are read, and those of each other piece of the wait only computed."""
QUICK = {"worker_busy_pct": 30.0, "samples_per_s_limit": 1e6}
EPOCHS = {"epochs": 5, "batches_per_epoch": 20.0}
ANEW = {"persistent_workers": False, "starts_python": True}
LOCK = WAITS, {"set_workers": 4, "exclusion": Exclusion(3.6, QUEUE, None)}


@pytest.mark.parametrize(
    "row",
    [
        (READ, FULL, {"reading": 0.4}, UNREAD, {"storage": 0.4, "cpu_exhausted": 0.6}),
        # The first epoch reads and leaves the CPUs idle: the mean over the run is no measure of the others.
        (
            *(READ, FULL | {"tree_cpus": 1.4, "machine_busy_pct": 72.0}),
            *({"reading": 0.5}, UNREAD, {"storage": 0.5, "cpu_exhausted": 0.5}),
        ),
        # Workers that persist are started once: what their first batches cost is all filling.
        (
            *({}, {}, {"starting": 0.5, "filling": 0.2}, ANEW),
            {"worker_restart": 0.5, "pipeline_fill": 0.2, "too_few_workers": 0.3},
        ),
        ({}, {}, {"starting": 0.5, "filling": 0.2}, {}, {"pipeline_fill": 0.7, "too_few_workers": 0.3}),
        # Where the workers are busy all the time a quick sampler would not help.
        (QUICK, {}, {"sampling": 0.3}, {}, {"sampler": 0.3, "too_few_workers": 0.7}),
        (QUICK, {}, {"sampling": 0.9}, {}, {"sampler": 0.9, "too_few_workers": 0.1}),
        *(({}, {}, {"sampling": share}, {}, {"too_few_workers": 1.0}) for share in (0.3, 0.9)),
        # Reads and first batches that wait for the lock are its, too.
        (LOCK[0], {}, {"reading": 0.5, "filling": 0.3}, LOCK[1], {"exclusive": 1.0}),
        (
            *(LOCK[0], {}, {"reading": 0.5, "filling": 0.3}, {"set_workers": 4}),
            {"storage": 0.5, "pipeline_fill": 0.3, "too_few_workers": 0.2},
        ),
    ],
)
def test_a_wait_divides_among_its_causes(run: Facts, row: tuple[dict[str, Any], ...]) -> None:
    loader, sampled, waits, facts, expected = row
    if "sampling" in waits:
        facts = facts | {"sampling": Sampling(round(waits["sampling"] * run.parts.input_ns), 0, 20.0, 8.0)}
    found = judge(run, COMPUTING | loader, CPUS | sampled, pieces(run, **waits) | EPOCHS, **facts)
    shares = {each.cause: each.share / run.parts.share("input") for each in found}
    assert shares == pytest.approx({f"input.{cause}": share for cause, share in expected.items()}, abs=0.001)


def test_nothing_measured_is_a_guess_and_says_so(run: Facts) -> None:
    found = only(judge(run, {}, {}))
    assert found.confidence <= 0.4
    assert "CPU use was not measured" in found.title


def test_what_a_serial_fetch_waits_for_other_threads_is_the_lock_and_not_the_loader(run: Facts) -> None:
    quick = LoaderStats(**NOTHING | COMPUTING | {"workers": 1, "work_ms_per_batch": 0.5, "queue_capacity": math.nan})
    waits = dataclasses.replace(run.waits, told=1.0)
    facts = dataclasses.replace(run, set_workers=0, loader=quick, waits=waits)
    assert [each.cause for each in findings_of(facts)] == ["input.serial"]
    held = findings_of(dataclasses.replace(facts, gil=HELD))
    assert held[0].cause == "host.gil"
    made = 0.5e6 * run.window.count
    assert held[0].share == pytest.approx((run.parts.input_ns - made) / run.parts.wall_ns, rel=0.01)
    slow = dataclasses.replace(quick, work_ms_per_batch=run.parts.input_ns / run.window.count / 1e6)
    assert findings_of(dataclasses.replace(facts, gil=HELD, loader=slow))[0].cause == "input.serial"


HELD = Gil(others_busy=0.6, off_cpu_share=0.2, queue_known=True, waited=np.zeros(1), others=np.zeros(1))
CROWD = {"tree_cpus": 0.3, "cpu_budget": 2.0, "machine_busy_pct": 100.0}
"""Of two CPUs others use 1.7."""
DECODING = COMPUTING | {
    "workers": 1,
    "cpu_pct": 20.0,
    "read_pct": 2.0,
    "run_queue_pct": math.nan,
    "make_ms_per_sample": 20.0,
    "work_ms_per_batch": 160.0,
}
"""Samples that are computed, by a thread that is mostly not on a CPU; whether it waits for one was not counted."""


CROWDED = {"set_workers": 0, "machine_cpus": 2}
QUEUED = "Waiting for a CPU, share of preparing batches"


@pytest.mark.parametrize("queued", [math.nan, 78.0])
def test_where_others_use_the_cpus_no_more_workers_than_cpus_are_advised(run: Facts, queued: float) -> None:
    """Samples that are not on a CPU may be waiting for one: that is no reason to have more workers than CPUs."""
    found = only(judge(run, DECODING | {"run_queue_pct": queued}, CROWD, **CROWDED))
    assert found.cause == "input.serial"
    assert found.title.endswith(
        "one after the other, while other programs use the machine's CPUs (input.foreign_load)."
    )
    workers = next(each for each in found.next if each.change.startswith("Set `num_workers"))
    assert workers.change == "Set `num_workers=2` to prepare batches while the device computes"
    assert evidence(found)["CPUs other programs use"] == pytest.approx(1.7)
    assert evidence(found)[QUEUED] == (None if math.isnan(queued) else queued)
    # Each gets of the CPUs what the training gets now: 2 workers at 20 ms a sample.
    assert workers.predicted_samples_per_s == pytest.approx(max(100.0, run.samples_per_s), rel=0.01)
    first = found.next[0].change
    assert first.startswith("Run it where nothing else runs" if queued >= 0 else "Set `num_workers=2`")


def test_the_trainings_thread_tells_how_long_samples_made_in_it_wait_for_a_cpu(run: Facts) -> None:
    """Its loader does not count that, the host's records of the thread do."""

    def queued(share: float) -> Finding:
        return only(judge(run, DECODING, CROWD, main_queued_ns=share * 160e6 * run.window.count, **CROWDED))

    assert evidence(queued(0.6))[QUEUED] == pytest.approx(60)
    # No more of it than the thread was on no CPU and did not read.
    assert evidence(queued(0.9))[QUEUED] == pytest.approx(78)
    # A thread that hardly waits for a CPU is not held up by others.
    assert "other programs" not in queued(0.05).title


def test_what_starts_workers_anew_is_offered_wherever_it_is_in_the_evidence_before_longer_epochs(run: Facts) -> None:
    found = judge(run, COMPUTING, CPUS, pieces(run, starting=0.5, filling=0.2) | EPOCHS, **ANEW)
    by_cause = {each.cause: each for each in found}
    for each in (by_cause["input.worker_restart"], by_cause["input.pipeline_fill"]):
        assert "off" in {one.value for one in each.evidence if one.what.startswith("persistent")}
        assert each.next[0].change.startswith("Set `persistent_workers=True`")
        assert each.next[0].settings == {"persistent_workers": True}
        assert each.next[0].speedup is not None
    assert "longer epochs" in by_cause["input.pipeline_fill"].next[1].change


def test_a_wait_is_no_hand_over_where_moving_so_few_bytes_takes_a_part_of_it(run: Facts) -> None:
    """By the bytes of a batch and how long each step waits."""
    queued = {"main_queued_ns": 0.9 * run.parts.input_ns, "machine_cpus": 2}
    waits, waited_s = pieces(run, handed=1.0), run.parts.input_ns / run.window.count / 1e9
    idle = COMPUTING | {"worker_busy_pct": 20.0, "sent_bytes_per_batch": 400.0}
    for share, cause in ((0.4, "input.cpu_exhausted"), (0.6, "input.handoff")):
        moved = idle | {"mean_batch_bytes": share * waited_s * 1e9}
        assert only(judge(run, moved, FULL, waits, **queued)).cause == cause


@pytest.mark.parametrize(("size", "sent", "cause"), [(2e7, 2e7, "input.handoff"), (2e3, 4e2, "host.gil")])
def test_collected_and_pickled_batches_stay_a_hand_over_beside_busy_threads(
    run: Facts, size: float, sent: float, cause: str
) -> None:
    idle = COMPUTING | {"worker_busy_pct": 20.0, "mean_batch_bytes": size, "sent_bytes_per_batch": sent}
    handed = dataclasses.replace(run.waits, told=1.0, **pieces(run, handed=1.0))
    facts = dataclasses.replace(run, gil=HELD, waits=handed, loader=LoaderStats(**NOTHING | idle))
    assert [each.cause for each in findings_of(facts)] == [cause]


def test_starting_workers_costs_cpu_that_is_saved_with_it(run: Facts) -> None:
    """On the processor: the CPUs are full only because each epoch starts new Pythons."""
    waits = pieces(run, starting=1.0) | {"epochs": 5, "iterators": 5}
    full = {"tree_cpus": 1.95, "cpu_budget": 2.0}
    found = only(judge(run, COMPUTING, full, waits, device_kind="cpu", starts_python=True))
    assert rates(found.next[0])[1] > 1.3 * run.samples_per_s


def test_what_overkill_gains_leaves_out_that_batches_still_have_to_be_made(run: Facts) -> None:
    waited_ms = run.parts.input_ns / run.window.count / 1e6
    tiny = COMPUTING | {"make_ms_per_sample": 0.1, "work_ms_per_batch": 0.6 * waited_ms, "mean_batch_bytes": 4e3}
    found = only(judge(run, tiny | {"worker_busy_pct": 30.0}, CPUS, pieces(run, handed=1.0)))
    assert found.cause == "input.overkill"
    assert found.share == pytest.approx(run.parts.share("input"))
    saved = run.parts.share("input") * (1 - 0.6 * 0.97)
    assert found.gain == pytest.approx(saved / (1 - saved), rel=0.02)


@pytest.mark.parametrize(("limit", "times"), [(1e6, 2.0), (1.2, 1.2), (0.5, 1.0)])
def test_no_more_is_promised_than_the_workers_can_make(run: Facts, limit: float, times: float) -> None:
    now, drawn = run.samples_per_s, Sampling(run.parts.input_ns, 0, 20.0, 8.0)
    loader = COMPUTING | {"worker_busy_pct": 30.0, "samples_per_s_limit": limit * now}
    for low, rate, high in map(rates, only(judge(run, loader, CPUS, pieces(run, sampling=1.0), sampling=drawn)).next):
        assert low <= rate <= times * now * 1.01
        assert high <= times * now * (NOISE if limit > 2 else 1) * 1.01


def excluding(
    run: Facts, waiting: SeenWaiting | None, growth: TimeGrowth | None, sampled: dict[str, Any] = CPUS
) -> Finding:
    exclusion = Exclusion(3.6, waiting, growth)
    return only(judge(run, WAITS, sampled, pieces(run), set_workers=4, exclusion=exclusion))


def test_both_signs_are_surer_than_one(run: Facts) -> None:
    signs = ((None, PROPORTIONAL), (QUEUE, None), (QUEUE, PROPORTIONAL))
    by_growth, by_looks, both = (excluding(run, *each) for each in signs)
    assert by_growth.confidence < by_looks.confidence < both.confidence
    # Whoever limits the rate may limit it beyond these workers, too.
    assert by_growth.next[0].low == run.samples_per_s


def test_no_more_is_promised_than_all_workers_make_when_each_is_as_fast_as_alone(run: Facts) -> None:
    _, rate, high = rates(excluding(run, QUEUE, None).next[0])
    # 10 ms a sample, of which at most 78 % are spent waiting for the others, by each of four workers.
    assert run.samples_per_s < rate <= high <= 4 * 1e3 / (10.0 * (1 - 0.78))
    two_cpus = CPUS | {"tree_cpus": 0.1, "cpu_budget": 2.0}
    assert rates(excluding(run, QUEUE, None, two_cpus).next[0])[2] <= 2 * 1e3 / (10.0 * 0.04)


# Samples made for nothing, and workers whose memory grows.


def prints(*of_workers: Iterable[int]) -> list[dict[str, int]]:
    """Fingerprints of the batches that each worker makes, one after the other."""
    return [
        {"worker": worker, "batch": place * len(of_workers) + worker, "fingerprint": number}
        for worker, numbers in enumerate(of_workers)
        for place, number in enumerate(numbers)
    ]


NONE = records_of(CONTENT, [])
TEN = range(10)


@pytest.mark.parametrize(
    ("rows", "iterable", "dropped", "repeated"),
    [
        # Samples that are none, or not in the batch; the same number in each row is no loss.
        ([{"present": 6, "kept": 6}] * 20, True, 0.25, 0),
        ([{"kept": 3 + n % 3} for n in range(21)], True, 0.5, 0),
        ([{"kept": 2}] * 20, True, 0, 0),
        # Time of a stream that went into nothing counts as samples do.
        ([{"stream_ns": 100, "unused_ns": 60}, {"stream_ns": 100, "unused_ns": 40}], True, 0.5, 0),
        # Batches that every worker makes; of a dataset that divides itself alone.
        (prints(TEN, TEN, TEN, TEN), True, 0, 0.75),
        (prints(TEN, TEN, TEN, TEN), False, 0, 0),
        (prints(TEN, range(10, 20)), True, 0, 0),
        # Data that are all alike, that are the same now and then, and too few.
        (prints([7] * 10, [7] * 10), True, 0, 0),
        (prints([*range(8), 90, 91], [20, 21, 2, 23, 24, 25, 26, 27, 90, 91]), True, 0, 0),
        (prints([1, 2, 3], [1, 2, 3]), True, 0, 0),
    ],
)
def test_what_is_made_and_not_used_is_wasted(
    run: Facts, rows: list[dict[str, int]], iterable: bool, dropped: float, repeated: float
) -> None:
    usual = {"loader": NOT_MEASURED, "made": 8, "present": 8, "kept": 8}
    contents = records_of(CONTENT, [usual | {"batch": n} | row for n, row in enumerate(rows)])
    found = wasted_samples_of(run.window, contents, iterable)
    assert found == WastedSamples(pytest.approx(dropped), pytest.approx(repeated), 0.0)


@pytest.mark.parametrize("queued", [True, False])
def test_batches_that_nothing_is_computed_with_are_passed_over(tmp_path: Path, queued: bool) -> None:
    facts = waiting_for_data(tmp_path / "run")
    steps = np.array(facts.window.steps)
    steps["flags"][::2] |= StepFlag.COMPUTED_NOTHING
    steps["flags"][::2] &= ~(StepFlag.FORWARD_SEEN | StepFlag.OPTIMIZER)
    for name in ("backward_begin_ns", "optimizer_end_ns"):
        steps[name][::2] = NOT_MEASURED
    passed = wasted_samples_of(replace(facts.window, steps=steps, queued=queued), NONE, None)
    assert passed is not None
    assert passed.passed_over == pytest.approx(0.5, abs=0.02)


@pytest.mark.parametrize(
    ("seen", "change"),
    [
        (WastedSamples(0.5, 0.0, 0.0), "Leave samples out before preparing them"),
        (WastedSamples(0.0, 0.5, 0.0), "get_worker_info"),
        (WastedSamples(0.1, 0.0, 0.4), "Filter in the dataset"),
    ],
)
@pytest.mark.parametrize("facts", [{}, {"set_workers": 0}, {"persistent_workers": False}])
def test_making_for_nothing_comes_before_more_workers(
    run: Facts, seen: WastedSamples, change: str, facts: dict[str, Any]
) -> None:
    cause = only(judge(run, COMPUTING, CPUS, pieces(run), wasted=seen, **facts))
    assert cause.cause == "input.wasted"
    first = cause.next[0]
    assert (first.kind, change in first.change) == ("slice", True)
    low, rate, high = rates(first)
    assert run.samples_per_s < low < rate < high


LOOKS = 60
GIB = 1 << 30
GB = 10**9
MB = 10**6
Series = Callable[[float], float]


def grown(
    run: Facts,
    rss: Series,
    private: Series | None = None,
    info: dict[str, Any] | None = None,
    limits: list[dict[str, int]] | None = None,
    **series: Series,
) -> MemoryGrowth | None:
    """Each series is a function of the passed share of the window, 0..1. Private memory is seldom looked at."""
    host = np.full(LOOKS, NOT_MEASURED, dtype=np.int64).astype(HOST.dtype)
    window = run.window
    for number, row in enumerate(host):
        passed = number / (LOOKS - 1)
        row["t_ns"] = window.begin_ns + round(passed * window.wall_ns)
        row["main_rss_bytes"] = GB
        row["tree_rss_bytes"] = GB + rss(passed)
        if private is not None and number % 10 == 0:
            row["tree_private_bytes"] = private(passed)
        for name, of in series.items():
            row[name] = of(passed)
    return memory_growth_of(window, host, records_of(MEMORY, limits or []), 2, info or {})


rising: Series = lambda t: GB + 600 * MB * t  # noqa: E731


def grew(run: Facts, *series: Any, **how: Any) -> MemoryGrowth:
    found = grown(run, *series, **how)
    assert found is not None
    return found


@pytest.mark.parametrize(("rss", "copied"), [(rising, False), (lambda _: 2 * GB, True)])
def test_what_workers_keep_and_pages_that_are_copied_make_them_grow(run: Facts, rss: Series, copied: bool) -> None:
    found = grew(run, rss, rising)
    assert found.copied is copied
    assert found.bytes_per_s * run.window.wall_ns / 1e9 == pytest.approx(600 * MB, rel=0.1 if copied else 0.02)


started: Series = lambda t: 1 + round(4 * t)  # noqa: E731


@pytest.mark.parametrize(
    ("rss", "more"),
    [
        (lambda _: GB, {}),
        (lambda t: GB + 600 * MB * min(t, 0.4), {}),  # a cache that is full
        (lambda t: GB + 600 * MB * (1 - (1 - t) ** 4), {}),  # one that fills up ever more slowly
        (lambda t: GB + 600 * MB * (4 * t % 1.0), {}),  # workers that are started anew
        (lambda t: GB + 300 * MB * (round(t * 59) % 2), {}),  # batches that come and go
        (lambda t: GB + 20 * MB * t, {}),  # little
        (lambda t: GB - 600 * MB * t, {}),
        # Workers that are seen one after another.
        (lambda t: 300 * MB * started(t), {"private": None, "tree_processes": started}),
        # Private memory that was hardly looked at.
        (lambda _: GB, {"private": lambda t: rising(t) if t < 0.4 else NOT_MEASURED}),
    ],
)
def test_memory_that_levels_off_or_comes_and_goes_does_not_grow(run: Facts, rss: Series, more: dict[str, Any]) -> None:
    assert grown(run, rss, **{"private": rss} | more) is None


def test_what_is_left_tells_how_long_it_lasts(run: Facts) -> None:
    found = grew(run, rising, memory_available_bytes=lambda t: 3 * GB - 600 * MB * t)
    assert found.full_in_s == pytest.approx(4 * found.elapsed_s, rel=0.05)
    assert found.full_share == 0
    emulated = grew(run, rising, info={"emulated_memory_bytes": 300 * MB})
    assert emulated.full_share == pytest.approx(0.5, abs=0.03)


growth = partial(replace, GROWING)


@pytest.mark.parametrize(
    "fields", [{"stalled_share": 0.3}, {"full_share": 0.6}, {"stalled_share": None, "full_share": 1.0}]
)
@pytest.mark.parametrize("copied", [True, False])
def test_a_machine_without_memory_is_why_batches_take_long(run: Facts, fields: dict[str, Any], copied: bool) -> None:
    found = only(judge(run, COMPUTING, CPUS, pieces(run), memory=growth(copied=copied, **fields)))
    assert found.cause == "input.memory"
    assert [each.kind for each in found.next] == ["fewer_objects", "fewer_workers"]
    assert ("copies of pages" in found.title) == copied
    assert "600 MB per minute" in found.title
    (_, first, _), (_, second, _) = map(rates, found.next)
    assert run.samples_per_s < second <= first


def test_a_machine_that_is_soon_full_is_told_before_it_is(run: Facts) -> None:
    idle = replace(run, parts=replace(run.parts, input_ns=0, compute_ns=run.parts.wall_ns))
    for left, told in ((3 * GB, True), (100 * GB, False), (None, False)):
        early = replace(idle, memory=growth(available_bytes=left, elapsed_s=5.0, bytes_per_s=GB))
        assert memory(Claim(early, 0.0)) is None
        facts = replace(idle, memory=growth(available_bytes=left))
        soon = [found for found in findings_of(facts) if found.cause == "input.memory"]
        assert len(soon) == told
        if told:
            assert (soon[0].severity, soon[0].share) == ("major", 0.0)
            assert "none is left in 5 min" in soon[0].title
            assert verdict_of(facts, findings_of(facts)) in soon


def limited(run: Facts, used: int, **fields: int) -> dict[str, int]:
    """A look at a container of 4 GiB at the end of the window."""
    usual = {"whose": MemoryLimitOf.CONTAINER, "slows": 0, "limit_bytes": 4 * GIB, "used_bytes": used, "oom_kills": 5}
    return {"t_ns": run.window.end_ns, **usual, **fields}


def test_memory_ends_at_the_limit_of_a_container_where_that_leaves_less(run: Facts) -> None:
    looks = [limited(run, 3 * GIB) | {"t_ns": run.window.begin_ns, "oom_kills": 4}, limited(run, 3 * GIB)]
    found = grew(run, rising, limits=looks, memory_available_bytes=lambda _: GIB)
    assert found.limit == MemoryLimitSeen(MemoryLimitOf.CONTAINER, 4 * GIB, False, None)
    assert (found.available_bytes, found.kills, found.full_share) == (GIB, 1, 0.0)
    assert grew(run, rising, limits=looks, memory_available_bytes=lambda _: GIB // 2).limit is None


@pytest.mark.parametrize(("left", "limit", "full"), [(200, True, 0.0), (50, True, 1.0), (200, False, 1.0)])
def test_what_a_small_limit_leaves_is_none_only_near_it(run: Facts, left: int, limit: bool, full: float) -> None:
    """200 MB of a container of 4 GiB are something, of a machine they are nothing."""
    looks = [limited(run, 4 * GIB - left * MB)] if limit else []
    assert grew(run, rising, limits=looks, memory_available_bytes=lambda _: left * MB).full_share == full


def test_a_group_that_swaps_has_no_memory_left(run: Facts) -> None:
    swapping = [
        limited(run, 3 * GIB, swap_used_bytes=0) | {"t_ns": run.window.begin_ns},
        limited(run, 3 * GIB, swap_used_bytes=GIB),
    ]
    found = grew(run, rising, limits=swapping, memory_available_bytes=lambda _: GIB)
    assert (found.swapped_bytes, found.full_share) == (GIB, 1.0)


@pytest.mark.parametrize(
    ("fields", "then"),
    [
        ({}, "left in 5 min."),
        ({"swap_bytes": 0}, "and the kernel kills one of its processes."),
        ({"slows": True}, "and the kernel slows it down."),
    ],
)
def test_the_finding_says_whose_limit_it_is_and_where_it_is_set(run: Facts, fields: dict[str, Any], then: str) -> None:
    limit = replace(MemoryLimitSeen(MemoryLimitOf.CONTAINER, 4 * GIB, False, None), **fields)
    idle = replace(run, parts=replace(run.parts, input_ns=0, compute_ns=run.parts.wall_ns))
    found = memory(Claim(replace(idle, memory=growth(available_bytes=3 * GB, limit=limit, kills=2)), 0.0))
    assert found is not None
    assert "At this pace, none of the container's 4.0 GiB is left in 5 min" in found.title
    assert found.title.endswith(then)
    assert found.next[-1].change.startswith("Give the container more memory: `docker run --memory`")
    told = evidence(found)
    assert told["Memory left at the end, of the container's 4.0 GiB"] == pytest.approx(3000)
    assert told["Processes killed for lack of memory"] == 2
    full = only(judge(run, COMPUTING, CPUS, pieces(run), memory=growth(full_share=1.0, limit=limit)))
    assert "the container has no memory left" in full.title
    assert "Processes killed for lack of memory" not in evidence(full)
