"""Loops as people write them, and a recording that keeps what the hooks say of each step."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset

from whyidle.capture.hooks.install import Hooks, install
from whyidle.capture.loop_detector import state as loop_state
from whyidle.capture.workers import hook as workers_module
from whyidle.devices.cpu import CpuDevice
from whyidle.record.schema import EventKind


class Steps:
    """Keeps what the hooks say of each step."""

    def __init__(self) -> None:
        self.recording = self.passing = False
        self.skip_left = 0
        self.stored: list[dict[str, Any]] = []
        self.open: dict[str, Any] | None = None
        self._nodes = 0

    def _hears(self) -> None:
        self._nodes = torch.autograd._get_sequence_nr()  # type: ignore[attr-defined]

    def computed(self) -> bool | None:
        return None if self.open is None else torch.autograd._get_sequence_nr() > self._nodes  # type: ignore[attr-defined]

    def fetch_begin(self, epoch: int, first: bool, queue: Any, begin_ns: int) -> None:
        self.end_step()
        self.recording = True
        capacity = None if queue is None else queue.capacity
        self.open = {"epoch": epoch, "first": first, "capacity": capacity, "calls": []}

    def fetch_end(self, samples: int, end_ns: int = 0, begins: bool = False, *which: int, flags: int = 0) -> None:
        self._hears()
        if self.open is not None:
            self.open["samples"] = samples
            if begins:
                self.open["calls"].append("begins")

    def amend(self, samples: int, begin_ns: int) -> None:
        if self.open is not None:
            self.open["samples"] = samples

    def abandon_fetch(self) -> None:
        self.open, self.recording = None, False

    def end_step(self, at_last_hook: bool = False, end_ns: int = 0) -> None:
        if self.open is not None:
            self.stored.append(self.open)
        self.open, self.recording = None, False

    def __getattr__(self, name: str) -> Callable[..., None]:
        def call(*args: Any) -> None:
            if name.endswith("_end"):
                self._hears()
            if self.open is not None:
                self.open["calls"].append(name)

        return call

    def count(self, name: str) -> list[int]:
        return [step["calls"].count(name) for step in self.stored]


class Recording:
    writer = 0
    rank = 0
    folder = Path(tempfile.gettempdir()) / "whyidle-records-nothing-here"

    def __init__(self) -> None:
        self.steps = Steps()
        self.notices: list[str] = []
        self.events: list[tuple[int, int, int]] = []
        self.loaders: list[tuple[Any, ...]] = []
        self.images: tuple[str, ...] = ()
        self.hooks: Hooks | None = None

    def event(self, kind: int, value: int = 0, end_ns: int = 0, t_ns: int = 0) -> None:
        self.events.append((kind, value, end_ns - t_ns if end_ns else 0))

    def lasted(self, kind: int, begin_ns: int, end_ns: int) -> None:
        self.event(kind, end_ns=end_ns, t_ns=begin_ns)

    def notice(self, text: str) -> None:
        self.notices.append(text)

    def made(self, *_: Any) -> None: ...

    def loader(self, *settings: Any) -> None:
        *known, images = settings
        self.loaders.append(tuple(known))
        self.images = images

    @property
    def boundaries(self) -> int:
        return sum(kind == EventKind.BOUNDARY for kind, _, _ in self.events)

    @property
    def epochs(self) -> list[int]:
        return [value for kind, value, _ in self.events if kind == EventKind.EPOCH_BEGIN]

    @property
    def samples(self) -> list[int]:
        return [step["samples"] for step in self.steps.stored]

    def install(self) -> Hooks:
        self.hooks = install(self, CpuDevice())  # type: ignore[arg-type]
        return self.hooks

    def done(self) -> list[dict[str, Any]]:
        assert self.hooks is not None
        self.hooks.remove()
        return self.steps.stored


@pytest.fixture
def recording(monkeypatch: pytest.MonkeyPatch) -> Iterator[Recording]:
    # However slow the machine is, what a test does in a row is close together.
    monkeypatch.setattr(loop_state, "ADJACENT_NS", 10**12)
    # What making a batch costs is another matter.
    monkeypatch.setattr(workers_module, "TrainingFetchTimer", lambda *_: None)
    # As in most programs, whatever other tests have imported.
    monkeypatch.delitem(sys.modules, "torch.distributed.checkpoint", raising=False)
    made = Recording()
    made.install()
    yield made
    made.done()


@pytest.fixture
def unhurried(monkeypatch: pytest.MonkeyPatch, recording: Recording) -> Recording:
    """Nothing is close together: as if every batch took long."""
    monkeypatch.setattr(loop_state, "ADJACENT_NS", 0)
    return recording


def data(samples: int = 10, batch: int = 4, **kwargs: Any) -> DataLoader[Any]:
    return DataLoader(TensorDataset(torch.arange(samples * 3.0).reshape(samples, 3)), batch_size=batch, **kwargs)


class Net:
    def __init__(self) -> None:
        self.model = torch.nn.Linear(3, 1)
        self.optimizer = torch.optim.SGD(self.model.parameters(), 0.01)

    def loss(self, batch: Any) -> torch.Tensor:
        return self.model(batch[0]).square().mean()

    def learn(self, batch: Any) -> None:
        self.optimizer.zero_grad()
        self.loss(batch).backward()
        self.optimizer.step()

    def learns(self, batches: Iterable[Any]) -> None:
        for batch in batches:
            self.learn(batch)
