"""The hooks on a device with a queue: copies and waits, on stand-ins for the device."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.data import DataLoader, TensorDataset

from support import loops
from whyidle.capture.hooks.copies import ASK_PINNED_EVERY
from whyidle.capture.hooks.install import Hooks, install
from whyidle.capture.hooks.switch import Switch
from whyidle.capture.hooks.waits import Streams, StreamWaitHook
from whyidle.devices.protocol import Copy

NAMES = ("item", "tolist", "cpu", "numpy", "__float__", "__int__", "__bool__", "to")


class Queue:
    """A device that lives on torch's `kind` and counts its marks."""

    asynchronous = True

    def __init__(self, kind: str) -> None:
        self.torch_device = torch.device(kind)
        self.out = 0
        self._clock = 0

    def now(self) -> int:
        self._clock += 1
        return self._clock

    def record(self) -> object:
        self.out += 1
        return object()

    def release(self, mark: object) -> None:
        self.out -= 1


class Steps(loops.Steps):
    """Keeps the order of all calls, and what is said of copies."""

    count = 0  # type: ignore[assignment]

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[str] = []
        self.copies: list[Copy] = []

    def copied(self, copy: Copy) -> None:
        self.copies.append(copy)
        self.calls.append("copied")

    def sync_begin(self, aside: bool = False) -> None:
        self.calls.append("sync_begin aside" if aside else "sync_begin")

    def __getattr__(self, name: str) -> Any:
        return lambda *_args, **_kwargs: self.calls.append(name)


class Training:
    """One batch fetched from a loader, on a device of a given type."""

    def __init__(self, kind: str) -> None:
        self.device = Queue(kind)
        self.recording = loops.Recording()
        self.recording.steps = self.steps = Steps()
        self.hooks: Hooks = install(self.recording, self.device)  # type: ignore[arg-type]
        self._batches = iter(DataLoader(TensorDataset(torch.ones(64, 3)), batch_size=4))

    def fetch(self) -> torch.Tensor:
        (batch,) = next(self._batches)
        self.steps.calls.clear()
        return batch  # type: ignore[no-any-return]


@pytest.fixture
def copying() -> Iterator[Training]:
    """Tensors go to torch's `meta` device, which takes copies and needs no hardware."""
    made = Training("meta")
    yield made
    made.hooks.remove()


@pytest.fixture
def waiting() -> Iterator[Training]:
    """Tensors in memory stand for tensors on the device: they can be read."""
    made = Training("cpu")
    yield made
    made.hooks.remove()


def test_a_batch_on_its_way_is_a_copy(copying: Training) -> None:
    batch = copying.fetch()
    for moved in (
        batch.to("meta"),
        batch.to(torch.device("meta"), torch.float64),
        batch.to(device="meta", non_blocking=True),
        batch.to(torch.empty(1, device="meta")),
    ):
        assert moved.device.type == "meta"
    assert copying.steps.calls == ["copied"] * 4
    assert [copy.nbytes for copy in copying.steps.copies] == [48] * 4
    assert all(copy.host_begin_ns < copy.host_end_ns and not copy.ahead for copy in copying.steps.copies)
    assert all(copy.begin is not None and copy.end is not None for copy in copying.steps.copies)


def test_what_stays_or_only_changes_type_is_no_copy(copying: Training) -> None:
    batch = copying.fetch()
    batch.to(torch.float64)
    batch.to("cpu")
    batch.to(batch)
    batch.to(copy=True)
    torch.empty(3, device="meta").to("meta")
    torch.nn.Parameter(torch.ones(3)).to("meta")
    assert not copying.steps.calls
    assert copying.device.out == 0


def test_nothing_counts_in_steps_that_are_let_pass(copying: Training) -> None:
    batch = copying.fetch()
    copying.steps.recording = False
    batch.to("meta")
    assert not copying.steps.copies


def test_an_error_of_a_copy_reaches_the_training_and_leaves_no_mark(copying: Training) -> None:
    batch = copying.fetch()
    with pytest.raises(TypeError):
        batch.to("meta", dtype="no type")
    assert not copying.steps.copies
    assert copying.device.out == 0
    assert not copying.recording.notices


class Streamed(Training):
    """A training whose current stream is `now`; it computes on stream 0."""

    def __init__(self, kind: str) -> None:
        super().__init__(kind)
        self.now = 0
        streams = Streams(lambda: self.now)
        for hook in self.hooks._of_device:
            if hasattr(hook, "_streams"):
                hook._streams = streams
        self.hooks._loop.on_learning = streams.computes
        switch = Switch("Event.wait", "-", self.recording.notice)
        self.waits = StreamWaitHook(self.hooks._loop, self.steps, switch, streams)  # type: ignore[arg-type]


@pytest.fixture(params=["meta", "cpu"])
def streamed(request: pytest.FixtureRequest) -> Iterator[Streamed]:
    made = Streamed(request.param)
    yield made
    made.hooks.remove()


@pytest.mark.parametrize("streamed", ["cpu"], indirect=True)
def test_a_wait_under_another_stream_than_the_computing_one_is_aside(streamed: Streamed) -> None:
    loss = streamed.fetch().sum()
    loss.item()
    streamed.now = 7
    loss.cpu()
    assert streamed.steps.calls == ["sync_begin", "sync_end", "sync_begin aside", "sync_end"]


@pytest.mark.parametrize("streamed", ["meta"], indirect=True)
def test_the_stream_of_a_cuda_graph_under_capture_does_not_become_the_computing_one(streamed: Streamed) -> None:
    captures = [True]
    streamed.hooks._loop.capturing = lambda: captures[0]
    weight = torch.ones(3, requires_grad=True)
    streamed.now = 7
    (streamed.fetch() @ weight).sum().backward()
    streamed.now, captures[0] = 0, False
    streamed.fetch().to("meta")
    assert [copy.ahead for copy in streamed.steps.copies] == [False]
    assert streamed.hooks.off == []


@pytest.mark.parametrize("streamed", ["meta"], indirect=True)
def test_the_stream_of_a_backward_pass_is_the_computing_one(streamed: Streamed) -> None:
    streamed.now = 7
    (streamed.fetch() @ torch.ones(3, requires_grad=True)).sum().backward()
    streamed.fetch().to("meta")
    streamed.now = 0
    streamed.fetch().to("meta")
    assert [copy.ahead for copy in streamed.steps.copies] == [False, True]


def test_only_the_computing_stream_s_waits_for_others_count(
    streamed: Streamed, monkeypatch: pytest.MonkeyPatch
) -> None:
    waited: list[str] = []
    monkeypatch.setattr(torch.cuda.Event, "wait", lambda event, stream=None: waited.append(event))
    streamed.waits.install()
    streamed.fetch()
    computing, side = SimpleNamespace(cuda_stream=0), SimpleNamespace(cuda_stream=7)

    def wait_event(stream: Any, event: str) -> None:
        torch.cuda.Event.wait(event, stream)  # type: ignore[arg-type]

    wait_event(side, "the side stream waits")
    assert not streamed.steps.calls
    wait_event(computing, "the computing stream waits")
    assert streamed.steps.calls == ["stream_wait_begin", "stream_wait_end"]
    streamed.now = 7
    wait_event(computing, "it is told to from another stream, where a mark would lie wrong")
    wait_event(side, "the side stream waits")
    streamed.now = 0
    wait_event(None, "the current stream waits, which computes")
    assert streamed.steps.calls == ["stream_wait_begin", "stream_wait_end"] * 2
    streamed.steps.recording = False
    wait_event(computing, "the step is not looked at")
    assert len(streamed.steps.calls) == 4
    assert len(waited) == 6
    streamed.waits.remove()


@pytest.mark.parametrize(
    "make",
    [
        lambda: torch.eye(3).to_sparse(),
        lambda: torch.eye(3).to_sparse_csr(),
        lambda: torch.eye(3).to_mkldnn(),
        lambda: torch.nested.nested_tensor([torch.ones(2), torch.ones(3)]),
        lambda: torch.nested.nested_tensor([torch.ones(2), torch.ones(3)], layout=torch.jagged),
    ],
    ids=["coo", "csr", "mkldnn", "nested", "jagged"],
)
@pytest.mark.filterwarnings("ignore")
def test_tensors_that_are_no_block_of_memory_move_as_without_hooks(
    copying: Training, make: Callable[[], torch.Tensor]
) -> None:
    def result() -> str:
        try:
            return str(make().to("meta").device)
        except (NotImplementedError, RuntimeError) as error:
            return f"{type(error).__name__}: {error}"

    unseen = result()
    copying.fetch()
    assert copying.steps.recording
    assert result() == unseen
    assert copying.hooks.off == []
    # What a jagged one is made of is moved as a plain tensor: its marks are the recorder's.
    assert copying.device.out == 2 * len(copying.steps.copies)


def test_modes_and_subclasses_see_the_call_and_none_of_our_questions(copying: Training) -> None:
    seen: list[str] = []

    class Noted(torch.Tensor):
        @classmethod
        def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            seen.append(func.__name__)
            return super().__torch_function__(func, types, args, kwargs)

    class Mode(TorchFunctionMode):
        def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            seen.append(func.__name__)
            return func(*args, **(kwargs or {}))

    class Operators(TorchDispatchMode):
        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            seen.append(str(func))
            return func(*args, **(kwargs or {}))

    batch = copying.fetch()
    noted = batch.clone().as_subclass(Noted)
    noted.to("meta")
    assert seen == ["to"]
    with Mode():
        batch.to("meta")
    assert seen == ["to", "to"]
    with Operators():
        batch[:2].to("meta")
    assert not [name for name in seen if "pinned" in name]
    assert [copy.nbytes for copy in copying.steps.copies] == [48, 48, 24]


def test_whether_memory_is_pinned_is_asked_once_in_many_copies(
    copying: Training, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = []
    monkeypatch.setattr(torch.Tensor, "is_pinned", lambda tensor: asked.append(tensor.shape) or True, raising=False)
    batch = copying.fetch()
    for _ in range(ASK_PINNED_EVERY):
        batch.to("meta")
    assert len(asked) == 1
    batch.to("meta")
    batch[0].to("meta")
    assert len(asked) == 3
    assert all(copy.pinned for copy in copying.steps.copies)


def test_reading_a_tensor_of_the_device_is_a_wait(waiting: Training) -> None:
    tensor = waiting.fetch().sum()
    assert (tensor.item(), float(tensor), int(tensor), bool(tensor), tensor.tolist()) == (12.0, 12.0, 12, True, 12.0)
    assert tensor.cpu().numpy() == 12.0
    assert waiting.steps.calls == ["sync_begin", "sync_end"] * 7


def test_an_error_of_a_wait_reaches_the_training_and_ends_the_wait(waiting: Training) -> None:
    tensor = waiting.fetch()
    with pytest.raises(RuntimeError):
        tensor.item()
    assert waiting.steps.calls == ["sync_begin", "sync_end"]


def test_errors_of_ours_in_a_copy_switch_that_hook_off_only(copying: Training) -> None:
    batch = copying.fetch()
    copying.device.record = lambda: 1 // 0  # type: ignore[method-assign]
    assert batch.to("meta").device.type == "meta"
    assert batch.to("meta").device.type == "meta"
    assert copying.hooks.off == ["Tensor.to"]
    assert len(copying.recording.notices) == 1
    assert "ZeroDivisionError" in copying.recording.notices[0]


def test_tensors_are_as_they_were_once_the_hooks_are_removed() -> None:
    before = {name: vars(torch.Tensor).get(name) for name in NAMES}
    training = Training("meta")
    assert {name: vars(torch.Tensor).get(name) for name in NAMES} != before
    training.hooks.remove()
    assert {name: vars(torch.Tensor).get(name) for name in NAMES} == before
    assert float(torch.ones(1)) == 1.0
