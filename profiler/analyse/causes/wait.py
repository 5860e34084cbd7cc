"""The wait for data that one rule has to explain, and what all these rules have in common."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from ...record.schema import ThreadState
from ...record.tuning import DEFAULT_PREFETCH, LoaderSettings
from ..predict.predict import MOST_WORKERS, Prediction, VanishedWork
from ..predict.replay import BINDS
from ..run.exposed_data_wait import Spread
from ..run.host_gaps import NO_STEP
from ..run.loader_stats import BUSY, QUEUED_PCT, SURELY_GROWS, LoaderStats
from ..run.resource_usage import BUDGET_USED
from ..run.window import measured_or
from ..shares import MOSTLY
from ..where.stages import STAGES
from .claim import Claim, as_next, believed, enough_workers, replayed
from .finding import LEAST_GAIN, Evidence, Next


@dataclass(frozen=True)
class InputThresholds:
    """Thresholds of the wait for data: shares and parts 0..1, `pct` in percent, else in the unit of the name."""

    # The pieces of the wait.
    piece: float = 0.03
    """Share of the wall time below which a piece is told together with the largest one."""
    at_work: float = 0.6
    """Stack samples of workers, while the training waits, in which they prepare a batch, as a share."""
    # Too few hands.
    loader_cpu_pct: float = 80.0
    """CPU time and reading, share of preparing batches, below which a loader whose waiting for a
    CPU was not measured is guessed to wait for one."""
    handover_ms: float = 1.0
    """Time to prepare a batch below which handing it over would take as long."""
    nearly_as_long: float = 4
    """Times of handing a batch over up to which preparing it hardly takes longer."""
    uneven: float = 0.75
    """Workers that get data, as equal shares, over those that are set, below which some get none."""
    # The CPUs.
    budget_used: float = 0.6
    """CPUs used over those allowed, from which they are used up where other programs use what is left."""
    throttled: float = 0.05
    """Share of the time of its CPUs that a quota stops the job."""
    machine_idle_pct: float = 70.0
    """CPU use of the machine up to which there is a CPU for whoever may run."""
    pool_pct: float = 50.0
    """CPU time of workers' other threads, share of preparing batches, from which they compete for CPUs."""
    pool_times: float = 0.75
    """The same over the CPU time of the threads that prepare batches."""
    oversubscribed: float = 1.5
    """Workers for each CPU that they may use, from which they are too many."""
    # Reads.
    small_read_bytes: float = 256 * 1024
    """Bytes read for a sample below which it is a small read."""
    slow_bytes_per_s: float = 50e6
    """Bytes read in a second of waiting for them, below which that is slow."""
    amplified: float = 4.0
    """Bytes read for each byte of a batch, from which most are read for nothing."""
    # Hand-over.
    tiny_sample_ms: float = 0.2
    """Time to prepare a sample up to which it is not worth another process."""
    worth_making_here: float = 0.7
    """Time to prepare a batch in the training over the wait for it, up to which that is worth it."""
    large_batch_bytes: float = 1_000_000
    """Bytes of a batch from which moving them is what costs."""
    pickled_bytes: float = 100_000
    """Bytes of a batch from which it matters whether it is pickled."""
    cheap_sent_bytes: float = 4096
    """Bytes through the pipe for a batch up to which that takes less than a millisecond."""
    moved_bytes_per_s: float = 1e9
    """Bytes put into shared memory, mapped and faulted in, in a second."""
    many_tensors: float = 32
    """Tensors of a batch from which it is their number that costs."""
    small_tensor_bytes: float = 65_536
    """Bytes of one up to which moving it costs no more than that."""
    many_objects: float = 1000
    """Python objects of a batch from which it is their number that costs."""
    # Batches that differ, or are made for nothing.
    varied_times: float = 1.25
    """Time to prepare batches waited for over that of all, from which their variance is why they are."""
    wasted: float = 0.15
    """Share of the samples prepared for nothing: a broken file now and then is no fault."""
    waste_named: float = 0.02
    """Share of the samples from which a way to waste them is named."""
    # Memory.
    stalled: float = 0.05
    """Share of the time in which tasks wait for memory, from which batches do."""
    full: float = 0.3
    """Share of the time without memory left from which batches wait for it."""
    growing_s: float = 15.0
    """Seconds of growth from which its pace is carried on: imports take memory too."""
    lasts_times: float = 10
    """Recorded times that memory lasts, below which it is soon full."""


INPUT = InputThresholds()
ENOUGH_WORKERS = (
    "Make samples cheaper (smaller files, fewer transforms) or add CPUs: all workers that the CPUs can run are busy"
)


def prefetching(ahead: int | None, now: int) -> str:
    """Return the advice to prefetch more batches, in words."""
    return f"Set `prefetch_factor={ahead}` instead of {now} to prefetch more batches"


def is_pickled(loader: LoaderStats) -> bool:
    """Return whether batches go through the pipe, and are no small matter."""
    sent, nbytes = loader.sent_bytes_per_batch, loader.mean_batch_bytes
    return sent >= MOSTLY * nbytes and nbytes >= INPUT.pickled_bytes


@dataclass(frozen=True)
class Wanted:
    """Workers to propose."""

    workers: int
    besides: str
    """Arguments of the DataLoader to set as well, in words that follow `num_workers=N`; empty where there are none."""
    said: Prediction | None = None
    """What the replay says of it; `None` where the run does not tell enough for one."""


@dataclass
class Wait(Claim):
    """A piece of the exposed wait for data."""

    whole: bool = True
    """Whether this is all of the exposed wait: its shape is then that of this piece."""

    @property
    def loader(self) -> LoaderStats:
        """The loader, as far as it made the batches that this piece waited for."""
        return self.facts.loader

    @property
    def begins(self) -> str:
        """Begin of every title."""
        text = f"The {self.facts.waiter} waits {self.percent()} of the time for data"
        shape = self.facts.waits.shape
        told = self.whole and shape.spread not in (Spread.NOWHERE, Spread.FIRST_OF_EPOCH)
        return f"{text}, {shape.words}" if told else text

    @property
    def without_steps(self) -> bool:
        """Whether no step is known by itself: of a window seen as a whole (`windows.py`)."""
        return self.facts.window.steps is NO_STEP

    # What the loader and the CPUs are like; false where it was not measured.

    @property
    def workers_busy(self) -> bool:
        """Whether the workers are the limit, by how much of the time they prepare batches."""
        return self["worker_busy_pct"] >= 100 * BUSY

    @property
    def keeps_up(self) -> bool:
        """Whether batches are ready, on average, and the workers have time to spare."""
        capacity = self.loader.queue_capacity
        return not self.workers_busy and capacity > 0 and self["queue_ready_mean"] >= max(1.0, MOSTLY * capacity)

    @property
    def behind(self) -> bool:
        """Whether the workers have no time to spare, or the training finds nothing ready."""
        return self.loader.workers > 0 and (self.workers_busy or self["queue_ready_mean"] < 1)

    @property
    def says_nothing(self) -> bool:
        """Whether there is no DataLoader, and nothing known of how batches are made."""
        unknown = self.facts.set_workers is None and math.isnan(self.facts.made_in_fetch_pct)
        return unknown and self.loader.workers == 0 and math.isnan(self.loader.queue_capacity)

    @property
    def cpu_known(self) -> bool:
        """Whether the CPUs that this job used, and those it may use, were measured."""
        return not math.isnan(self["cpus_used"] + self["cpu_budget"])

    @property
    def cpu_used(self) -> bool:
        """Whether this job has used up the CPUs it may use: most of them where others use the rest."""
        used, loader = self["cpus_used"], self.loader
        if self.facts.loader_unread is not None:
            # CPUs while the batches in question were prepared, where these are not all.
            used = max(used, loader.workers * loader.cpu_pct / 100 * loader.worker_busy_pct / 100)
        most = INPUT.budget_used if self.starved else BUDGET_USED
        # A training on the processor uses it up whatever its loader does.
        return used >= most * self["cpu_budget"] and not (self.on_cpu and self.says_nothing)

    @property
    def queues(self) -> bool:
        """Whether the loader's waiting for a CPU is considerable."""
        return self["run_queue_pct"] >= QUEUED_PCT

    @property
    def queued_pct(self) -> float:
        """Waiting for a CPU, share of preparing batches in percent, NaN where not measured.

        The loader's own figure; where the training makes them itself, also that of its thread, of
        which at most what is on no CPU counts.
        """
        loader, facts = self.loader, self.facts
        if loader.run_queue_pct >= 0 or not facts.made_in_training or not loader.work_ms_per_batch:
            return loader.run_queue_pct
        of_thread = 100 * facts.main_queued_ns / (loader.work_ms_per_batch * 1e6 * facts.window.count)
        most = 100 - loader.cpu_pct - measured_or(loader.read_pct)
        return math.nan if math.isnan(of_thread + most) else max(0.0, min(of_thread, most))

    @property
    def starved(self) -> bool:
        """Whether the machine is full and the loader waits for a CPU, more than for anything but reads."""
        loader = self.loader
        if not self.facts.machine_full:
            return False
        if loader.run_queue_pct >= 0:
            return self.queues and not loader.run_queue_pct < loader.waiting_pct
        return loader.cpu_pct + measured_or(loader.read_pct) < INPUT.loader_cpu_pct

    @property
    def waits_mostly(self) -> bool:
        """Whether the loader mostly waits, for neither a CPU nor reads. Not on an accelerator with
        the CPUs used up: there it is for other threads of the loader."""
        waits = self.loader.waiting_pct >= 100 * MOSTLY
        return waits and (self.on_cpu or not self.cpu_used)

    @property
    def pace_ms(self) -> float:
        """Time of a step as it would be without waiting for data, ms."""
        return (self.facts.parts.wall_ns - self.facts.parts.input_ns) / self.facts.window.count / 1e6

    def predicted(
        self, which: Callable[[LoaderSettings], bool], in_order: bool = True, persistent: bool = False
    ) -> Prediction | None:
        """Return the cheapest such settings that are nearly as fast as any, by a replay of the run.

        `None` where there is none, or it does not even say of the recorded settings what they did.
        `persistent`: also workers that persist, where those of the run do not.
        """
        advice = believed(self.facts)
        if advice is None or self.share < LEAST_GAIN:
            return None
        now = advice.workload.settings.persistent_workers
        return advice.cheapest(
            lambda settings: which(settings) and (persistent or settings.persistent_workers <= now), in_order
        )

    @property
    def wanted(self) -> Wanted:
        """What keeps the device busy: more workers than there are, if only one.

        Where the run does not tell enough for a replay: as many as keep up. No more than the CPUs
        can run, nor than make two batches of an epoch, and no fewer than there are.
        """
        facts, loader, budget = self.facts, self.loader, self.facts.sampled.cpu_budget
        now = 0 if facts.made_in_training else loader.workers
        said = self.predicted(lambda settings: settings.num_workers > now, persistent=True)
        if said is not None:
            ahead = said.settings.prefetch_factor
            besides = "" if ahead in (facts.set_prefetch, DEFAULT_PREFETCH) else f", prefetch_factor={ahead}"
            if said.settings.persistent_workers and not facts.persistent_workers:
                besides += ", persistent_workers=True"
            return Wanted(said.settings.num_workers, besides, said)
        if math.isnan(loader.work_ms_per_batch):
            return Wanted(max(1, now, math.floor(measured_or(budget, 2))), "")
        most, batches = MOST_WORKERS, facts.waits.batches_per_epoch
        if budget == budget:
            most = min(most, max(1, math.floor(budget / self._cpus_of_a_worker)))
        if batches == batches:
            most = min(most, max(1, math.ceil(batches / 2)))
        return Wanted(max(now, enough_workers(loader.work_ms_per_batch, self.pace_ms, most)), "")

    def workers_setting(self, wanted: Wanted) -> str:
        """Return the advice to set so many workers; where they are more than the CPUs and mostly wait, why that is
        right."""
        more = wanted.workers > 1 and wanted.workers > self["cpu_budget"] and self._cpus_of_a_worker <= MOSTLY
        why = " (more than CPUs, since they mostly wait)" if more else ""
        return f"Set `num_workers={wanted.workers}{wanted.besides}`{why}"

    @property
    def _cpus_of_a_worker(self) -> float:
        """CPUs that a worker would use if it never waited for one: all of one where how much it
        waits was not measured, and may be much."""
        cpu, queued = self.loader.cpu_pct, self.queued_pct
        if math.isnan(cpu) or (math.isnan(queued) and self.facts.crowded) or queued >= 100:
            return 1.0
        return min(1.0, max(0.01, cpu / (100 - measured_or(queued))))

    # What to change.

    def so_many(self, change: str, wanted: Wanted, instead: str = "") -> Next:
        """Predict a change to these settings; `instead`: what else might be done."""
        if wanted.said is not None:
            return self.as_predicted(change, "workers", wanted.said, instead)
        if not self.facts.made_in_training and wanted.workers <= self.loader.workers:
            return self.removing(ENOUGH_WORKERS, "cheaper", gone=VanishedWork(making=1.0), likely=0.5)
        return self.more_workers(change + instead, "workers", wanted.workers, {"num_workers": wanted.workers})

    def setting(self, change: str, kind: str, said: Prediction | None, **removed: Any) -> Next:
        """Predict settings of the loader as the run was replayed with, else by what they remove."""
        return self.removing(change, kind, **removed) if said is None else self.as_predicted(change, kind, said)

    def as_predicted(self, change: str, kind: str, said: Prediction, instead: str = "") -> Next:
        """Predict settings that the run was replayed with, and name what holds the training up then."""
        facts, advice = self.facts, self.facts.advice
        assert advice is not None
        speedup = replayed(facts, said)
        told = facts.exclusion
        # Workers that wait may do so each by itself, so that more of them wait for more at a time: batches take no
        # longer beside more of them, or they sleep. One server, disk or lock may serve them one after the other.
        helps = not self.waits_mostly
        if told is not None and not helps:
            alone = told.waiting is not None and told.waiting.elsewhere == ThreadState.SLEEP
            helps = alone if told.growth is None else told.growth.exponent.high < SURELY_GROWS
        if said.settings.num_workers > max(1, facts.set_workers or 0) and not helps:
            # From none to one nothing has to be done at a time but making and computing: so much is gained in any case.
            one = None if facts.set_workers else advice.cheapest(lambda each: each.num_workers == 1)
            surely = 1.0 if one is None else replayed(facts, one).low
            sure = surely > 1 + LEAST_GAIN
            speedup = replace(speedup, low=min(speedup.low, surely)) if sure else speedup.maybe_none()
        change = f"{change} (next limit: {BINDS[said.binding]}){instead}"
        return as_next(facts, change, speedup, kind, advice.workload.settings.changed_to(said.settings))

    def more_workers(self, change: str, kind: str, workers: int, settings: dict[str, int] | None = None) -> Next:
        """Predict what so many workers could supply on these CPUs, if each gets the CPU it asks for; where other
        programs take the CPU from a training that prepares its batches itself, if each gets what that gets now."""
        per_sample_ms, cpu_pct, facts = self.loader.make_ms_per_sample, self.loader.cpu_pct, self.facts
        if math.isnan(per_sample_ms) or not facts.samples:
            return self.overlapping(change, kind, settings=settings)
        taken = facts.crowded and facts.made_in_training
        unqueued = 1.0 if taken else 1 - min(99.0, measured_or(self.queued_pct)) / 100
        supply, budget = workers * 1e3 / (per_sample_ms * unqueued), self.facts.sampled.cpu_budget
        if cpu_pct > 0:
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
        waiting, what = self.loader.waiting_pct, "Waiting for neither CPU nor reads, share of preparing a sample"
        shows = Evidence(what, waiting, "%", f"below {100 * MOSTLY:.0f} %")
        return (shows,) if waiting >= 100 * MOSTLY else ()

    @property
    def costliest(self) -> tuple[str, float] | None:
        """Stage that making batches takes most time for, in words, and its share in percent, NaN where not measured.

        By the loader's own clocks where those tell, else as stack samples saw it; `None` where neither does.
        """
        loader, seen = self.loader, self.facts.stages
        stage = loader.costliest
        if seen is not None and seen.costliest is not None and loader.unsplit_pct >= 0 and stage != "reading":
            stage, share = seen.costliest
            return STAGES[stage], 100 * share
        return None if stage is None else (stage, loader.stages.get(stage, math.nan))

    @property
    def stage(self) -> tuple[Evidence, ...]:
        """What the loader spends most of its time on."""
        if self.costliest is None:
            return ()
        stage, share = self.costliest
        return (Evidence(f"{stage.capitalize()}, share of preparing batches", share, "%"),)


CPUS = "cpus_used", "foreign_cpus", "cpu_budget"
"""Figures of the CPUs that all rules about them show."""
