"""Programs as people write them, recorded by the hooks in this process, and what is read of the recording."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
from torch.utils.data import DataLoader, TensorDataset

from whyidle.capture.hooks.install import install
from whyidle.capture.session import Session
from whyidle.capture.steps import Thinning
from whyidle.devices.cpu import CpuDevice
from whyidle.devices.protocol import Device
from whyidle.record.notices import read_notices
from whyidle.record.reader import Records
from whyidle.record.run import create_run, open_run
from whyidle.record.schema import EVENT, PAUSE, STEP, StepFlag
from whyidle.record.stacks import Names

MS = 1_000_000


class AllLookedAt(Thinning):
    """Whatever they cost."""

    def first(self) -> int:
        return 1 << 40


class SomePass(Thinning):
    """Looks at so many steps, lets so many pass, and so on; the first of an epoch is always looked at."""

    def __init__(self, looks: int, passes: int) -> None:
        super().__init__(1)
        self.looks, self.passes = looks, passes

    def first(self) -> int:
        return self.looks

    def plan(self, first_of_epoch: bool, left: int) -> tuple[int, int]:
        return (1, left) if first_of_epoch and left else (self.looks, self.passes)


class Clocked(CpuDevice):
    """A processor whose clock stands still but for what is said to take time, and for each look at it."""

    def __init__(self, look_ns: int = 0) -> None:
        super().__init__()
        self.now_ns, self.look_ns = 10**15, look_ns
        self.now = self._look  # type: ignore[assignment, method-assign]

    def _look(self) -> int:
        self.now_ns += self.look_ns
        return self.now_ns

    def take(self, ms: float) -> None:
        self.now_ns += round(ms * MS)


class Recording:
    """A recording under way of what the thread trains that made it, and what it holds once it is over."""

    def __init__(self, folder: Path, device: Device | None = None, thinning: Thinning | None = None) -> None:
        device = device or CpuDevice()
        self.folder = create_run(folder / "run", {"device": device.describe()})
        self.session = Session(self.folder, device, thinning=thinning)
        try:
            self.hooks = install(self.session)
        except BaseException:
            self.session.finish()
            raise
        self.off: list[str] | None = None
        """The hooks that failed; `None`: the recording is under way."""

    def done(self) -> Records:
        """Its steps; the recording ends with the first call."""
        if self.off is None:
            self.off = self.hooks.off
            self.hooks.remove()
            self.session.finish()
        return open_run(self.folder).records(STEP)

    @property
    def samples(self) -> list[int]:
        return self.done()["samples"].tolist()

    def flagged(self, flag: int) -> list[bool]:
        """Of each step."""
        return (self.done()["flags"] & flag != 0).tolist()

    def events(self, what: int) -> Records:
        records = open_run(self.folder).records(EVENT)
        return records[records["what"] == what]

    def values(self, what: int) -> list[int]:
        return self.events(what)["value"].tolist()

    def lasted(self, what: int) -> list[int]:
        """How long events lasted, ns."""
        found = self.events(what)
        return (found["end_ns"] - found["t_ns"]).tolist()

    def pauses(self, what: int) -> Records:
        records = open_run(self.folder).records(PAUSE)
        return records[records["what"] == what]

    @property
    def notices(self) -> list[str]:
        return read_notices(self.folder)

    @property
    def shapes(self) -> str:
        """A letter for each step: new, known, or `-` where that was not looked at."""
        known = {0: "-", StepFlag.SHAPE_KNOWN: "k", StepFlag.SHAPE_KNOWN | StepFlag.NEW_SHAPE: "n"}
        return "".join(known[int(f) & (StepFlag.SHAPE_KNOWN | StepFlag.NEW_SHAPE)] for f in self.done()["flags"])


@contextlib.contextmanager
def recording(
    folder: Path, device: Device | None = None, thinning: Thinning | None = None, off: Sequence[str] = ()
) -> Iterator[Recording]:
    """Record what is trained within, into `folder / "run"`. `off`: the hooks that fail, in the order of all hooks."""
    made = Recording(folder, device, thinning)
    try:
        yield made
    finally:
        made.done()
    assert made.off == list(off)


def data(samples: int = 10, batch: int = 4, **settings: Any) -> DataLoader[Any]:
    """A loader of rows of three numbers, which count up."""
    return DataLoader(TensorDataset(torch.arange(samples * 3.0).reshape(samples, 3)), batch, **settings)


class KeptBatches:
    """In the place of the records of who makes batches: keeps the rows, what transforms took, what batches hold."""

    def __init__(self, folder: Path, in_worker: bool = True) -> None:
        self.names, self.in_worker = Names(folder), in_worker
        self.rows: list[Any] = []
        self.transforms: list[tuple[int, ...]] = []
        self.batch = self.rows.append

    def transform(self, *told: int) -> None:
        self.transforms.append(told)

    def content(self, *told: int) -> None: ...
    def close(self) -> None: ...
    def look_where_refused(self) -> None: ...


class Net:
    """A small net that learns from tensors of three columns, or from the first of what a batch consists of."""

    def __init__(self) -> None:
        self.model = torch.nn.Linear(3, 1)
        self.optimizer = torch.optim.SGD(self.model.parameters(), 0.01)

    def loss(self, batch: Any) -> torch.Tensor:
        return self.model(batch if isinstance(batch, torch.Tensor) else batch[0]).square().mean()

    def learn(self, batch: Any) -> None:
        self.optimizer.zero_grad()
        self.loss(batch).backward()
        self.optimizer.step()

    def learns(self, batches: Iterable[Any]) -> None:
        for batch in batches:
            self.learn(batch)

    def evaluate(self, batches: Iterable[Any], most: int = 99, grad: bool = False) -> None:
        with torch.set_grad_enabled(grad):
            for number, batch in enumerate(batches, 1):
                self.loss(batch)
                if number == most:
                    break


def ahead(batches: Iterable[Any]) -> Iterator[Any]:
    """As accelerate and Lightning do: the next batch is fetched before this one is trained."""
    iterator = iter(batches)
    held = next(iterator)
    for following in iterator:
        yield held
        held = following
    yield held


def learn(net: torch.nn.Module, batch: torch.Tensor) -> None:
    net(batch).sum().backward()


def sized(*lengths: int) -> list[torch.Tensor]:
    return [torch.ones(2, length) for length in lengths]
