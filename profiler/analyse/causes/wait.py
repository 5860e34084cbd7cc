"""The wait for data that one rule has to explain, and what all these rules have in common."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

from ...record.schema import ThreadState
from ...record.tuning import DEFAULT_PREFETCH, LoaderSettings
from ..predict.advice import BINDS, MOST_WORKERS, VanishedWork
from ..predict.workload import Prediction
from ..run.exclusion import SURELY_GROWS
from ..run.exposed_data_wait import Spread
from ..run.loader_stats import BUSY, QUEUED_PCT, LoaderStats
from ..run.resource_usage import BUDGET_USED, Sampled
from ..shares import MOSTLY
from ..speedup import Speedup
from ..where.stages import STAGES
from .claim import Claim, as_next, by_settings, enough_workers, threshold
from .finding import LEAST_GAIN, Evidence, Next


@dataclass(frozen=True)
class InputThresholds:
    """Thresholds of the wait for data: shares and parts 0..1, `pct` in percent, else in the unit of the name."""

    # The pieces of the wait.
    piece: float = threshold(0.03, "Share of the wall time below which a piece is told together with the largest one.")
    at_work: float = threshold(
        0.6,
        "Share of stack samples of workers, while the training waits, in which they prepare a batch, from which that "
        "is what it waits for.",
    )
    # Too few hands.
    loader_cpu_pct: float = threshold(
        80.0,
        "CPU time and reading, share of preparing batches, below which a loader waits for a CPU: a guess, for loaders "
        "whose waiting for a CPU was not measured.",
    )
    waiting_pct: float = threshold(
        50.0,
        "Waiting for neither a CPU nor reads, share of preparing batches, from which a loader needs more hands rather "
        "than CPUs.",
    )
    ready: float = threshold(0.5, "Batches ready on average, of those it can hold, from which a loader keeps up.")
    handover_ms: float = threshold(1.0, "Time to prepare a batch below which handing it over would take as long.")
    nearly_as_long: float = threshold(
        4, "Times that a hand-over takes, up to which preparing hardly takes longer: what it disturbs comes on top."
    )
    uneven: float = threshold(
        0.75, "Workers that get data, counted as equal shares, over those that are set, below which some get none."
    )
    # The CPUs.
    budget_used: float = threshold(
        0.6, "CPUs used over those allowed, from which they are used up where other programs use what is left."
    )
    throttled: float = threshold(0.05, "Share of the time of its CPUs that a quota stops the job.")
    machine_idle_pct: float = threshold(70.0, "CPU use of the machine up to which there is a CPU for whoever may run.")
    pool_pct: float = threshold(
        50.0, "CPU time of workers' other threads, share of preparing batches, from which they compete for CPUs."
    )
    pool_times: float = threshold(0.75, "The same over the CPU time of the threads that prepare batches.")
    oversubscribed: float = threshold(1.5, "Workers for each CPU that they may use, from which they are too many.")
    thread_queued: float = threshold(
        0.5,
        "Waiting of the training's thread for a CPU, of the wait for finished batches, from which it is the reason.",
    )
    # Reads.
    cold: float = threshold(0.5, "Share of the bytes read that come from storage, from which the cache is cold.")
    small_read_bytes: float = threshold(256 * 1024, "Bytes read for a sample below which it is a small read.")
    slow_bytes_per_s: float = threshold(50e6, "Bytes read in a second of waiting for them, below which that is slow.")
    amplified: float = threshold(4.0, "Bytes read for each byte of a batch, from which most are read for nothing.")
    read_times: float = threshold(
        10, "Bytes read for each byte of a batch, from which evidence of other causes has it."
    )
    read_bytes: float = threshold(10_000, "Bytes read for a sample up to which that does not matter.")
    faults: float = threshold(0.05, "Share of preparing a batch that its page faults take, from which they are shown.")
    # Hand-over.
    tiny_sample_ms: float = threshold(0.2, "Time to prepare a sample up to which it is not worth another process.")
    worth_making_here: float = threshold(
        0.7, "Time to prepare a batch in the training over the wait for it, up to which that is worth it."
    )
    large_batch_bytes: float = threshold(1_000_000, "Bytes of a batch from which moving them is what costs.")
    pickled_bytes: float = threshold(100_000, "Bytes of a batch from which it matters whether it is pickled.")
    pickled: float = threshold(0.5, "Bytes through the pipe for each byte of a batch, from which it is pickled.")
    cheap_sent_bytes: float = threshold(
        4096, "Bytes through the pipe for a batch up to which that takes less than a millisecond."
    )
    moved_bytes_per_s: float = threshold(1e9, "Bytes put into shared memory, mapped and faulted in, in a second.")
    many_tensors: float = threshold(32, "Tensors of a batch from which it is their number that costs.")
    small_tensor_bytes: float = threshold(65_536, "Bytes of one up to which moving it costs no more than that.")
    many_objects: float = threshold(1000, "Python objects of a batch from which it is their number that costs.")
    # Batches that differ, or are made for nothing.
    varied_times: float = threshold(
        1.25, "Time to prepare batches waited for over that of all, from which their variance is why they are."
    )
    wasted: float = threshold(
        0.15, "Share of the samples prepared for nothing: a broken file now and then is no fault."
    )
    waste_named: float = threshold(0.02, "Share of the samples from which a way to waste them is named.")
    # Memory.
    stalled: float = threshold(0.05, "Share of the time in which tasks wait for memory, from which batches do.")
    full: float = threshold(0.3, "Share of the time without memory left from which batches wait for it.")
    growing_s: float = threshold(15.0, "Seconds of growth from which its pace is carried on: imports take memory too.")
    lasts_times: float = threshold(10, "Recorded times that memory lasts, below which it is soon full.")


INPUT = InputThresholds()
FAULT_MS = 0.5e-3
"""What a page fault without I/O takes, about."""
PAGE_BYTES = 4096
ENOUGH_WORKERS = (
    "Make samples cheaper (smaller files, fewer transforms) or add CPUs: all workers that the CPUs can run are busy"
)


def is_pickled(loader: LoaderStats) -> bool:
    """Return whether batches go through the pipe, and are no small matter."""
    sent, nbytes = loader.sent_bytes_per_batch, loader.mean_batch_bytes
    if sent is None or nbytes is None:
        return False
    return sent >= INPUT.pickled * nbytes and nbytes >= INPUT.pickled_bytes


@dataclass(frozen=True)
class Wanted:
    """Workers to propose."""

    workers: int
    besides: str
    """Arguments of the DataLoader to set as well, in words that follow `num_workers=N`; empty where there are none."""
    said: Prediction | None = None
    """What the replay says of it; `None` where the run does not tell enough for one."""


@dataclass(frozen=True)
class Wait(Claim):
    """A piece of the exposed wait for data. The loader of its facts is the loader as far as it made the batches that
    this piece waited for."""

    whole: bool = True
    """Whether this is all of the exposed wait: its shape is then that of this piece."""

    @property
    def loader(self) -> LoaderStats:
        return self.facts.loader

    @property
    def sampled(self) -> Sampled:
        return self.facts.sampled

    @property
    def begins(self) -> str:
        """Begin of every title."""
        text = f"The {self.facts.waiter} waits {self.percent()} of the time for data"
        shape = self.facts.waits.shape
        told = self.whole and shape.spread not in (Spread.NOWHERE, Spread.FIRST_OF_EPOCH)
        return f"{text}, {shape.words}" if told else text

    # What the loader and the CPUs are like.

    @property
    def workers_busy(self) -> bool:
        """Whether the workers are the limit, by how much of the time they prepare batches."""
        busy = self.loader.worker_busy_pct
        return busy is not None and busy >= 100 * BUSY

    @property
    def keeps_up(self) -> bool:
        """Whether batches are ready, on average, and the workers have time to spare."""
        ready, capacity = self.loader.queue_ready_mean, self.loader.queue_capacity
        if ready is None or not capacity or self.workers_busy:
            return False
        return ready >= max(1.0, INPUT.ready * capacity)

    @property
    def behind(self) -> bool:
        """Whether the workers have no time to spare, or the training finds nothing ready."""
        ready = self.loader.queue_ready_mean
        return self.loader.workers > 0 and (self.workers_busy or (ready is not None and ready < 1))

    @property
    def says_nothing(self) -> bool:
        """Whether there is no DataLoader, and nothing known of how batches are made."""
        return self.facts.set_workers is None and self.loader.workers == 0 and self.loader.queue_capacity is None

    @property
    def cpu_known(self) -> bool:
        """Whether the CPUs that this job used, and those it may use, were measured."""
        return self.sampled.tree_cpus is not None and self.sampled.cpu_budget is not None

    @property
    def cpu_used(self) -> bool:
        """Whether this job has used up the CPUs it may use: most of them where other programs use the rest."""
        used, budget, loader = self.sampled.tree_cpus, self.sampled.cpu_budget, self.loader
        if used is not None and loader.cpu_pct is not None and self.facts.loader_unread is not None:
            # CPUs while the batches in question were prepared, where these are not all.
            used = max(used, loader.workers * loader.cpu_pct / 100 * (loader.worker_busy_pct or 0.0) / 100)
        if used is None or budget is None or used < (INPUT.budget_used if self.starved else BUDGET_USED) * budget:
            return False
        # A training on the processor uses it up whatever its loader does.
        return not self.on_cpu or not self.says_nothing

    @property
    def few_cpus_left(self) -> bool:
        """Whether this job leaves less than one of the CPUs that it may use."""
        used, budget = self.sampled.tree_cpus, self.sampled.cpu_budget
        return used is not None and budget is not None and budget - used < 1

    @property
    def others_use_more(self) -> bool:
        """Whether other programs use more of the machine's CPUs than this job; false where that was not measured."""
        foreign, mine = self.facts.foreign_cpus, self.sampled.tree_cpus
        return foreign is not None and mine is not None and foreign > mine

    @property
    def queues(self) -> bool:
        """Whether the loader's waiting for a CPU is considerable."""
        queued = self.loader.run_queue_pct
        return queued is not None and queued >= QUEUED_PCT

    @property
    def queued_pct(self) -> float | None:
        """Waiting for a CPU, of the time spent making batches: the loader's own figure; where the training makes them
        itself, also that of its thread, of which at most what is on no CPU counts."""
        loader, thread_ns = self.loader, self.facts.main_queued_ns
        if loader.run_queue_pct is not None or not self.facts.made_in_training or thread_ns is None:
            return loader.run_queue_pct
        if not loader.work_ms_per_batch or loader.cpu_pct is None:
            return None
        making_ns = loader.work_ms_per_batch * 1e6 * self.facts.window.count
        return max(0.0, min(100 * thread_ns / making_ns, 100 - loader.cpu_pct - (loader.read_pct or 0.0)))

    @property
    def starved(self) -> bool:
        """Whether the machine is full and the loader waits for a CPU more than for anything else but reads."""
        loader = self.loader
        if not self.facts.machine_full:
            return False
        if loader.run_queue_pct is not None:
            return self.queues and loader.run_queue_pct >= (loader.waiting_pct or 0.0)
        return loader.cpu_pct is not None and loader.cpu_pct + (loader.read_pct or 0.0) < INPUT.loader_cpu_pct

    @property
    def waits_mostly(self) -> bool:
        """Whether the loader mostly waits, for neither a CPU nor reads. Not on an accelerator with the CPUs used up:
        there it is for other threads of the loader."""
        waiting = self.loader.waiting_pct
        return waiting is not None and waiting >= INPUT.waiting_pct and (self.on_cpu or not self.cpu_used)

    @property
    def pace_ms(self) -> float:
        """Time of a step as it would be without waiting for data."""
        return (self.facts.parts.wall_ns - self.facts.parts.input_ns) / self.facts.window.count / 1e6

    def predicted(
        self, which: Callable[[LoaderSettings], bool], in_order: bool = True, persistent: bool = False
    ) -> Prediction | None:
        """Return the cheapest such settings that are nearly as fast as any, as the run's replay has it; `None` where
        there is none, or it does not even say of the recorded settings what they did. `persistent`: also workers that
        persist, where those of the run do not."""
        facts, advice = self.facts, self.facts.advice
        if advice is None or not facts.samples_known or self.share < LEAST_GAIN:
            return None
        if not advice.agrees(facts.samples * 1e9 / (facts.parts.wall_ns - facts.parts.boundary_ns)):
            return None
        now = advice.workload.settings.persistent_workers
        return advice.cheapest(
            lambda settings: which(settings) and (persistent or settings.persistent_workers <= now), in_order
        )

    @property
    def wanted(self) -> Wanted:
        """What keeps the device busy: more workers than there are, if only one."""
        facts = self.facts
        now = 0 if facts.made_in_training else self.loader.workers
        said = self.predicted(lambda settings: settings.num_workers > now, persistent=True)
        if said is None:
            return Wanted(self._estimated_workers(now), "")
        ahead = said.settings.prefetch_factor
        besides = "" if ahead in (facts.set_prefetch, DEFAULT_PREFETCH) else f", prefetch_factor={ahead}"
        if said.settings.persistent_workers and not facts.persistent_workers:
            besides += ", persistent_workers=True"
        return Wanted(said.settings.num_workers, besides, said)

    def _estimated_workers(self, now: int) -> int:
        """Where the run does not tell enough for a replay: as many as keep up. No more than the CPUs can run, nor than
        make two batches of an epoch, and no fewer than there are."""
        work_ms, budget = self.loader.work_ms_per_batch, self.sampled.cpu_budget
        if work_ms is None:
            return max(1, now, math.floor(budget or 2))
        most = MOST_WORKERS
        if budget is not None:
            most = min(most, max(1, math.floor(budget / self._cpus_of_a_worker)))
        if self.facts.waits.batches_per_epoch is not None:
            most = min(most, max(1, int(self.facts.waits.batches_per_epoch) // 2))
        return max(now, enough_workers(work_ms, self.pace_ms, most))

    def beyond_cpus(self, workers: int) -> str:
        """Return that so many workers are more than the CPUs, and why that is right, to go behind their number; else
        nothing."""
        cpus = self.sampled.cpu_budget
        more = cpus is not None and workers > max(1.0, cpus) and self._cpus_of_a_worker <= MOSTLY
        return " (more than CPUs, since they mostly wait)" if more else ""

    @property
    def _cpus_of_a_worker(self) -> float:
        """What a worker would use if it never waited for a CPU: all of one where how much it waits is not known, and
        may be much."""
        cpu, queued = self.loader.cpu_pct, self.queued_pct
        if cpu is None or (queued is None and self.facts.crowded) or (queued or 0.0) >= 100:
            return 1.0
        return min(1.0, max(0.01, cpu / (100 - (queued or 0.0))))

    # What to change.

    def within(self, speedup: Speedup) -> Speedup:
        """Return no more than was measured with batches that lay ready."""
        facts = self.facts
        if facts.headroom is None or not facts.samples_known:
            return speedup
        return speedup.no_more_than(max(1.0, facts.headroom / facts.samples_per_s))

    @property
    def concurrency_helps(self) -> bool:
        """Whether the run shows that workers which wait do so each by itself, so that more of them wait for more at a
        time: batches take no longer beside more of them, or they sleep. One server, disk or lock may serve them one
        after the other."""
        told = self.facts.exclusion
        if told is None or not self.waits_mostly:
            return not self.waits_mostly
        if told.growth is not None:
            return told.growth.exponent.high < SURELY_GROWS
        return told.waiting is not None and told.waiting.elsewhere == ThreadState.SLEEP

    def so_many(self, change: str, wanted: Wanted, instead: str = "") -> Next:
        """Predict a change to these settings; `instead`: what else might be done."""
        if wanted.said is not None:
            return self.as_predicted(change, "workers", wanted.said, instead)
        if not self.facts.made_in_training and wanted.workers <= self.loader.workers:
            return self.removing(ENOUGH_WORKERS, "cheaper", gone=VanishedWork(making=1.0), likely=0.5)
        return self.more_workers(change + instead, "workers", wanted.workers, {"num_workers": wanted.workers})

    def as_predicted(self, change: str, kind: str, said: Prediction, instead: str = "") -> Next:
        """Predict settings that the run was replayed with, and name what holds the training up then."""
        facts, advice = self.facts, self.facts.advice
        assert advice is not None
        speedup = self.within(by_settings(facts, said))
        if said.settings.num_workers > max(1, facts.set_workers or 0) and not self.concurrency_helps:
            # From none to one nothing has to be done at a time but making and computing: so much is gained in any case.
            one = None if facts.set_workers else advice.cheapest(lambda each: each.num_workers == 1)
            surely = 1.0 if one is None else by_settings(facts, one).low
            sure = surely > 1 + LEAST_GAIN
            speedup = replace(speedup, low=min(speedup.low, surely)) if sure else speedup.maybe_none()
        change = f"{change} (next limit: {BINDS[said.binding]}){instead}"
        return as_next(facts, change, speedup, kind, advice.workload.settings.changed_to(said.settings))

    def more_workers(self, change: str, kind: str, workers: int, settings: dict[str, int] | None = None) -> Next:
        """Predict what so many workers could supply on these CPUs, if each gets the CPU it asks for; where other
        programs take the CPU from a training that prepares its batches itself, if each gets what that gets now."""
        per_sample_ms, cpu_pct, facts = self.loader.make_ms_per_sample, self.loader.cpu_pct, self.facts
        if per_sample_ms is None or not facts.samples:
            return self.overlapping(change, kind, settings=settings)
        taken = facts.crowded and facts.made_in_training
        unqueued = 1.0 if taken else 1 - min(99.0, self.queued_pct or 0.0) / 100
        supply, budget = workers * 1e3 / (per_sample_ms * unqueued), self.sampled.cpu_budget
        if budget is not None and cpu_pct:
            supply = min(supply, budget * 1e3 / (per_sample_ms * min(cpu_pct, 100.0) / 100))
        return self.overlapping(change, kind, supply * facts.parts.wall_ns / 1e9 / facts.samples, settings)

    # What is shown for it.

    @property
    def pace(self) -> tuple[Evidence, Evidence]:
        """What has to fit: preparing a batch, and a step without the wait."""
        work = Evidence("Preparing a batch", self.loader.work_ms_per_batch, "ms in one worker")
        return work, Evidence("Step without the wait", self.pace_ms, "ms")

    @property
    def waiting(self) -> tuple[Evidence, ...]:
        """How much of preparing a sample is waiting, where that is most of it."""
        waiting, normal = self.loader.waiting_pct, INPUT.waiting_pct
        if waiting is None or waiting < normal:
            return ()
        what = "Waiting for neither CPU nor reads, share of preparing a sample"
        return (Evidence(what, waiting, "%", f"below {normal:.0f} %"),)

    @property
    def costliest(self) -> tuple[str, float | None] | None:
        """The stage that making batches takes most time for, in words, and its share, in percent of that time: by the
        loader's own clocks where those tell, else as stack samples saw it; `None` where neither does."""
        loader, seen = self.loader, self.facts.stages
        stage = loader.costliest
        if seen is not None and seen.costliest is not None and loader.unsplit_pct is not None and stage != "reading":
            stage, share = seen.costliest
            return STAGES[stage], 100 * share
        return None if stage is None else (stage, loader.stages.get(stage))

    @property
    def stage(self) -> tuple[Evidence, ...]:
        """What the loader spends most of its time on, and what it touches for that."""
        stage = self.costliest
        if stage is None:
            return self.touched
        return Evidence(f"{stage[0].capitalize()}, share of preparing batches", stage[1], "%"), *self.touched

    @property
    def touched(self) -> tuple[Evidence, ...]:
        """Bytes read and pages touched, where they are many more than a batch has."""
        loader, samples, shows = self.loader, self.facts.batch_size, []
        read, nbytes, faults = (
            loader.read_chars_bytes_per_sample,
            loader.mean_batch_bytes,
            loader.minor_faults_per_batch,
        )
        used = nbytes / samples if nbytes and samples else None
        if read is not None and used is not None and read >= max(INPUT.read_bytes, INPUT.read_times * used):
            shows.append(Evidence("Bytes read for a sample", read, "bytes"))
            shows.append(Evidence("Bytes of a sample in its batch", used, "bytes"))
        took = 0.0 if faults is None else faults * FAULT_MS
        if took and loader.work_ms_per_batch and took >= INPUT.faults * loader.work_ms_per_batch:
            expected = "" if nbytes is None else f"about {nbytes / PAGE_BYTES:.0f}"
            shows.append(Evidence("Page faults while preparing a batch", faults, "", expected))
        return tuple(shows)


CPUS = "cpus_used", "foreign_cpus", "cpu_budget"
"""Figures of the CPUs that all rules about them show."""
