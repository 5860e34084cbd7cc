"""The hooks on a device with a queue: copies and waits, on stand-ins for the device."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset

from stallscope.capture.hooks import Hooks, install
from stallscope.capture.hooks.copies import ASK_PINNED_EVERY, CopyHook
from stallscope.capture.hooks.switch import Switch
from stallscope.devices.protocol import Copy

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


class Steps:
    def __init__(self) -> None:
        self.recording = self.computing = False
        self.calls: list[str] = []
        self.copies: list[Copy] = []

    def fetch_begin(self, *_args: Any) -> None:
        self.recording = True

    def abandon_fetch(self) -> None:
        self.recording = False

    def copied(self, copy: Copy) -> None:
        self.copies.append(copy)
        self.calls.append("copied")

    def __getattr__(self, name: str) -> Any:
        return lambda *_args: self.calls.append(name)


class Recording:
    def __init__(self) -> None:
        self.steps = Steps()
        self.notices: list[str] = []

    def event(self, *_args: Any, **_kwargs: Any) -> None: ...

    def notice(self, text: str) -> None:
        self.notices.append(text)


class Training:
    """One batch fetched from a loader, on a device of a given type."""

    def __init__(self, kind: str) -> None:
        self.device = Queue(kind)
        self.recording = Recording()
        self.steps = self.recording.steps
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


def test_a_batch_on_its_way_is_a_copy_and_the_computation_begins_after_it(copying: Training) -> None:
    batch = copying.fetch()
    for moved in (
        batch.to("meta"),
        batch.to(torch.device("meta"), torch.float64),
        batch.to(device="meta", non_blocking=True),
        batch.to(torch.empty(1, device="meta")),
    ):
        assert moved.device.type == "meta"
    assert copying.steps.calls == ["copied", "compute_begin"] * 4
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


def test_nothing_counts_before_the_first_batch(copying: Training) -> None:
    torch.nn.BatchNorm1d(3).to("meta")
    torch.ones(3).to("meta")
    assert not copying.steps.copies


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


def test_a_copy_on_another_stream_than_the_computing_one_is_ahead() -> None:
    streams = iter([0, 0, 7])
    switch = Switch("copies", "nothing is", lambda text: None)
    training = Training("meta")
    training.hooks.remove()
    hook = CopyHook(training.hooks._loop, training.steps, training.device, switch, stream=lambda: next(streams))  # type: ignore[arg-type]
    training.hooks._loop.inside = training.steps.recording = True
    training.hooks._loop.thread = threading.get_ident()
    hook.install()
    try:
        torch.ones(3).to("meta")
        torch.ones(3).to("meta")
    finally:
        hook.remove()
    assert [copy.ahead for copy in training.steps.copies] == [False, True]


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


def test_reading_a_tensor_of_another_device_is_no_wait(copying: Training) -> None:
    assert copying.fetch().sum().item() == 12.0
    assert not copying.steps.calls


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


def test_a_step_begins_to_compute_when_its_stream_has_waited_for_the_copy_ahead() -> None:
    """As prefetchers do it: copy on a side stream, then let the computing stream wait for that."""
    now = {"stream": 0}
    training = Training("meta")
    switch = Switch("Tensor.to", "-", training.recording.notice)
    hook = CopyHook(training.hooks._loop, training.steps, training.device, switch, stream=lambda: now["stream"])  # type: ignore[arg-type]
    waited: list[Any] = []
    wait_event = hook._wrap_wait(lambda stream, event: waited.append((stream.cuda_stream, event)))
    training.fetch()
    calls = training.steps.calls
    now["stream"] = 7
    under = hook._begins(torch.zeros(4), hook._target_of, ("meta",), {})
    assert under is not None
    before = calls.count("compute_begin")
    hook._ends(under, torch.zeros(4), torch.zeros(4, device="meta"))
    assert calls.count("compute_begin") == before
    wait_event(SimpleNamespace(cuda_stream=7), "the side stream waits")
    now["stream"] = 0
    assert calls.count("compute_begin") == before
    wait_event(SimpleNamespace(cuda_stream=0), "the computing stream waits")
    assert calls.count("compute_begin") == before + 1
    training.steps.computing = True
    wait_event(SimpleNamespace(cuda_stream=0), "in the midst of the step")
    assert calls.count("compute_begin") == before + 1
    training.hooks.remove()
    assert [event for _, event in waited] == [
        "the side stream waits",
        "the computing stream waits",
        "in the midst of the step",
    ]
