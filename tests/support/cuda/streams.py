"""`torch.cuda.Stream` and `torch.cuda.Event` on a machine."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import torch
from torch.cuda.streams import Stream as TorchStream

from .gpu import Gpu, Queue
from .graphs import Capture
from .machine import the
from .refusals import CAPTURED_EVENT, CAPTURING, INVALID_VALUE, ISOLATED, cuda_error, refusing

CUDA = 1
"""`torch._C._autograd.DeviceType.CUDA`"""


class Stream:
    """A stream of a device: of its pool, or by its number."""

    def __new__(cls, device: Any = None, priority: int = 0, **kwargs: Any) -> Stream:
        made = super().__new__(cls)
        machine = the()
        machine.streams_built += 1
        if "stream_id" in kwargs:
            made._queue = machine.of(kwargs["device_index"]).queues[kwargs["stream_id"]]
        elif device is None:
            made._queue = machine.of(-1).stream(priority)
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
        gpu = self._queue.gpu
        gpu.check()
        gpu.clock.pass_ns(gpu.spec.call_ns)
        return gpu.clock.now_ns >= gpu.known_ns(self._queue.empty_ns)

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

    def __repr__(self) -> str:
        return f"<torch.cuda.Stream device={self.device} cuda_stream={self.cuda_stream:#x}>"


class Event(torch._C._CudaEventBase):
    """A mark that is put into a stream, again and again."""

    _timed: bool
    _gpu: Gpu | None
    """`None` until it is recorded first: events are made lazily, and belong to the device of the stream that they are
    recorded into then (c10/cuda/CUDAEvent.h, "constructed lazily when first recorded")."""
    _at_ns: int
    _capture: Capture | None
    _before: Counter[Queue]
    """What of the capture is before it."""

    def __new__(
        cls, enable_timing: bool = False, blocking: bool = False, interprocess: bool = False, external: bool = False
    ) -> Event:
        if interprocess or external:
            refusing("torch.cuda.Event(interprocess or external)")()
        made = super().__new__(cls, enable_timing=enable_timing, blocking=blocking)
        the().events_made += 1
        made._timed, made._gpu, made._at_ns, made._capture = enable_timing, None, 0, None
        return made  # type: ignore[no-any-return]

    device = property(lambda self: None if self._gpu is None else torch.device("cuda", self._gpu.index))
    cuda_event = property(lambda self: 0 if self._gpu is None else id(self))
    ipc_handle = refusing("torch.cuda.Event.ipc_handle")
    from_ipc_handle = refusing("torch.cuda.Event.from_ipc_handle")

    def record(self, stream: Stream | None = None) -> None:
        """Put it behind all that is queued; what it marked before is forgotten (docs, `cudaEventRecord`: "will
        overwrite any existing state in `event`").

        Only streams of its own device take it (CUDAEvent.h, `record`).
        """
        machine = the()
        queue = torch.cuda.current_stream()._queue if stream is None else stream._queue
        gpu = queue.gpu
        if self._gpu is None:
            gpu.touch()
            self._gpu = gpu
        if self._gpu is not gpu:
            raise RuntimeError(f"Event device {self._gpu.index} does not match recording stream's device {gpu.index}.")
        gpu.check()
        if queue.capture is not None:
            gpu.clock.pass_ns(gpu.spec.launch_ns)
            self._capture, self._before = queue.capture, queue.capture.mark(queue)
            return
        if machine.capture is not None and gpu.spec.capture_forbids_other_streams:
            machine.capture.invalid = True
            raise cuda_error(CAPTURING)
        self._capture = None
        self._at_ns = gpu.mark(queue)

    def query(self) -> bool:
        """Whether the device has come to it; yes where it was never recorded (docs, `cudaEventQuery`; CUDAEvent.h,
        `query`: "if (!is_created_) return true")."""
        gpu = self._gpu
        if gpu is None:
            return True
        gpu.check()
        self._refuse_if_captured()
        the().refuse_in_capture()
        gpu.clock.pass_ns(gpu.spec.call_ns)
        return gpu.clock.now_ns >= gpu.known_ns(self._at_ns)

    def wait(self, stream: Stream | None = None) -> None:
        """What is queued in a stream from here on waits for it, on any device, and the host does not (docs,
        `cudaStreamWaitEvent`). A captured event takes the stream into the capture; a captured stream waits for
        captured events only (guide, "cross-stream dependencies and events")."""
        queue = torch.cuda.current_stream()._queue if stream is None else stream._queue
        if self._gpu is None:
            return
        gpu = queue.gpu
        gpu.touch()
        gpu.clock.pass_ns(gpu.spec.call_ns)
        if self._capture is not None:
            if self._capture.over:
                raise cuda_error(INVALID_VALUE)
            self._capture.take_in(queue, self._before)
        elif queue.capture is not None:
            queue.capture.invalid = True
            raise cuda_error(ISOLATED)
        else:
            queue.empty_ns = max(queue.empty_ns, self._at_ns)

    def synchronize(self) -> None:
        """Wait until the device has come to it; not at all where it was never recorded (CUDAEvent.h)."""
        if self._gpu is not None:
            self._refuse_if_captured()
            the().synchronise(self._gpu, self._at_ns)

    def elapsed_time(self, end_event: Event) -> float:
        """Milliseconds between two events as a float32 (docs, `cudaEventElapsedTime`), where both have timing, were
        recorded, and are done (CUDAEvent.h, `elapsed_time`, which asks `query` first), on one device (docs,
        `cuEventElapsedTime`: `CUDA_ERROR_INVALID_HANDLE`)."""
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
        between = first._gpu.stamp(second._at_ns) - first._gpu.stamp(first._at_ns)
        if between < 0 and not first._gpu.spec.negative_elapsed:
            raise cuda_error(INVALID_VALUE)
        return float(np.float32(between / 1e6))

    def _refuse_if_captured(self) -> None:
        if self._capture is not None:
            self._capture.invalid = True
            raise cuda_error(CAPTURED_EVENT)

    def __repr__(self) -> str:
        return f"<torch.cuda.Event {self.cuda_event:#x}>" if self._gpu else "<torch.cuda.Event uninitialized>"
