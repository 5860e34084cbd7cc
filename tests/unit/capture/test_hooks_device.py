"""The hooks on a device with a queue: which calls of a program are copies, which are waits."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

from support.hooked import Net, Recording, SomePass, data, recording
from whyidle.capture.hooks.device_calls import ASK_PINNED_EVERY
from whyidle.devices.emulated import EmulatedDevice, EmulatedEvent, EmulatedSpec, VirtualClock
from whyidle.devices.protocol import Event, Stream
from whyidle.record.schema import NOT_MEASURED, PauseKind, StepFlag

NAMES = ("item", "tolist", "cpu", "numpy", "__float__", "__int__", "__bool__", "to")


class Queue(EmulatedDevice):
    """A device that lives on torch's `kind`, and knows how many of its marks are out.

    Torch's `meta` device takes copies and needs no hardware; tensors in memory stand for ones that can be read.
    """

    def __init__(self, kind: str) -> None:
        super().__init__(EmulatedSpec("t", "T", 10**9, 1e9, 1e9), VirtualClock(10**15))
        self.torch_device = torch.device(kind)
        self.out = 0

    def record(self, stream: Stream = None) -> EmulatedEvent:
        self.out += 1
        return super().record(stream)

    def release(self, mark: Event) -> None:
        self.out -= 1


class Training:
    """A net learns from four batches of four rows of three numbers, after `does` had each of them."""

    def __init__(self, folder: Path, kind: str) -> None:
        self.folder = folder
        self.device = Queue(kind)

    def run(self, does: Callable[[torch.Tensor], object], off: tuple[str, ...] = (), thinning: Any = None) -> Recording:
        net = Net()
        with recording(self.folder, self.device, thinning, off) as made:
            for (batch,) in data(16, 4):
                does(batch)
                net.learn(batch)
        assert self.device.out == 0
        return made


@pytest.fixture
def copying(tmp_path: Path) -> Training:
    return Training(tmp_path, "meta")


@pytest.fixture
def waiting(tmp_path: Path) -> Training:
    return Training(tmp_path, "cpu")


@pytest.mark.parametrize(
    ("to", "nbytes"),
    [
        (lambda batch: batch.to("meta"), 48),
        (lambda batch: batch.to(torch.device("meta"), torch.float64), 48),
        (lambda batch: batch.to(device="meta", non_blocking=True), 48),
        (lambda batch: batch.to(torch.empty(1, device="meta")), 48),
        # What stays or only changes its type is no copy.
        (lambda batch: batch.to(torch.float64), NOT_MEASURED),
        (lambda batch: batch.to("cpu"), NOT_MEASURED),
        (lambda batch: batch.to(batch), NOT_MEASURED),
        (lambda batch: batch.to(copy=True), NOT_MEASURED),
        (lambda batch: torch.empty(3, device="meta").to("meta"), NOT_MEASURED),
        (lambda batch: torch.nn.Parameter(batch).to("meta"), NOT_MEASURED),
    ],
)
def test_a_batch_on_its_way_is_a_copy(copying: Training, to: Callable[[torch.Tensor], Any], nbytes: int) -> None:
    steps = copying.run(to).done()
    assert steps["copy_bytes"].tolist() == [nbytes] * 4
    assert (steps["device_copy_end_ns"] > 0).tolist() == [nbytes == 48] * 4


def test_what_only_changes_its_type_is_no_wait_either(waiting: Training) -> None:
    made = waiting.run(lambda batch: [batch.to(torch.float64), batch.to("cpu", non_blocking=True), batch.to(batch)])
    assert len(made.pauses(PauseKind.SYNC)) == 0


def test_nothing_counts_in_steps_that_are_let_pass(copying: Training) -> None:
    asked = []
    made = copying.run(lambda batch: asked.append(batch.to("meta")), thinning=SomePass(1, 1000))
    assert (len(asked), made.done()["copy_bytes"].tolist()) == (4, [48, 48])


def test_an_error_of_a_copy_reaches_the_training_and_leaves_no_mark(copying: Training) -> None:
    def fails(batch: torch.Tensor) -> None:
        with pytest.raises(TypeError):
            batch.to("meta", dtype="no type")  # type: ignore[call-overload]

    made = copying.run(fails)
    assert (made.done()["copy_bytes"].tolist(), made.notices) == ([NOT_MEASURED] * 4, [])


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
    def result(_batch: object = None) -> str:
        try:
            return str(make().to("meta").device)
        except (NotImplementedError, RuntimeError) as error:
            return f"{type(error).__name__}: {error}"

    unseen, seen = result(), []
    copying.run(lambda batch: seen.append(result()))
    assert seen == [unseen] * 4


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

    def noted(batch: torch.Tensor) -> None:
        other = batch.clone().as_subclass(Noted)
        seen.clear()
        other.to("meta")
        assert seen == ["to"]

    def in_a_mode(batch: torch.Tensor) -> None:
        with Mode():
            batch.to("meta")
        assert seen == ["to", "to"]

    def among_operators(batch: torch.Tensor) -> None:
        with Operators():
            batch[:2].to("meta")
        assert not [name for name in seen if "pinned" in name]

    left = [noted, in_a_mode, among_operators, lambda _batch: None]
    made = copying.run(lambda batch: left.pop(0)(batch))
    assert made.done()["copy_bytes"].tolist() == [48, 48, 24, NOT_MEASURED]


def test_whether_memory_is_pinned_is_asked_once_in_many_copies(
    copying: Training, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = []
    monkeypatch.setattr(torch.Tensor, "is_pinned", lambda tensor: asked.append(tensor.shape) or True, raising=False)

    def does(batch: torch.Tensor) -> None:
        for _ in range(ASK_PINNED_EVERY // 4):
            batch.to("meta")

    made = copying.run(does)
    assert len(asked) == 1
    assert made.flagged(StepFlag.PINNED) == [True] * 4
    asked.clear()
    Training(copying.folder / "more", "meta").run(lambda batch: [does(batch), batch.to("meta"), batch[0].to("meta")])
    assert len(asked) == 3


READS: list[Callable[[torch.Tensor], Any]] = [
    lambda tensor: tensor.item(),
    float,
    int,
    bool,
    lambda tensor: tensor.tolist(),
    lambda tensor: tensor.cpu(),
    lambda tensor: tensor.numpy(),
]


@pytest.mark.parametrize("read", READS)
def test_reading_a_tensor_of_the_device_is_a_wait(waiting: Training, read: Callable[[torch.Tensor], Any]) -> None:
    found = []
    made = waiting.run(lambda batch: found.append(float(read((batch * 0 + 1).sum()))))
    # What it read is a number of Python's, or can be read again.
    again = read in READS[-2:-1]
    assert set(found) <= {12.0, 1.0}
    assert len(made.pauses(PauseKind.SYNC)) == 4 * (1 + again)


def test_an_error_of_a_wait_reaches_the_training_and_ends_the_wait(waiting: Training) -> None:
    def fails(batch: torch.Tensor) -> None:
        with pytest.raises(RuntimeError):
            batch.item()

    assert len(waiting.run(fails).pauses(PauseKind.SYNC)) == 4


def test_errors_of_ours_in_a_copy_switch_that_hook_off_only(copying: Training, monkeypatch: pytest.MonkeyPatch) -> None:
    def does(batch: torch.Tensor) -> None:
        with monkeypatch.context() as patch:
            patch.setattr(copying.device, "record", lambda stream=None: 1 // 0)
            assert batch.to("meta").device.type == "meta"

    made = copying.run(does, off=("Tensor.to",))
    (said,) = made.notices
    assert "ZeroDivisionError" in said


def test_tensors_are_as_they_were_once_the_hooks_are_removed(copying: Training) -> None:
    def methods() -> list[Any]:
        return [vars(torch.Tensor).get(name) for name in NAMES]

    before, hooked = methods(), []
    copying.run(lambda batch: hooked.append(methods()))
    assert before == methods() != hooked[0]
    assert float(torch.ones(1)) == 1.0
