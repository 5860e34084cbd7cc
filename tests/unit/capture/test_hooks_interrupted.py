"""What interrupts a training in the midst of our hooks reaches it, once, and the hooks go on."""

from __future__ import annotations

import _thread
import ctypes
import functools
import gc
import inspect
import operator
import signal
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader, dataloader

from support.hooked import AllLookedAt, Net, data, recording
from whyidle import capture
from whyidle.capture import active
from whyidle.capture.hooks.switch import Switch, ours
from whyidle.record.run import create_run

OURS = str(Path(capture.__file__).parent)
EPOCHS, BATCHES = 3, 5


class Once:
    """Raises Ctrl-C when a function of ours is called for the `point`-th time: where Python would, had it come then."""

    def __init__(self, point: int) -> None:
        self.left = point

    def __call__(self, frame: FrameType, event: str, _arg: Any) -> None:
        code = frame.f_code
        # A generator is "called" as well when it is thrown away, where Python asks for no signals.
        if event == "call" and code.co_filename.startswith(OURS) and not code.co_flags & inspect.CO_GENERATOR:
            self.left -= 1
            if self.left == 0:
                raise KeyboardInterrupt


@pytest.fixture
def swallowed(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """What Python could not raise, as in a callback of the garbage collector."""
    found: list[Any] = []
    monkeypatch.setattr(sys, "unraisablehook", lambda told: found.append(told.exc_type))
    return found


def train(checkpoint: Path, once: Once | None = None) -> int:
    """Goes on after each Ctrl-C; how many came. `once` is at work in all epochs but the last."""
    interrupts, net = 0, Net()
    loader, validation = data(BATCHES * 2, 2), data(BATCHES * 2, 5)
    before = sys.gettrace()
    for epoch in range(EPOCHS):
        if once is not None and epoch in (0, EPOCHS - 1):
            sys.settrace(before if epoch else once)
        batches: Any = None
        while True:
            try:
                batches = iter(loader) if batches is None else batches
                net.learn(next(batches))
            except StopIteration:
                break
            except KeyboardInterrupt:
                interrupts += 1
        try:
            torch.save(net.model.state_dict(), checkpoint)
            net.evaluate(validation)
        except KeyboardInterrupt:
            interrupts += 1
    return interrupts


@pytest.mark.usefixtures("either_path")
@pytest.mark.parametrize("apart", [17, pytest.param(1, marks=pytest.mark.slow)])
def test_an_interrupt_at_any_call_of_ours_reaches_the_training_once_and_recording_goes_on(
    tmp_path: Path, swallowed: list[Any], apart: int
) -> None:
    point, struck = 1 - apart, True
    while struck:
        point += apart
        once, before = Once(point), sys.gettrace()
        with recording(tmp_path / str(point), thinning=AllLookedAt(1)) as made:
            try:
                interrupts = train(tmp_path / "model.pt", once)
            finally:
                sys.settrace(before)
        struck = once.left <= 0
        assert interrupts == struck, point
        steps = made.done()[-BATCHES:]
        assert steps["samples"].tolist() == [2] * BATCHES, point
        for name in ("fetch_end_ns", "backward_begin_ns", "optimizer_begin_ns", "optimizer_end_ns"):
            assert (steps[name] > 0).all(), (point, name)
    assert point > 30
    assert swallowed == []


@pytest.mark.usefixtures("either_path", "ctrl_c_raises")
@pytest.mark.parametrize("how", ["signal", "from another thread"])
def test_what_strikes_in_what_a_step_calls_is_the_training_s(tmp_path: Path, how: str) -> None:
    left = [3, 7]
    with recording(tmp_path, thinning=AllLookedAt(1)) as made:
        steps = made.session.steps
        between = steps.on_step
        assert between is not None

        def interrupted(number: int, now: int) -> bool:
            between(number, now)
            steps.due_ns = 0
            if left and number >= left[0]:
                del left[0]
                if how == "signal":
                    signal.raise_signal(signal.SIGINT)
                else:
                    thread = ctypes.c_ulong(threading.get_ident())
                    ctypes.pythonapi.PyThreadState_SetAsyncExc(thread, ctypes.py_object(KeyboardInterrupt))
            return False

        steps.on_step, steps.due_ns = interrupted, 0
        assert train(tmp_path / "model.pt") == 2


@pytest.fixture
def no_other_watches_collections() -> Iterator[None]:
    """What hypothesis has called at collections is a function in Python, in which an interrupt is lost."""
    others = [call for call in gc.callbacks if getattr(call, "__module__", "").startswith("hypothesis")]
    for call in others:
        gc.callbacks.remove(call)
    yield
    gc.callbacks.extend(others)


@pytest.mark.usefixtures("ctrl_c_raises", "no_other_watches_collections")
def test_one_that_comes_during_a_collection_is_raised_behind_it(tmp_path: Path, swallowed: list[Any]) -> None:
    class Interrupts:
        __del__ = _thread.interrupt_main  # as if Ctrl-C was pressed then

    with recording(tmp_path, thinning=AllLookedAt(1)) as made:
        for _ in range(3):
            with pytest.raises(KeyboardInterrupt):
                garbage: list[Any] = [Interrupts()]
                garbage.append(garbage)
                del garbage
                gc.collect()
        assert swallowed == []
        batch = next(iter(data()))
        gc.collect()
        Net().learn(batch)
    (step,) = made.done()
    assert 0 < step["gc_ns"] <= step["step_end_ns"] - step["fetch_begin_ns"]


class Handler:
    """Raises a `TypeError`, which an error of ours may be as well."""

    def __call__(self, number: int, _frame: Any) -> None:
        raise TypeError(number)


def raises(*more_and_number: Any) -> None:
    raise TypeError(more_and_number)


@functools.wraps(raises)
def wrapper_that_raises(number: int, _frame: Any) -> None:
    raise TypeError(number)


@functools.wraps(raises)
def wrapper_of_what_raises(number: int, frame: Any) -> None:
    raises(number, frame)


HANDLERS: dict[str, Any] = {
    "function": raises,
    "bound method": Handler().__call__,
    "object": Handler(),
    "partial": functools.partial(raises, "more"),
    "partial of a bound method": functools.partial(Handler().__call__),
    "wrapper that raises": wrapper_that_raises,
    "wrapper of what raises": wrapper_of_what_raises,
    "in C": operator.truediv,  # a number by a frame
}


def here_between_instructions(number: int) -> None:
    # No call returns between the signal and the end of the loop's body.
    for _ in map(_thread.interrupt_main, [number]):
        pass


@pytest.mark.parametrize("handler", HANDLERS.values(), ids=list(HANDLERS))
def test_what_a_handler_of_the_program_raises_is_no_error_of_ours(handler: Any) -> None:
    before = signal.signal(signal.SIGUSR1, handler)
    switch = Switch("a hook", "nothing is", notice=lambda _: None)
    try:
        with pytest.raises(TypeError):
            try:
                here_between_instructions(signal.SIGUSR1)
            except Exception as error:
                switch.fail(error)
        with pytest.raises(TypeError), ours():
            here_between_instructions(signal.SIGUSR1)
        assert switch.on
        with ours():
            raise TypeError
        switch.fail(TypeError("ours"))
        assert not switch.on
    finally:
        signal.signal(signal.SIGUSR1, before)


def test_what_is_no_error_is_never_taken_for_one_of_ours() -> None:
    for interrupt in (KeyboardInterrupt(), SystemExit(3), GeneratorExit()):
        switch = Switch("a hook", "nothing is", notice=lambda _: None)
        with pytest.raises(type(interrupt)):
            switch.fail(interrupt)
        assert switch.on


def places() -> list[Any]:
    of = (dataloader._BaseDataLoaderIter, DataLoader, torch.autograd, torch.optim.Optimizer, torch.nn.Module)
    return [dict(vars(each)) for each in (*of, torch, torch.serialization, torch.utils.data._utils.fetch)]


def test_a_recording_whose_begin_is_interrupted_leaves_nothing_of_it(tmp_path: Path) -> None:
    before, callbacks = places(), list(gc.callbacks)
    for point in range(1, 2000, 23):
        folder = create_run(tmp_path / str(point), {"device": {"kind": "cpu"}})
        once, tracing = Once(point), sys.gettrace()
        sys.settrace(once)
        try:
            assert active.begin(folder) is not None
        except KeyboardInterrupt:
            assert active.current() is None
        finally:
            sys.settrace(tracing)
            active.end()
        assert places() == before, point
        assert gc.callbacks == callbacks, point
        if once.left > 0:
            break
    assert point > 100
