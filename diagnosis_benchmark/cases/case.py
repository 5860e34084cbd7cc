"""What is planted: a training as data, the cause it shows, and the share of the time that this costs by design."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from whyidle.devices.conditions import Conditions

EVERY = "every"
FIRST = "first"
SLOW = "slow"
PLANTED = "planted"
COLD, GARBAGE, GIL, GROWN, LAUNCH, RETRY = "cold", "garbage", "gil", "grown", "launch", "retry"
SAMPLER = "sampler"
"""Tags of stamps: see `loop.py`, `samples.py`, `host.py` and `accelerator.py`."""

SEVERITIES = ("mild", "middle", "severe")
"""About 10 to 15 %, 30 % and 60 % of wall time, where the cause can cost that much."""
CONTROL = "control"

PARTS = ("start", "fetch", "copying", "sync", "host", "boundary", "compute", "lost", "lost copying")
"""What the training's own stamps and the device's spans tell apart; `copying` is the device's. What is lost need not
have been: computing or copying that takes longer than it must. `start` lies before the first step, and is a share of
the whole run."""

GROWS_FROM = 0.15
"""Share of a run's steps after which what is planted to grow begins to."""

Hit = str | Callable[[str], bool]
"""Which stamps of the part belong to the fault: `every`, those with this tag, or those whose tag the function takes."""
Band = tuple[float, float]


@dataclass(frozen=True)
class PlannedReads:
    """Files that samples are read from."""

    bytes: int
    """Read in one request."""
    ms: float = 0.0
    """Such requests, at random places of the file, go on until so long has passed; 0: one request."""
    cold: bool = True
    """What is to be read is dropped from the page cache before."""
    bytes_per_s: float | None = None
    """The medium's pace; `None`: as fast as this machine's."""
    once: bool = False
    """In the first epoch only: from then on the samples are in memory."""


@dataclass(frozen=True)
class Data:
    """How a sample is made, and what it is."""

    sleep_ms: float = 0.0
    """Waiting for something that is no CPU."""
    burn_ms: float = 0.0
    """CPU time, in Python."""
    native_burn_ms: float = 0.0
    """CPU time in a library that lets go of the interpreter's lock."""
    sigma: float = 0.0
    """Of a lognormal factor on the times, drawn for each sample; its mean is 1."""
    slow_every: int = 0
    """Each so-manieth batch holds one slow sample; 0: none does."""
    slow_first: int = 0
    """The first batch that does."""
    slow_ms: float = 0.0
    """How much longer that sample takes."""
    cold_ms: float = 0.0
    """How much longer a sample takes the first time it is made, in whatever process."""
    floats: int = 16
    tensors: int = 1
    """Tensors that a batch consists of."""
    arrays: bool = False
    """Batches are NumPy arrays, which are pickled on their way."""
    handover_ms: float = 0.0
    """What handing a batch over takes: its size is scaled so that it does."""
    new_shape_every: int = 0
    """Each so-manieth batch has a shape that none had before; 0: all have the same."""
    width_sigma: float = 0.0
    """Of a lognormal factor on the floats of a batch's samples, in multiples of 8; computing takes as much longer."""
    length_tail: float = 0.0
    """Exponent of the Pareto distribution of the samples' lengths, the shortest of which are `floats` long. A batch is
    padded to its longest, and computing takes as much longer; 0: all are equally long."""
    unpickling_ms: float = 0.0
    """What it takes the training to unpickle a batch that a worker sends."""
    grows_ms: float = 0.0
    """How much longer the last sample takes than those before `GROWS_FROM`; in between it grows evenly."""
    longer: float = 1.0
    """How many times as long as the first batch's the samples of the last are; computing takes as much longer."""
    first_worker_only: bool = False
    """An iterable dataset that gives all its samples to the first worker."""
    reading: PlannedReads | None = None
    shared: str = ""
    """What workers share as they wait for a sample: `lock` (one waits, the others for it), `rate` (each waits until
    what was asked for before has come); empty: nothing, each waits by itself."""
    kept_mb: float = 0.0
    """Memory that a sample leaves behind in its worker."""
    kept_most: int = 0
    """Samples of a worker that do; 0: all."""
    left_out: float = 0.0
    """Share of the samples, at random, that are `None` when they have been made, and that `collate_fn` leaves out."""
    streamed: str = ""
    """An iterable dataset, the same for all workers: `whole`: each gives all of it; `own`: each makes all of it and
    gives its own part; `chosen`: each goes through all of it and makes its own part; `packed`: of each two samples
    made one is put together."""


@dataclass(frozen=True)
class PlannedSampler:
    """A batch sampler that takes its time, in the training's process."""

    epoch_ms: float = 0.0
    """When its iterator is made, with the CPU idle: as one that reads the data set to shuffle it."""
    batch_ms: float = 0.0
    """For each batch, with the CPU idle."""
    batch_burn_ms: float = 0.0
    """The same on the CPU: as one that sorts or searches."""


@dataclass(frozen=True)
class Loader:
    """The settings of the DataLoader, and what its workers do when they start."""

    workers: int = 2
    batch: int = 4
    prefetch: int = 2
    persistent: bool = True
    start: str = "fork"
    in_order: bool = True
    start_ms: float = 0.0
    """What `worker_init_fn` takes."""
    threads: int = 0
    """Threads that each worker keeps busy, beside the one that makes batches."""
    cpus: int | None = None
    """CPUs that workers confine themselves to."""
    sampler: PlannedSampler | None = None
    """`None`: torch's own, of indices in their order."""


@dataclass(frozen=True)
class PlannedStep:
    """One step of the training."""

    compute_ms: float = 20.0
    of_handover: float = 0.0
    """If set: computes so many times as long as handing a batch over and a step of the host take."""
    kernels: int = 300
    """Launches that takes: 1024 fit into the device's queue, so the host is at most three such steps ahead."""
    copy_bytes: int = 0
    pinned: bool = True
    ahead: bool = False
    sync_every: int = 0
    """The loss is read each so many steps; 0: only at the end of an epoch."""
    host_ms: float = 0.0
    """Work of the loop after the step was queued, with the CPU idle: logging to a slow place, say."""
    host_burn_ms: float = 0.0
    """The same on the CPU."""
    stage_ms: float = 0.0
    """What the loop does with a batch before it calls its model (packing, tokenising), with the CPU idle."""
    stage_burn_ms: float = 0.0
    """The same on the CPU."""
    stage_in_generator: bool = False
    """It is done by a generator between the loader and the loop."""
    grows_ms: float = 0.0
    """How much longer the loop's own work takes after the last step than before `GROWS_FROM`, slept."""
    compute_grows_ms: float = 0.0
    """How much longer the last step computes than those before `GROWS_FROM`."""
    later: float = 1.0
    """How many times as long steps compute from half of the epochs on."""
    host_every: int = 1
    accumulate: int = 1
    """Batches for each step of the optimizer."""
    slow_start: int = 0
    """Steps at the beginning that compute ten times as long."""
    reads: int = 0
    """Calls in the midst of each step that wait for the device, and then make something of what they read."""
    read_ms: float = 0.0
    """What each of them takes when the device is done."""
    compiled: bool = False
    """The net is compiled, anew for each shape."""
    passed_over: int = 0
    """Of so many batches the loop computes with one, and passes the others over; 0: none is."""


@dataclass(frozen=True)
class PlannedHost:
    """What else goes on in the training process."""

    collecting: float = 0.0
    """Full garbage collections are asked for so often that they take this share of a step's time."""
    objects: int = 0
    """Alive for each of them to look through, beside those of the libraries."""
    threads: int = 0
    """Threads that run Python."""
    switch_ms: float = 5.0
    """The interpreter's switch interval: so long one of them may keep the lock."""
    releases: int = 0
    """How often the loop lets go of the interpreter's lock after each step, as reads and waits do."""
    releases_within: int = 0
    """The same in the midst of each step, between the launches."""


@dataclass(frozen=True)
class PlannedDevice:
    """What the emulated device is like, and how it is used."""

    conditions: Conditions | None = None
    launch_us: float = 0.0
    """CPU time that each launch takes the host; 0: a step is queued at once."""
    first_ms: float = 0.0
    """How much longer a step computes whose shape is seen for the first time."""
    retry_ms: float = 0.0
    """What it takes the allocator to give its cache back."""
    retry_every: int = 0
    """Each so-manieth step needs more memory than any before, and finds none; 0: there is enough."""
    retry_from: int = 0
    """The first step of which that holds."""


@dataclass(frozen=True)
class Between:
    """What happens at the end of each epoch."""

    sync: bool = True
    """The loss is read."""
    validation_batches: int = 0
    validation_ms: float = 0.0
    """A sample of the validation waits so long."""
    validation_workers: int = 0
    save_ms: float = 0.0
    """A checkpoint takes so long."""
    pause_ms: float = 0.0
    """Something else takes so long."""


@dataclass(frozen=True)
class Start:
    """What the program does before its first step."""

    index_s: float = 0.0
    """Making an index of the data set, slept."""
    skip: int = 0
    """Batches that are fetched and not trained on, as by a resume."""


@dataclass(frozen=True)
class Machine:
    """What is around the training."""

    foreign: int = 0
    """Busy processes that are not the training's."""
    foreign_rests: bool = False
    """They are busy for half of the time, in turns of 0.3 s."""
    cpus: int | None = None
    """CPUs that all of it is confined to."""
    quota: float | None = None
    """CPUs' worth of time that a control group grants."""
    memory_mb: int | None = None
    """What the workers may take until the machine is full, which is emulated: what it then costs to write pages to
    storage is planted as time that samples take."""


@dataclass(frozen=True)
class Plan:
    data: Data = field(default_factory=Data)
    loader: Loader = field(default_factory=Loader)
    step: PlannedStep = field(default_factory=PlannedStep)
    between: Between = field(default_factory=Between)
    start: Start = field(default_factory=Start)
    machine: Machine = field(default_factory=Machine)
    host: PlannedHost = field(default_factory=PlannedHost)
    accelerator: PlannedDevice = field(default_factory=PlannedDevice)
    epochs: int = 1
    batches: int = 80
    """In an epoch."""
    ranks: int = 1
    """Of several, all but one are never late."""
    device: str = "emulated"
    """`emulated` or `cpu`; on `cpu` the computation is real."""

    @property
    def steps(self) -> int:
        return self.epochs * self.batches

    def grown(self, step: int) -> float:
        """How far what grows has grown at a step, 0 to 1."""
        begin = GROWS_FROM * self.steps
        return max(0.0, (step - begin) / (self.steps - begin))

    def is_slow(self, batch: int) -> bool:
        """Whether a batch of the epoch holds a slow sample."""
        data = self.data
        return data.slow_every > 0 and batch >= data.slow_first and (batch - data.slow_first) % data.slow_every == 0

    def is_interrupted(self, step: int) -> bool:
        """Whether the loop does work of its own after this step, or before its model is called."""
        planned = self.step
        if planned.stage_ms or planned.stage_burn_ms:
            return True
        return bool(planned.host_ms or planned.host_burn_ms) and step % planned.host_every == planned.host_every - 1


@dataclass(frozen=True)
class Planted:
    """One cause of a case: where it costs time, and how much by design."""

    cause: str
    part: str
    hit: Hit
    share: Band | None


@dataclass(frozen=True)
class Case:
    """A training whose cause is known.

    `part` and `hit` may be one for all causes, or a tuple with one for each.
    """

    name: str
    causes: tuple[str, ...]
    """Codes of the contract; none: a healthy control. Of two, neither is first unless it costs clearly more."""
    severity: str
    plan: Plan
    part: str | tuple[str, ...] = "fetch"
    hit: Hit | tuple[Hit, ...] = EVERY
    share: Band | None = None
    """Band of the true share, 0..1 of wall time, on a machine with two idle CPUs; of a compound that of the first."""
    note: str = ""
    needs: tuple[str, ...] = ()
    """What the machine must have: `cgroup`, say."""
    stacks: bool = False
    """Whether the stacks of training and workers are looked at, as `run` does."""
    shares: tuple[Band | None, ...] = ()
    """Of a compound: the band of each cause."""

    @property
    def kind(self) -> str:
        """`control`, `fault` or `compound`."""
        return ("control", "fault", "compound")[min(2, len(self.causes))]

    @property
    def planted(self) -> tuple[Planted, ...]:
        return tuple(
            Planted(cause, self._part(number), self._hit(number), self._share(number))
            for number, cause in enumerate(self.causes)
        )

    def steps_hit(self, number: int = 0) -> frozenset[int]:
        """The steps, counted from 0 over all epochs, that a cause hits by design."""
        plan, hit = self.plan, self._hit(number)
        steps = range(plan.steps)
        if hit == FIRST:
            return frozenset(s for s in steps if s % plan.batches == 0)
        if hit == SLOW:
            return frozenset(s for s in steps if plan.is_slow(s % plan.batches))
        if hit == GROWN:
            return frozenset(s for s in steps if plan.grown(s) > 0)
        if hit == PLANTED:
            return frozenset(s for s in steps if plan.is_interrupted(s))
        return frozenset(steps)

    def _part(self, number: int) -> str:
        return self.part if isinstance(self.part, str) else self.part[number]

    def _hit(self, number: int) -> Hit:
        return self.hit[number] if isinstance(self.hit, tuple) else self.hit

    def _share(self, number: int) -> Band | None:
        return self.shares[number] if self.shares else self.share if number == 0 else None
