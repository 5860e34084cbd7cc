"""`torch.cuda.CUDAGraph`: work that is written down instead of done, and done when the graph is replayed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from .machine import the
from .refusals import INVALIDATED, UNJOINED, cuda_error, not_played

if TYPE_CHECKING:
    from .gpu import Queue


class Capture:
    """What is captured, from a stream and those that were made to wait for it.

    What each stream has captured, and what of the others is before that, is counted: at the end everything has to be
    before the first stream's end.
    """

    def __init__(self, queue: Queue, mode: str) -> None:
        self.mode = mode
        self.origin = queue
        self.nodes: list[tuple[str, int, Callable[[], object]]] = []
        """(name, how long it runs, what it computes)"""
        self.invalid = False
        self.over = False
        self._before: dict[Queue, Counter[Queue]] = {}
        self.take_in(queue, Counter())

    def take_in(self, queue: Queue, before: Counter[Queue]) -> None:
        """A stream, one of this capture from here on, waits for what `before` counts."""
        queue.capture = self
        self._before[queue] = self._before.get(queue, Counter()) | before
        self._before[queue][queue] += 1

    def mark(self, queue: Queue) -> Counter[Queue]:
        """What is before an event that is recorded in a stream now."""
        return Counter(self._before[queue])

    def add(self, queue: Queue, name: str, duration_ns: int, run: Callable[[], object]) -> None:
        self.nodes.append((name, duration_ns, run))
        self._before[queue][queue] += 1

    def end(self) -> bool:
        """The capture is over; whether all streams were joined to the first."""
        self.over = True
        joined = all(self._before[self.origin][queue] >= own[queue] for queue, own in self._before.items())
        for queue in self._before:
            queue.capture = None
        return joined


class CUDAGraph:
    """A graph: nothing, then captured, then replayed as often as one likes."""

    def __init__(self, keep_graph: bool = False) -> None:
        if keep_graph:
            not_played("torch.cuda.CUDAGraph(keep_graph=True)")
        self._capture: Capture | None = None
        self._ready = False
        self.replays = 0

    def capture_begin(self, pool: Any = None, capture_error_mode: str = "global", **_kwargs: Any) -> None:
        """Capture the current stream, which must be none of the default ones (ATen/cuda/CUDAGraph.cpp)."""
        machine = the()
        queue = machine.queue()
        if queue.number == 0:
            raise RuntimeError("CUDA graphs must be captured on a non-default stream.")
        if machine.capture is not None:
            raise cuda_error("operation not permitted when stream is capturing")
        queue.gpu.touch()
        machine.capture = self._capture = Capture(queue, capture_error_mode)

    def capture_end(self) -> None:
        """The graph is whole, unless something that is forbidden happened meanwhile
        (`cudaErrorStreamCaptureInvalidated`), or a stream that was taken in has not been waited for
        (`cudaErrorStreamCaptureUnjoined`)."""
        machine, capture = the(), self._capture
        assert capture is not None, "capture_end without capture_begin"
        machine.capture = None
        joined = capture.end()
        if capture.invalid:
            raise cuda_error(INVALIDATED)
        if not joined:
            raise cuda_error(UNJOINED)
        self._ready = True

    def replay(self) -> None:
        """Queue all that was captured in the current stream, with one call, in the memory it was captured with (guide,
        "CUDA graphs"). Its kernels follow each other without gaps, those of
        several streams too."""
        if not self._ready or self._capture is None:
            raise RuntimeError("Called CUDAGraph::replay without a preceding successful capture.")
        machine = the()
        queue = machine.queue()
        queue.gpu.touch()
        self.replays += 1
        if queue.capture is not None:
            not_played("a graph that is replayed within the capture of another")
        queue.gpu.clock.pass_ns(queue.gpu.spec.launch_ns)
        for name, duration, run in self._capture.nodes:
            queue.gpu.follow(queue, name, duration)
            run()

    def reset(self) -> None:
        self._ready, self._capture = False, None

    def pool(self) -> tuple[int, int]:
        return (0, id(self))

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or name == "_annotation_key_by":
            raise AttributeError(name)
        not_played(f"torch.cuda.CUDAGraph.{name}")
