"""The wait for data that one rule has to explain, and what all these rules have in common."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

from ....record.schema import ThreadState
from ....record.tuning import DEFAULT_PREFETCH, LoaderSettings
from ...predict.advice import BINDS, MOST_WORKERS, VanishedWork
from ...predict.workload import Prediction
from ...run.exposed_data_wait import Spread
from ...run.loader_stats import BUSY, QUEUED_PCT, SURELY_GROWS, LoaderStats
from ...run.resource_usage import BUDGET_USED
from ...shares import MOSTLY
from ...speedup import Speedup
from ...where.stages import STAGES
from ..claim import Claim
from ..finding import LEAST_GAIN, Evidence, Next
from ..speedup import as_next, by_settings

MOSTLY_OWN = 0.6
"""Share of its CPU budget that a job uses, from which it has used that up where other programs use what is left; where
they do not, it is `BUDGET_USED`."""
LOADER_CPU_PCT = 80.0
"""CPU time and reading of a loader, in percent of its working time, below which it waits for a CPU: a guess, for
loaders whose waiting for a CPU was not measured."""
MOSTLY_WAITING_PCT = 50.0
"""Waiting for neither a CPU nor reads, in percent of the time spent making batches, from which a loader needs more
hands rather than CPUs."""
MOSTLY_READY = 0.5
"""Batches that lie ready on average, as a share of those that a loader can hold, from which it keeps up."""
READ_TIMES = 10
"""Bytes that are read for each byte of a batch, from which most of them are not used."""
LEAST_READ_BYTES = 10_000
"""Bytes read for a sample up to which it does not matter how many of them are used."""
FAULT_MS = 0.5e-3
"""What a page fault without I/O takes, about."""
LEAST_FAULTS = 0.05
"""Share of preparing a batch that its page faults have to take, about, to be told."""
PAGE_BYTES = 4096
HANDOVER_MS = 1.0
"""Time of preparing a batch below which handing it over by a worker would take as long."""
NEARLY_AS_LONG = 4
"""Times that handing a batch over takes, up to which making it hardly takes longer: what it disturbs comes on top."""


ENOUGH_WORKERS = (
    "Make samples cheaper (smaller files, fewer transforms) or add CPUs: all workers that the CPUs can run are busy"
)


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
        return ready >= max(1.0, MOSTLY_READY * capacity)

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
        return self.facts.sampled.tree_cpus is not None and self.facts.sampled.cpu_budget is not None

    @property
    def cpu_used(self) -> bool:
        """Whether this job has used up the CPUs it may use: most of them where other programs use the rest."""
        used, budget = self._cpus_used, self.facts.sampled.cpu_budget
        if used is None or budget is None or used < (MOSTLY_OWN if self.starved else BUDGET_USED) * budget:
            return False
        # A training on the processor uses it up whatever its loader does.
        return self.facts.device_kind != "cpu" or not self.says_nothing

    @property
    def _cpus_used(self) -> float | None:
        """CPUs that this job kept busy; while it prepared the batches in question, where these are not all."""
        used, loader = self.facts.sampled.tree_cpus, self.loader
        if used is None or loader.cpu_pct is None or self.facts.loader_unread is None:
            return used
        return max(used, loader.workers * loader.cpu_pct / 100 * (loader.worker_busy_pct or 0.0) / 100)

    @property
    def few_cpus_left(self) -> bool:
        """Whether this job leaves less than one of the CPUs that it may use."""
        used, budget = self.facts.sampled.tree_cpus, self.facts.sampled.cpu_budget
        return used is not None and budget is not None and budget - used < 1

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
        return loader.cpu_pct is not None and loader.cpu_pct + (loader.read_pct or 0.0) < LOADER_CPU_PCT

    @property
    def waits_mostly(self) -> bool:
        """Whether the loader mostly waits, for neither a CPU nor reads. Not on an accelerator with the CPUs used up:
        there it is for other threads of the loader."""
        waiting = self.loader.waiting_pct
        if waiting is None or waiting < MOSTLY_WAITING_PCT:
            return False
        return self.facts.device_kind == "cpu" or not self.cpu_used

    @property
    def pace_ms(self) -> float:
        """Time of a step as it would be without waiting for data."""
        return (self.facts.parts.wall_ns - self.facts.parts.input_ns) / self.facts.window.count / 1e6

    def predicted(
        self, which: Callable[[LoaderSettings], bool], in_order: bool = True, persistent: bool = False
    ) -> Prediction | None:
        """The cheapest such settings that are nearly as fast as any, as the run's replay has it; `None` where there is
        none, or it does not even say of the recorded settings what they did. `persistent`: also workers that persist,
        where those of the run do not."""
        facts, advice = self.facts, self.facts.advice
        if advice is None or not facts.samples_known or self.share < LEAST_GAIN:
            return None
        stepping = facts.parts.wall_ns - facts.parts.boundary_ns
        if not advice.agrees(facts.samples * 1e9 / stepping):
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
            return Wanted(self._estimated_workers, "")
        ahead = said.settings.prefetch_factor
        besides = "" if ahead in (facts.set_prefetch, DEFAULT_PREFETCH) else f", prefetch_factor={ahead}"
        if said.settings.persistent_workers and not facts.persistent_workers:
            besides += ", persistent_workers=True"
        return Wanted(said.settings.num_workers, besides, said)

    @property
    def _estimated_workers(self) -> int:
        """Where the run does not tell enough for a replay: as many as batches have to be under way at a time, busy no
        more than `BUSY`, since batches differ. No more than the CPUs can run, nor than make two batches of an
        epoch, and no fewer than there are."""
        facts, work_ms = self.facts, self.loader.work_ms_per_batch
        now = 0 if facts.made_in_training else self.loader.workers
        budget = facts.sampled.cpu_budget
        if work_ms is None:
            return max(1, now, math.floor(budget or 2))
        most = MOST_WORKERS
        if budget is not None:
            most = min(most, max(1, math.floor(budget / self._cpus_of_a_worker)))
        if facts.waits.batches_per_epoch is not None:
            most = min(most, max(1, int(facts.waits.batches_per_epoch) // 2))
        enough = math.ceil(work_ms / self.pace_ms / BUSY) if self.pace_ms else most
        return max(1, now, min(enough, most))

    def beyond_cpus(self, workers: int) -> str:
        """That so many workers are more than the CPUs, and why that is right, to go behind their number; else empty."""
        cpus = self.facts.sampled.cpu_budget
        more = cpus is not None and workers > max(1.0, cpus) and self._cpus_of_a_worker <= MOSTLY
        return " (more than CPUs, since they mostly wait)" if more else ""

    @property
    def _cpus_of_a_worker(self) -> float:
        """What a worker would use if it never waited for a CPU: all of one where how much it waits is not known, and
        may be much."""
        cpu, queued = self.loader.cpu_pct, self.queued_pct
        if queued is None and self.facts.crowded:
            return 1.0
        queued = queued or 0.0
        if cpu is None or queued >= 100:
            return 1.0
        return min(1.0, max(0.01, cpu / (100 - queued)))

    # What to change.

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
        """A change to these settings, or what else might be done."""
        if wanted.said is not None:
            return self.as_predicted(change, wanted.said, instead).of("workers")
        if not self.facts.made_in_training and wanted.workers <= self.loader.workers:
            return self.lighter(ENOUGH_WORKERS, VanishedWork(making=1.0), likely=0.5, kind="cheaper")
        return replace(
            self.more_workers(change + instead, wanted.workers), settings={"num_workers": wanted.workers}
        ).of("workers")

    def as_predicted(self, change: str, said: Prediction, instead: str = "") -> Next:
        """A change to settings that the run was replayed with, and what holds the training up then."""
        facts, advice = self.facts, self.facts.advice
        assert advice is not None
        speedup = by_settings(facts, said)
        if said.settings.num_workers > max(1, facts.set_workers or 0) and not self.concurrency_helps:
            speedup = self._if_it_helps(speedup)
        change = f"{change} (next limit: {BINDS[said.binding]}){instead}"
        return replace(as_next(facts, change, speedup), settings=advice.workload.settings.changed_to(said.settings))

    def _if_it_helps(self, speedup: Speedup) -> Speedup:
        """The speedup of several workers that may have to wait for each other. From none to one nothing has to be done
        at a time but making and computing: so much is gained in any case."""
        facts, advice = self.facts, self.facts.advice
        one = None if facts.set_workers or advice is None else advice.cheapest(lambda each: each.num_workers == 1)
        surely = 1.0 if one is None else by_settings(facts, one).low
        return replace(speedup, low=min(speedup.low, surely)) if surely > 1 + LEAST_GAIN else speedup.maybe_none()

    def more_workers(self, change: str, workers: int) -> Next:
        """What so many workers could supply on these CPUs, if each gets the CPU it asks for; where other programs take
        the CPU from a training that prepares its batches itself, if each gets what that gets now."""
        per_sample_ms, cpu_pct, facts = self.loader.make_ms_per_sample, self.loader.cpu_pct, self.facts
        if per_sample_ms is None or not facts.samples:
            return self.overlapping(change)
        taken = facts.crowded and facts.made_in_training
        unqueued = 1.0 if taken else 1 - min(99.0, self.queued_pct or 0.0) / 100
        supply = workers * 1e3 / (per_sample_ms * unqueued)
        budget = facts.sampled.cpu_budget
        if budget is not None and cpu_pct:
            supply = min(supply, budget * 1e3 / (per_sample_ms * min(cpu_pct, 100.0) / 100))
        return self.overlapping(change, supply * facts.parts.wall_ns / 1e9 / facts.samples)

    # What is shown for it.

    @property
    def cpu_evidence(self) -> tuple[Evidence, ...]:
        return self.evidence("cpus_used"), self.evidence("foreign_cpus"), self.evidence("cpu_budget")

    @property
    def pace_evidence(self) -> tuple[Evidence, ...]:
        return (
            Evidence("Preparing a batch", self.loader.work_ms_per_batch, "ms in one worker"),
            Evidence("Step without the wait", self.pace_ms, "ms"),
        )

    @property
    def waiting_evidence(self) -> tuple[Evidence, ...]:
        waiting = self.loader.waiting_pct
        if waiting is None or waiting < MOSTLY_WAITING_PCT:
            return ()
        what = "Waiting for neither CPU nor reads, share of preparing a sample"
        return (Evidence(what, waiting, "%", f"below {MOSTLY_WAITING_PCT:.0f} %"),)

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
    def stage_evidence(self) -> tuple[Evidence, ...]:
        """What the loader spends most of its time on, and what it touches for that."""
        stage = () if self.costliest is None else self.costliest
        taken = (Evidence(f"{stage[0].capitalize()}, share of preparing batches", stage[1], "%"),) if stage else ()
        return (*taken, *self.touched_evidence)

    @property
    def touched_evidence(self) -> tuple[Evidence, ...]:
        """Bytes read and pages touched, where they are many more than a batch has."""
        loader, samples = self.loader, self.facts.batch_size
        read, nbytes = loader.read_chars_bytes_per_sample, loader.mean_batch_bytes
        faults = loader.minor_faults_per_batch
        used = nbytes / samples if nbytes and samples else None
        shown = []
        if read is not None and used is not None and read >= max(LEAST_READ_BYTES, READ_TIMES * used):
            shown.append(Evidence("Bytes read for a sample", read, "bytes"))
            shown.append(Evidence("Bytes of a sample in its batch", used, "bytes"))
        took = 0.0 if faults is None else faults * FAULT_MS
        if took and loader.work_ms_per_batch and took >= LEAST_FAULTS * loader.work_ms_per_batch:
            expected = "" if nbytes is None else f"about {nbytes / PAGE_BYTES:.0f}"
            shown.append(Evidence("Page faults while preparing a batch", faults, "", expected))
        return tuple(shown)


def count(workers: int) -> str:
    """`1 worker is`, `4 workers are`."""
    return "1 worker is" if workers == 1 else f"{workers} workers are"
