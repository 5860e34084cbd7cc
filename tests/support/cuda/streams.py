"""`torch.cuda.Stream`, `torch.cuda.Event` and `torch.cuda.CUDAGraph` on a machine."""

from __future__ import annotations

from typing import Any, NoReturn

import numpy as np
import torch
from torch.cuda.streams import Stream as TorchStream

from .machine import CAPTURED_EVENT, CAPTURING, Capture, Gpu, Queue, cuda_error, not_played, the

CUDA = 1
"""`torch._C._autograd.DeviceType.CUDA`"""


def refusing(name: str) -> Any:
    """A function in the place of one that is not played."""

    def refused(*_args: Any, **_kwargs: Any) -> NoReturn:
        not_played(name)

    return refused


class Stream:
    """A stream of a device: of its pool, or by its number."""

    def __new__(cls, device: Any = None, priority: int = 0, **kwargs: Any) -> Stream:
        made = super().__new__(cls)
        machine = the()
        machine.streams_built += 1
        if "stream_id" in kwargs:
            made._queue = machine.of(kwargs["device_index"]).queues[kwargs["stream_id"]]
        else:
            with torch.cuda.device(device):
                made._queue = machine.of(-1).stream(priority)
        return made

    _queue: Queue
    device_type = CUDA
    stream_id = property(lambda self: self._queue.number)
    device_index = property(lambda self: self._queue.gpu.index)
    device = property(lambda self: torch.device("cuda", self._queue.gpu.index))
    cuda_stream = property(lambda self: self._queue.handle)
    priority = property(lambda self: self._queue.priority)

    # torch's own, which call each other by name: `wait_stream` calls `wait_event`, that calls `Event.wait`.
    wait_event = TorchStream.wait_event
    wait_stream = TorchStream.wait_stream
    record_event = TorchStream.record_event

    def query(self) -> bool:
        the().refuse_in_capture()
        return self._queue.gpu.known(self._queue.empty_ns)

    def synchronize(self) -> None:
        """Wait for all that was queued in it so far (docs, `cudaStreamSynchronize`)."""
        self._queue.gpu.touch()
        the().synchronise(self._queue.gpu, self._queue.empty_ns)

    def is_capturing(self) -> bool:
        return self._queue.capture is not None

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Stream) and self._queue is other._queue

    def __hash__(self) -> int:
        return hash((self.cuda_stream, self.device))


class Event(torch._C._CudaEventBase):
    """A mark that is put into a stream, again and again."""

    _timed: bool
    _gpu: Gpu | None
    """`None` until it is recorded first: events are made lazily, and belong to the device of the stream that they are
    recorded into then (c10/cuda/CUDAEvent.h, "constructed lazily when first recorded")."""
    _at_ns: int
    _captured: bool

    def __new__(
        cls, enable_timing: bool = False, blocking: bool = False, interprocess: bool = False, external: bool = False
    ) -> Event:
        if interprocess or external:
            not_played("torch.cuda.Event(interprocess or external)")
        made = super().__new__(cls, enable_timing=enable_timing, blocking=blocking)
        the().events_made += 1
        made._timed, made._gpu, made._at_ns, made._captured = enable_timing, None, 0, False
        return made  # type: ignore[no-any-return]

    device = property(lambda self: None if self._gpu is None else torch.device("cuda", self._gpu.index))
    cuda_event = property(lambda self: 0 if self._gpu is None else id(self))

    def record(self, stream: Stream | None = None) -> None:
        """Put it behind all that is queued; what it marked before is forgotten (docs, `cudaEventRecord`). Only streams
        of its own device take it (CUDAEvent.h, `record`), while one is captured only that one (guide)."""
        machine, queue = the(), _queue(stream)
        gpu = queue.gpu
        if self._gpu is None:
            gpu.touch()
            self._gpu = gpu
        if self._gpu is not gpu:
            raise RuntimeError(f"Event device {self._gpu.index} does not match recording stream's device {gpu.index}.")
        gpu.check()
        self._captured = queue.capture is not None
        if self._captured:
            gpu.clock.pass_ns(gpu.spec.launch_ns)
            return
        machine.refuse_in_capture()
        self._at_ns = gpu.mark(queue)

    def query(self) -> bool:
        """Whether the device has come to it; yes where it was never recorded (CUDAEvent.h, `query`)."""
        if self._gpu is None:
            return True
        self._gpu.check()
        self._refuse_if_captured()
        the().refuse_in_capture()
        return self._gpu.known(self._at_ns)

    def wait(self, stream: Stream | None = None) -> None:
        """What is queued in a stream from here on waits for it, on any device, and the host does not (docs,
        `cudaStreamWaitEvent`). A captured stream waits for captured events only (guide, "cross-stream" ones)."""
        queue = _queue(stream)
        if self._gpu is None:
            return
        queue.gpu.touch()
        queue.gpu.clock.pass_ns(queue.gpu.spec.call_ns)
        if self._captured:
            if queue.capture is None:
                not_played("a capture of several streams")
        elif queue.capture is not None:
            queue.capture.invalid = True
            raise cuda_error("dependency created on uncaptured work in another stream")
        else:
            queue.empty_ns = max(queue.empty_ns, self._at_ns)

    def synchronize(self) -> None:
        """Wait until the device has come to it; not at all where it was never recorded (CUDAEvent.h)."""
        if self._gpu is not None:
            self._refuse_if_captured()
            the().synchronise(self._gpu, self._at_ns)

    def elapsed_time(self, end_event: Event) -> float:
        """Milliseconds between two events as a float32 (docs, `cudaEventElapsedTime`), where both have timing, were
        recorded, and are done (CUDAEvent.h, `elapsed_time`), on one device (docs, `cuEventElapsedTime`)."""
        first, second = self, end_event
        if not (first._timed and second._timed):
            raise ValueError("Both events must be created with argument 'enable_timing=True'.")
        if first._gpu is None or second._gpu is None:
            raise ValueError("Both events must be recorded before calculating elapsed time.")
        if not (first.query() and second.query()):
            raise RuntimeError("Both events must be completed before calculating elapsed time.")
        if first._gpu is not second._gpu:
            raise cuda_error("invalid resource handle")
        first._gpu.clock.pass_ns(first._gpu.spec.call_ns)
        return float(np.float32((first._gpu.stamp(second._at_ns) - first._gpu.stamp(first._at_ns)) / 1e6))

    def _refuse_if_captured(self) -> None:
        if self._captured:
            if (capture := the().capture) is not None:
                capture.invalid = True
            raise cuda_error(CAPTURED_EVENT)


def _queue(stream: Stream | None) -> Queue:
    return (torch.cuda.current_stream() if stream is None else stream)._queue  # type: ignore[no-any-return, union-attr]


class CUDAGraph:
    """Work that is written down instead of done, and done when the graph is replayed, as often as one likes."""

    def __init__(self, keep_graph: bool = False) -> None:
        self._capture: Capture | None = None
        self._queue: Queue | None = None

    def capture_begin(self, pool: Any = None, capture_error_mode: str = "global", **_kwargs: Any) -> None:
        """Capture the current stream, which must be none of the default ones (ATen/cuda/CUDAGraph.cpp)."""
        machine = the()
        queue = machine.queue()
        if queue.number == 0:
            raise RuntimeError("CUDA graphs must be captured on a non-default stream.")
        if machine.capture is not None:
            raise cuda_error(CAPTURING)
        queue.gpu.touch()
        self._queue = queue
        machine.capture = queue.capture = Capture()

    def capture_end(self) -> None:
        """The graph is whole, unless something that is forbidden happened (`cudaErrorStreamCaptureInvalidated`)."""
        machine = the()
        assert self._queue is not None, "capture_end without capture_begin"
        self._capture, machine.capture, self._queue.capture = machine.capture, None, None
        assert self._capture is not None
        if self._capture.invalid:
            raise cuda_error("operation failed due to a previous error during capture")

    def replay(self) -> None:
        """Queue all that was captured in the current stream, with one call, in the memory it was captured with (guide,
        "CUDA graphs"). Its kernels follow each other without gaps."""
        if self._capture is None:
            raise RuntimeError("Called CUDAGraph::replay without a preceding successful capture.")
        queue = the().queue()
        queue.gpu.touch()
        queue.gpu.clock.pass_ns(queue.gpu.spec.launch_ns)
        for name, duration, run in self._capture.nodes:
            queue.gpu.follow(queue, name, duration)
            run()

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or name == "_annotation_key_by":
            raise AttributeError(name)
        not_played(f"torch.cuda.CUDAGraph.{name}")
