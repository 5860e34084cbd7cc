"""Observes an unchanged training loop in this process: `install(session)`, then `remove()`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from threading import get_ident
from typing import TYPE_CHECKING, Any, TypeVar

import torch

from ...devices.choose import choose
from ...devices.emulated import EmulatedDevice
from ...devices.protocol import Device
from ...record.segment import tell_of_fork
from ...record.stacks import Names
from ..session import Session
from .compiles import CompileHook, leave_uncompiled
from .device_calls import CopyHook, DeviceHook, OwnDeviceHook, Streams, StreamWaitHook, SyncHook
from .fetches import FetchesHook, ToldBatches
from .forward import ForwardHook
from .learning import BackwardHook, GraphHook, OptimizerHook, SaveHook
from .loader import LoaderHook, WorkerDeaths
from .loop import Loop
from .steady import steady_of
from .switch import Switch, hand_on, ours
from .wrap import Hook

if TYPE_CHECKING:
    from ..tuning.takeover import Takeover

__all__ = ["Hooks", "install"]

Told = TypeVar("Told")


class Hooks:
    """The hooks of one recording."""

    def __init__(
        self,
        session: Session,
        tune: dict[str, Any] | None,
        moved: Callable[[Device], object] | None,
    ) -> None:
        """As `install`."""
        self._session = session
        self._loop = loop = Loop(session)
        self._told = Switch("the program's own marks of steps", "later marks are not recorded", session.notice)
        self.names = Names(session.folder)
        """Those of the run."""
        self._removed = False
        self._moved = moved
        if moved is not None:
            loop.follow = self._follow
        # Where the forward pass runs: nothing hooks it, but this counts what it makes.
        session.steps.graph = getattr(torch.autograd, "_get_sequence_nr", None)
        loading, saving, told = LoaderHook(loop), SaveHook(loop), ToldBatches(loop)
        loop.steady = steady_of(loop, loading.switch)
        self._takeover: Takeover | None = None
        if tune is not None:
            from ..tuning.takeover import Takeover

            self._takeover = loading.takeover = Takeover(session, loop, loading, tune)
        from ..workers.hook import WorkersHook  # which builds on what is here

        workers, deaths = WorkersHook(loop, told), WorkerDeaths(loop, loading.last)
        loading.passes_of = workers.passes_of
        loading.on_error = deaths.fetch_failed
        self.fetches = FetchesHook(loop, told)
        """Records fetches from what is no DataLoader."""
        of_steps = BackwardHook(loop), OptimizerHook(loop), ForwardHook(loop)
        self._hooks: list[Hook] = [loading, workers, deaths, told, *of_steps, saving, CompileHook(loop), self.fetches]
        self._of_device: list[Hook] = []
        """Those that a device with a queue needs."""

    @property
    def off(self) -> list[str]:
        """What is not observed, for lack of something to hook or after an error of ours."""
        return [hook.switch.name for hook in (*self._hooks, *self._of_device) if not hook.switch.on]

    def tell(self, call: Callable[[Loop], Told], learns: bool = False) -> Told | None:
        """Tell the loop what the program itself says of its training; `None` if it cannot be told.

        `learns`: only the thread that trains says this.
        """
        if not self._told.on:
            return None
        with self._told:
            if get_ident() == self._loop.thread:
                return call(self._loop)
            if learns:
                self._loop.learns_elsewhere()
        return None

    def remove(self) -> None:
        """End the step that is open, and put everything back as it was. Safe to call twice, and to call late."""
        if self._removed:
            return
        self._removed = True
        if self._loop.thread:
            with ours():
                self._loop.happens(self._loop.finished)
            if self._takeover is not None:
                with ours():
                    self._takeover.finish()
        self._loop.forked()
        _take_out(self._of_device)
        _take_out(self._hooks)

    def watch_device(self, device: Device) -> None:
        """See copies to a device and waits for it, instead of another's."""
        _take_out(self._of_device)
        self._of_device = []
        loop = self._loop
        on_cuda = device.torch_device.type == "cuda"
        loop.capturing = device.captures if on_cuda else None
        if not device.asynchronous:
            return
        streams = Streams(_stream_of(device))
        loop.on_learning = streams.computes
        kinds: list[type[DeviceHook]] = [CopyHook, SyncHook]
        if on_cuda or isinstance(device, EmulatedDevice):
            kinds.append(OwnDeviceHook)
        if on_cuda:
            kinds.append(StreamWaitHook)
        self._of_device += [kind(loop, device, streams) for kind in kinds]
        if on_cuda:
            self._of_device.append(GraphHook(loop))
        _put_in(self._of_device)

    def _follow(self, gpu: int | None) -> None:
        """A step is learnt from what is on this GPU; `None`: on none."""
        if gpu is None or torch.cuda.is_current_stream_capturing():
            return
        self._loop.follow = None
        if self._session.device.torch_device == torch.device("cuda", gpu):
            return
        try:
            device = choose(f"cuda:{gpu}")
            self._session.moves_to(device)
            self.watch_device(device)
            leave_uncompiled()
            if self._moved is not None:
                self._moved(device)
        except Exception as error:
            hand_on(error)
            # A GPU without memory left for our events, say.
            self._session.notice(f"The GPU's work is not recorded ({type(error).__name__}: {error}).")

    def discard(self) -> None:
        """As `remove`, of a recording that is thrown away: nothing is ended and nothing is said."""
        self._loop.forked()
        self.remove()


def install(
    session: Session, tune: dict[str, Any] | None = None, moved: Callable[[Device], object] | None = None
) -> Hooks:
    """Hook into torch. The calling thread is taken for the one that trains.

    Args:
        tune: let a tuner take over the loader, see `tuning.takeover`.
        moved: told where the training computes on another device than the session's, which is a guess then; `None`: it
            computes there, whatever the program says.
    """
    made = Hooks(session, tune, moved)
    try:
        _put_in(made._hooks)
        made.watch_device(session.device)
        with ours():
            leave_uncompiled()
    except BaseException:
        made.discard()
        raise
    # Forked children, as the loader's workers, inherit the hooks but must not write into the recording.
    tell_of_fork(made._loop)
    return made


def _put_in(hooks: Iterable[Hook]) -> None:
    for hook in hooks:
        try:
            hook.install()
        except Exception as error:
            hook.leave_out(error)


def _take_out(hooks: Sequence[Hook]) -> None:
    for hook in reversed(hooks):
        hook.switch.on = False
        with ours():
            hook.remove()


def _stream_of(device: Device) -> Callable[[], object] | None:
    """Tells the current stream of a CUDA device, at a tenth of what a `torch.cuda.Stream` costs."""
    ask = getattr(torch._C, "_cuda_getCurrentRawStream", None)
    index = device.torch_device.index
    if device.torch_device.type != "cuda" or ask is None or index is None:
        return None
    return lambda: ask(index)
