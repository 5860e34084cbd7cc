"""The kinds of record and their fields.

Every field takes eight bytes, little-endian: `i8` for nanoseconds, bytes and counts, `f8` for percentages.
Every record begins with `seq` (1, 2, 3 … within a file), which is stored last: a record whose `seq` does not
fit its place is torn and is cut. A record's size is a power of two, so that records never straddle a page.

*Not measured* is `NOT_MEASURED` in an `i8` field and NaN in an `f8` field; it is never 0.
All `_ns` stamps are CLOCK_MONOTONIC, one clock for all processes of a host.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

import numpy as np

FORMAT_VERSION = 2
MAGIC = b"STALLREC"
NOT_MEASURED = -(2**63)
"""The `i8` value of a field that was not measured: the smallest one, which no clock or counter reaches."""
NAN = float("nan")
Row = list[float | int]
"""The fields of one record after `seq`, in order: what `RecordWriter.append` takes."""

HEADER_BYTES = 4096
"""One page: magic, version, kind, sizes, process, then counters the writer updates (see `segment.py`)."""


HEADER = struct.Struct("<8sIIIIqqq16s")
"""The first page: magic, version, header bytes, record bytes, rank, pid, dropped records, closed (0/1), kind."""
COUNTERS_OFFSET = struct.calcsize("<8sIIIIq")
"""Where dropped records and *closed* are."""


@dataclass(frozen=True)
class Field:
    name: str
    meaning: str
    type: str = "i8"

    @property
    def unit(self) -> str:
        """Read off the end of the name, where every field carries its unit."""
        return _UNITS.get(self.name.rpartition("_")[2], "count")


_ANY = ("value", "batch", "stream", "slowest_index", "slowest_name", "name", "fingerprint", "stack")
"""Fields that hold a number which stands for something, as large as numbers come."""
_UNITS = {"ns": "ns", "us": "µs", "bytes": "bytes", "pct": "%", "mw": "mW", "mhz": "MHz", "c": "degrees C"}


class Kind:
    """One kind of record: its name is the first part of its files' names."""

    def __init__(self, name: str, record_bytes: int, *fields: Field) -> None:
        self.name = name
        self.record_bytes = record_bytes
        self.fields = (Field("seq", "1, 2, 3 … within the file, stored last"), *fields)
        types = [(f.name, f"<{f.type}") for f in self.fields]
        spare = range(record_bytes // 8 - len(types))
        self.dtype: np.dtype[np.void] = np.dtype(types + [(f"_{number}", "<i8") for number in spare])
        """For `numpy.fromfile`; unused slots at the end are `_0`, `_1`, …"""
        self._places = {f.name: (place, f.type == "i8") for place, f in enumerate(fields)}
        """Field → its place in a body, and whether it is an `i8`."""
        self.body = struct.Struct("<" + "".join("d" if f.type == "f8" else "q" for f in fields))
        """All fields after `seq`, for one store."""
        sizes = {"flags": 2**62} | dict.fromkeys(_ANY, 2**63 - 1)
        usual = [2**63 - 1 if f.type == "f8" else 2**42 if f.unit == "count" else 2**60 for f in self.fields]
        self.most = np.array([sizes.get(f.name, most) for f, most in zip(self.fields, usual, strict=True)])
        """Largest size of each field, of either sign, that anything measures; for floats, whose bits are no number, and
        for what stands for something, the largest that there is."""

    def offset(self, field: str) -> int:
        """Give the byte offset of a field within a record."""
        return 8 * [f.name for f in self.fields].index(field)

    def missing(self) -> Row:
        """Make a body of which nothing has been measured yet."""
        return [NAN if f.type == "f8" else NOT_MEASURED for f in self.fields[1:]]

    def row(self, **values: float | None) -> Row:
        """Make a body of which `values` were measured. `None`, and what no `i8` can hold, stays not measured: NVML
        marks an absent memory figure with 2^64 - 1, for instance."""
        body = self.missing()
        for name, value in values.items():
            place, whole = self._places[name]
            if value is not None and not (whole and abs(value) >= 2**63):
                body[place] = value
        return body

    def measured(self, row: Row) -> dict[str, float]:
        """Name those values of a body that were measured."""
        pairs = zip(self._places, row, strict=True)
        return {name: value for name, value in pairs if value != NOT_MEASURED and value == value}


STEP = Kind(
    "step",
    256,
    Field("step", "number of the step within the process, from 0"),
    Field("epoch", "number of the epoch, from 0"),
    Field("flags", "sum of StepFlag values, and the elements of the batch"),
    Field("samples", "samples in the batch"),
    Field("fetch_begin_ns", "the training loop asked for the batch: the step begins here"),
    Field("fetch_end_ns", "the batch was handed to the training loop; not measured where no fetch was seen"),
    Field("queue_ready", "finished batches that waited when the fetch began"),
    Field("queue_capacity", "how many finished batches the loader can hold"),
    Field("copy_begin_ns", "host: the call that copies the batch, or its first part, to the device began"),
    Field("copy_end_ns", "host: that call returned"),
    Field("copy_bytes", "bytes copied by it; further parts are PAUSE records"),
    Field("forward_begin_ns", "host: the forward pass began"),
    Field("backward_begin_ns", "host: the backward pass began"),
    Field("optimizer_begin_ns", "host: the optimizer began"),
    Field("optimizer_end_ns", "host: the optimizer returned"),
    Field("sync_ns", "host: total time in calls that waited for the device within the step"),
    Field("step_end_ns", "host: the last thing the hooks saw of this step"),
    Field("gc_ns", "Python garbage collection within the step"),
    Field("cpu_ns", "CPU time of the training thread within the step"),
    Field("overhead_ns", "time spent in whyidle's own code within the step"),
    Field("memory_bytes", "device memory in use at the end of the step"),
    Field("skipped", "steps just before this one that the hooks left out, to stay cheap"),
    Field("skipped_samples", "samples in those"),
    Field("skipped_end_ns", "when the last of those ended, if something else than a step followed it"),
    Field("device_before_ns", "device: all that was queued before this step was done; only after work without marks"),
    Field("device_copy_begin_ns", "device: the copy of this batch began"),
    Field("device_copy_end_ns", "device: the copy of this batch ended"),
    Field("device_begin_ns", "device: first compute of this step began"),
    Field("device_end_ns", "device: last compute of this step ended; stored last of the five"),
    Field("loader", "which of the process's loader iterators delivered the batch, from 1"),
    Field("batch", "which of its batches: its pass over the data times 2**32, plus the number within the pass"),
)
"""One training step. The five device stamps are filled in later, when the device has reached them."""

BATCH = Kind(
    "batch",
    256,
    Field("step", "the step that consumed the batch, where its maker was told"),
    Field("worker", "worker process or thread that made it, from 0"),
    Field("samples", "samples in the batch"),
    Field("begin_ns", "work on the batch began"),
    Field("end_ns", "the batch was complete in the worker"),
    Field("read_ns", "waiting in file reads"),
    Field("decode_ns", "decoding"),
    Field("transform_ns", "resizing, augmentation, normalising"),
    Field("collate_ns", "putting samples together"),
    Field("cpu_ns", "CPU time of the making threads"),
    Field("minor_faults", "page faults without I/O"),
    Field("read_bytes", "bytes read from storage; of a loader that stamps its own work, from files, cached or not"),
    Field("batch_bytes", "bytes of the finished batch"),
    Field("threads", "threads that work on batches in this worker at a time"),
    Field("training", "process id of the training that the batch was made for"),
    Field("loader", "as in the step that consumed it"),
    Field("batch", "as in the step that consumed it"),
    Field("idle_ns", "the worker waited so long for the order to make this batch"),
    Field("run_queue_ns", "ready to run, but waiting for a CPU"),
    Field("read_chars_bytes", "bytes read, from cache or storage"),
    Field("major_faults", "page faults that needed I/O"),
    Field("slowest_index", "index of the sample that took longest"),
    Field("slowest_ns", "how long it took"),
    Field("slowest_name", "number of its file's name in the run's names"),
    Field("skipped", "batches the worker made just before this one and did not record, to stay cheap"),
    Field("skipped_samples", "samples in those"),
    Field("skipped_ns", "time it made those in"),
    Field("process_cpu_ns", "CPU time of all threads of its process meanwhile, where that does nothing else"),
    Field("cpus", "CPUs that the worker may run on"),
    Field("first_cpu", "the lowest-numbered of these"),
    Field("sent_bytes", "bytes its process wrote since it began to make the batch recorded before"),
)
"""One batch as its maker saw it. Durations of several threads are summed.

`step`, or `training`, `loader` and `batch`, tell which step consumed it.
"""

TRANSFORM = Kind(
    "transform",
    64,
    Field("training", "process id of the training"),
    Field("worker", "worker that measured it, from 0"),
    Field("name", "number of the transform's name in the run's names"),
    Field("position", "place among the transforms of its dataset, from 0"),
    Field("samples", "calls measured"),
    Field("total_ns", "time in them"),
    Field("loader", "as in the batch's record"),
)
"""What one transform took for the samples of one batch. Few batches are measured so."""

CONTENT = Kind(
    "content",
    128,
    Field("training", "process id of the training"),
    Field("worker", "worker process that made the batch, from 0"),
    Field("loader", "as in the batch's record"),
    Field("batch", "as in the batch's record"),
    Field("made", "samples made for the batch"),
    Field("present", "of these, samples that are not None"),
    Field("kept", "of these, samples that are in it, by the sizes of its tensors"),
    Field("fingerprint", "number that stands for its first tensor: equal for equal ones"),
    Field("stream_ns", "time in which an iterable dataset was seen to make its samples"),
    Field("unused_ns", "of that, time in making what it did not give"),
    Field("tensors", "tensors in the batch; of long lists some items are looked at and stand for all"),
    Field("tensor_bytes", "bytes of those"),
    Field("objects", "whatever else is in it and no list of things: arrays, strings, numbers"),
    Field("object_bytes", "bytes of the arrays and strings among those"),
)
"""What came of the samples of a batch, and what it consists of. The first batches of a worker are looked at so,
then few."""

PAUSE = Kind(
    "pause",
    64,
    Field("step", "the step it happened in"),
    Field("what", "PauseKind value"),
    Field("begin_ns", "host: the call began"),
    Field("end_ns", "host: the call returned"),
    Field("amount_bytes", "bytes moved, for copies"),
    Field("device_begin_ns", "device: all that was queued before the call was done"),
    Field("device_end_ns", "device: it could go on with what came after the call"),
)
"""A call within a step that waited for the device, or copied: between its two device stamps the stream that computes
had nothing to compute (but for COPY_AHEAD). The later ones of very many such calls in a step have no device stamps."""

DEVICE = Kind(
    "device",
    256,
    Field("t_ns", "when the sample was taken, or the end of its window"),
    Field("device", "number of the device among those of the run, from 0"),
    Field("window_ns", "length of the utilisation window"),
    Field("utilisation_pct", "share of the window in which any kernel ran (NVML utilisation)", "f8"),
    Field("sm_active_pct", "multiprocessors with work, averaged over the window (GPM)", "f8"),
    Field("tensor_active_pct", "tensor cores active (GPM)", "f8"),
    Field("dram_active_pct", "device memory bandwidth used (GPM)", "f8"),
    Field("memory_used_bytes", "device memory in use by all processes"),
    Field("memory_total_bytes", "device memory"),
    Field("power_mw", "power draw"),
    Field("sm_clock_mhz", "multiprocessor clock"),
    Field("temperature_c", "GPU temperature"),
    Field("throttle_reasons", "NVML bit mask of clock event reasons"),
    Field("power_capped_ns", "cumulative time held down by the power cap"),
    Field("thermal_ns", "cumulative time held down by temperature"),
    Field("pcie_generation", "current PCIe link generation"),
    Field("pcie_width", "current PCIe link width"),
    Field("pcie_rx_bytes", "cumulative bytes host to device"),
    Field("pcie_tx_bytes", "cumulative bytes device to host"),
    Field("processes", "processes with a context on the device"),
    Field("processes_bytes", "device memory of all those together"),
    Field("largest_process_bytes", "device memory of the one that holds most"),
    Field("sm_clock_max_mhz", "highest multiprocessor clock of this device"),
    Field("pcie_max_generation", "PCIe link generation that device and slot are capable of"),
    Field("pcie_max_width", "PCIe link width that device and slot are capable of"),
)
"""One look at an accelerator by the sampler."""

HOST = Kind(
    "host",
    256,
    Field("t_ns", "when the sample was taken"),
    Field("late_ns", "how much later than planned it was taken"),
    Field("cpus", "CPUs the job may use, in thousandths (affinity and quota)"),
    Field("machine_busy_pct", "CPU in use on the whole machine, of all its CPUs", "f8"),
    Field("machine_iowait_pct", "idle CPU with I/O outstanding", "f8"),
    Field("steal_pct", "CPU taken by the hypervisor", "f8"),
    Field("tree_cpu_ns", "cumulative CPU time of the training's process tree"),
    Field("main_cpu_ns", "cumulative CPU time of the training process alone"),
    Field("run_queue_ns", "cumulative time the tree's threads waited for a CPU"),
    Field("tree_processes", "processes in the tree"),
    Field("tree_rss_bytes", "resident memory of the tree, shared pages counted once per process"),
    Field("tree_pss_bytes", "resident memory of the tree, shared pages divided"),
    Field("read_chars_bytes", "cumulative bytes the tree read, from cache or storage"),
    Field("read_storage_bytes", "cumulative bytes the tree read from storage"),
    Field("major_faults", "cumulative page faults of the tree that needed I/O"),
    Field("minor_faults", "cumulative page faults of the tree that did not"),
    Field("memory_pressure_us", "cumulative PSI memory some"),
    Field("throttled_us", "cumulative time the cgroup was throttled"),
    Field("throttled_periods", "cumulative periods in which the cgroup was throttled"),
    Field("shm_used_bytes", "/dev/shm in use"),
    Field("shm_total_bytes", "/dev/shm size"),
    Field("memory_available_bytes", "memory that could still be given, by the machine and its control groups' limits"),
    Field("sampler_cpu_ns", "cumulative CPU time of the sampler itself"),
    Field("main_thread_queue_ns", "cumulative time its first thread, which normally trains, waited for a CPU"),
    Field("main_rss_bytes", "resident memory of the training process alone"),
    Field("tree_private_bytes", "of the tree's resident memory what each process has for itself"),
    Field("swap_used_bytes", "memory of the machine that lies in swap"),
)
"""One look at the host by the sampler; cumulative counters start wherever the kernel's stand."""

MEMORY = Kind(
    "memory",
    128,
    Field("t_ns", "when the sample was taken"),
    Field("whose", "MemoryLimitOf value; not measured, as all that is told of a limit: there is none"),
    Field("slows", "1: above the limit the kernel slows the group down (memory.high); 0: it kills"),
    Field("limit_bytes", "the limit, of the training's control groups, that leaves least"),
    Field("used_bytes", "memory that the group uses, but for what the kernel takes back when it is short"),
    Field("swap_limit_bytes", "what the group may put into swap; not measured: as much as there is"),
    Field("swap_used_bytes", "what it has there"),
    Field("oom_kills", "processes killed for want of memory so far: of the training's group, else of the machine"),
)
"""One look at the limits on the training's memory by the sampler. A limit above the machine's memory is none."""

SPAN = Kind(
    "span",
    64,
    Field("device", "number of the device among those of the run"),
    Field("stream", "stream the work ran on"),
    Field("what", "SpanKind value"),
    Field("begin_ns", "the engine began this work"),
    Field("end_ns", "the engine ended this work"),
    Field("amount_bytes", "bytes moved, for copies"),
)
"""Work of an emulated device, as it really happens on its timeline: the ground truth of a run."""

EVENT = Kind(
    "event",
    64,
    Field("t_ns", "when it happened"),
    Field("what", "EventKind value"),
    Field("value", "its number: the epoch, the exit code, …"),
    Field("end_ns", "when it ended, for things that last"),
)
"""Things that happen to a training outside its steps."""

STACK = Kind(
    "stack",
    64,
    Field("t_ns", "when the thread was looked at"),
    Field("process", "its process id"),
    Field("thread", "the kernel's number of the thread"),
    Field("stack", "number of its stack in the run's stacks; not measured: the look failed"),
    Field("state", "ThreadState value"),
    Field("flags", "sum of StackFlag values"),
    Field("parent", "process that started its process, where that is known"),
)
"""One look at the stack of a Python thread, of the training or of another process of its tree."""

_ALL = (STEP, BATCH, TRANSFORM, CONTENT, PAUSE, DEVICE, HOST, MEMORY, SPAN, EVENT, STACK)
KINDS = {kind.name: kind for kind in _ALL}


class StepFlag:
    """Bits of `step.flags`. The drained bits count only where DRAINED_KNOWN is set.

    From bit ELEMENTS_SHIFT on stands a number: the elements of the batch's tensors that were looked at, those of a
    step's further batches added; 0 where they are not known.
    """

    FIRST_OF_EPOCH = 1
    DRAINED_KNOWN = 2
    DRAINED_AT_ENTRY = 4
    """The device had nothing queued when the fetch began: it idled before the loader was asked."""
    DRAINED_AT_EXIT = 8
    """The device had nothing queued when the fetch ended: the wait cost it time."""
    PINNED = 16
    """The batch was copied from page-locked memory."""
    COPIED_AHEAD = 32
    """The copy ran on a side stream before the step asked for the batch."""
    OPTIMIZER = 64
    """An optimizer step happened."""
    COMPUTED_NOTHING = 256
    """The step's batch was not computed with, so it has no device stamps."""
    MARKS_DROPPED = 128
    """No device stamps: when its computation began, as many steps were still to run as can wait for their stamps."""
    FORWARD_AFTER = 2048
    """A forward pass, or most of it, ran after the step's optimizer or backward pass, and before the next fetch."""
    NEW_SHAPE = 4096
    """No batch before it had tensors of these shapes. Not said of batches whose tensors are not found."""
    FORWARD_SEEN = 16384
    """`forward_begin_ns` is when the model was called; otherwise it is when the batch was handed over."""
    SHAPE_KNOWN = 8192
    """Whether they are new was looked at."""
    ELEMENTS_SHIFT = 32
    """Not a flag: the lowest bit of the elements, see above."""
    MOST_ELEMENTS = (1 << 30) - 1
    """Not a flag: more elements are told as so many, which leaves the sign alone."""


class SpanKind:
    COMPUTE = 1
    COPY = 2


class PauseKind:
    SYNC = 1
    """A call that returns when the device is done: `.item()`, `.cpu()`, `synchronize()`."""
    COPY = 2
    """A copy to the device after the first of the step, from pageable memory: the host waited for it."""
    QUEUED_COPY = 3
    """The same from page-locked memory: only the device was held up."""
    STREAM_WAIT = 4
    """The computing stream was told to wait for another one; the host went on."""
    COPY_AHEAD = 5
    """A further part of a batch, copied on another stream than the computing one, which it does not hold up."""
    FETCH = 6
    """The training waited for data in the midst of the step, besides the fetch that the step began with."""


class EventKind:
    TRAINING_BEGIN = 1
    TRAINING_END = 2
    EPOCH_BEGIN = 3
    """Value: the epoch. Its first fetch, which makes the loader's iterator, began just before."""
    BOUNDARY = 4
    """Validation, checkpoint or hook outside the steps; lasts."""
    DEVICE_RING_FULL = 5
    """Value: steps whose device events were dropped because the ring was full."""
    GARBAGE = 6
    """A garbage collection; lasts."""
    SKIPPED_STEPS = 8
    """Value: steps that the hooks left out after the last one recorded; happened until then."""
    SKIPPED_SAMPLES = 9
    """Value: samples in those."""
    LOADER_WORKERS = 10
    """Value: worker processes of the loader that trains, as it is set; 0: batches are made in the training itself."""
    LOADER_PREFETCH = 11
    """Value: batches that each of them prepares ahead."""
    LOADER_FLAGS = 12
    """Value: sum of LoaderFlag values of that loader."""
    CLOCK_UNCERTAINTY = 14
    """At the end of a recording. Value: how far the device's times may be from the host's clock, ns."""
    DEVICE_DONE = 13
    """At the end of a recording: the device has done everything that was queued; `t_ns` on the device's clock."""
    PHASE = 15
    """A phase that the program marks; lasts. Value: number of its name in the run's names."""
    PYTHON_THREADS = 18
    """Value: CPU time that other Python threads of the training process have used so far, ns. About once a second."""
    ALLOCATOR_RETRIES = 19
    """The device's memory allocator had to free its caches and try again. Value: how often so far."""
    EVALUATION = 20
    """A pass over a loader that trains nothing; lasts. Value: how long it waited for batches, ns."""
    EVALUATION_WORKERS = 21
    """Just after an EVALUATION. Value: worker processes of its loader."""
    SAVE = 22
    """A checkpoint was written; lasts."""
    COMPILE = 23
    """torch's compiler was at work; lasts."""
    EVALUATION_DATA = 25
    """As an EVALUATION, and told just after it; lasts. Value: number of the data that it went over, the same for all
    loaders of the same data set."""
    PASSES_WITHOUT_STEPS = 26
    """At the end of a recording without steps. Value: backward passes that were seen all the same."""
    BATCHES_TOGETHER = 24
    """Value: batches of the training loader that are fetched for an update before the first of them is computed: so
    many are one step."""
    LOADER_MADE = 27
    """Where the program made the loader that trains. Value: number of a stack in the run's stacks."""
    SAMPLER = 28
    """A DataLoader's sampler worked in the training's thread, for 0.1 ms or more; lasts. Value: indices that it drew
    for a batch; 0 where its iterator was made; not measured where what it drew is no list."""
    PROCESS_BEGIN = 29
    """The process of the training began; of one that `whyidle run` started."""
    IMPORT = 30
    """Modules were imported, before the first step was over; lasts. Those within another import are part of it."""
    IMPORTS_TIMED = 31
    """From the process's begin until then, all imports were timed."""
    WORKER_DIED = 32
    """A loader's worker process ended in the midst of its work, and the training was told so. Value: its exit code, -9
    where signal 9 killed it; not measured where that is not known."""
    DIED_WORKER = 33
    """Just after a WORKER_DIED. Value: its process id, plus 2**32 times its number in its loader, counted from 1, or
    times 0 where its number is not known."""

    COUNTS = (LOADER_WORKERS, LOADER_PREFETCH, EVALUATION_WORKERS, BATCHES_TOGETHER)
    """Not a kind: those whose value is no more than `MOST_COUNTED`."""
    MOST_COUNTED = 1 << 14


class MemoryLimitOf:
    """Whose limit on memory it is."""

    CONTAINER = 1
    JOB = 2
    """A batch system's: Slurm, PBS, …"""
    SLICE = 3
    """A slice of systemd: a user's, or that of services."""
    GROUP = 4
    """Another control group."""


class LoaderFlag:
    PIN_MEMORY = 1
    PERSISTENT_WORKERS = 2
    ITERABLE = 4
    """The dataset is iterated over, and divides itself among the workers."""
    OUT_OF_ORDER = 8
    """Batches are handed over as they come (`in_order=False`)."""
    STARTS_PYTHON = 16
    """Workers are new Python processes (spawn, forkserver), which import the program and unpickle the dataset."""
    OWN_WORKERS = 32
    """The dataset has worker processes of its own; a loader's worker could start none."""
    INNER_WORKER = 256
    """For each worker process that a loader within the dataset is set to."""


class StackFlag:
    FROM_WITHIN = 8
    """Seen by a thread of the process itself, which has to wait for the global lock before it can look."""


class ThreadState:
    """What the kernel says a thread is at. Not measured where it does not tell."""

    RUNS = 1
    """On a CPU, or ready for one."""
    LOCK = 2
    """Waits in a futex: for a lock or another thread of its process, also for Python's global lock."""
    FILE_LOCK = 3
    """Waits for the lock of a file."""
    FILE = 4
    """Waits in a read or write of a file, or for a disk."""
    SOCKET = 5
    """Waits for another program at a socket."""
    PIPE = 6
    """Waits at a pipe."""
    POLL = 7
    """Waits for one of several descriptors."""
    SLEEP = 8
    """Waits for a time to pass."""
    CHILD = 9
    """Waits for a child to end."""
    OTHER = 10
    """Waits for something else: a device's driver, say."""
    SHARED_LOCK = 11
    """Waits in a futex that it shares with other processes."""
