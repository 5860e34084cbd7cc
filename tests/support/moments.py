"""Trainings that do something with their model at every moment of a step, and models of many kinds."""

from __future__ import annotations

import copy
import io
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch.utils.data import DataLoader, TensorDataset

from whyidle.capture.hooks import forward
from whyidle.capture.hooks.install import install
from whyidle.capture.session import Session
from whyidle.capture.steps import Thinning
from whyidle.devices.cpu import CpuDevice
from whyidle.record.notices import read_notices
from whyidle.record.run import create_run, open_run
from whyidle.record.schema import STEP, StepFlag

BATCH = torch.ones(2, 3)
MOMENTS = ("before the fetch", "handed over", "within the forward pass", "after the backward pass", "after the step")
KNOWN = forward.FIRST_LOOK + 1
"""From this step on the model is known, and its call awaited."""
STEPS = KNOWN + 3
At = Callable[[str, torch.nn.Module], object]

_within: list[Callable[[torch.nn.Module], object]] = []


def own_hook(module: torch.nn.Module, _args: object, _returned: object) -> None:
    """A forward hook of the program's."""
    for call in _within:
        call(module)


class Plain(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.ReLU(), torch.nn.Linear(4, 1))

    def forward(self, batch: torch.Tensor) -> torch.Tensor:
        return self.layers(batch)  # type: ignore[no-any-return]


class OwnAttributes(Plain):
    """Notes what is read and written of it."""

    def __init__(self) -> None:
        object.__setattr__(self, "noted", [])
        super().__init__()

    def __getattr__(self, name: str) -> Any:
        self.__dict__["noted"].append(name)
        return super().__getattr__(name)

    def __setattr__(self, name: str, value: Any) -> None:
        self.__dict__["noted"].append("=" + name)
        super().__setattr__(name, value)


class AllAttributes(Plain):
    """Counts what is read of it by name."""

    def __getattribute__(self, name: str) -> Any:
        space = object.__getattribute__(self, "__dict__")
        space["reads"] = space.get("reads", 0) + (name == "_call_impl")
        return super().__getattribute__(name)


class Slots(Plain):
    __slots__ = ("kept",)

    def __init__(self) -> None:
        super().__init__()
        object.__setattr__(self, "kept", 7)


class OwnState(Plain):
    """Gives all that it holds, and takes nothing else."""

    def __getstate__(self) -> dict[str, Any]:
        return {"all": dict(vars(self))}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state["all"])


class OwnCopy(Plain):
    def __deepcopy__(self, memo: dict[int, Any]) -> OwnCopy:
        other = self.__class__.__new__(self.__class__)
        other.__dict__ = {name: copy.deepcopy(value, memo) for name, value in vars(self).items()}
        return other

    def __reduce__(self) -> Any:
        return _remade, (dict(vars(self)),)


def _remade(space: dict[str, Any]) -> OwnCopy:
    other = OwnCopy()
    other.__dict__.update(space)
    return other


class OwnComparison(Plain):
    """Equal to all, and of no length."""

    def __eq__(self, other: object) -> bool:
        return True

    __hash__ = torch.nn.Module.__hash__

    def __len__(self) -> int:
        return 0


class OwnCall(Plain):
    def __call__(self, *args: Any) -> Any:
        return super().__call__(*args)


class Hooked(Plain):
    def __init__(self) -> None:
        super().__init__()
        self.register_forward_hook(own_hook)


KINDS = (OwnAttributes, AllAttributes, Slots, OwnState, OwnCopy, OwnComparison, OwnCall)


class AllLookedAt(Thinning):
    def first(self) -> int:
        return 1 << 40


class Training:
    """A short training that calls `at` at each of `MOMENTS` of each step."""

    def __init__(self, model: torch.nn.Module, called: Callable[..., Any] | None = None) -> None:
        self.model = model
        self.called = model if called is None else called
        self.step = 0
        self.losses: list[float] = []
        self.optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        data = TensorDataset(torch.arange(6.0 * STEPS).reshape(-1, 3) / 100)
        self.loader = DataLoader(data, batch_size=2)

    def run(self, at: At) -> None:
        def within(_module: torch.nn.Module) -> None:
            if torch.is_grad_enabled():
                _within.clear()
                at("within the forward pass", self.model)

        batches = iter(self.loader)
        for self.step in range(STEPS):
            at("before the fetch", self.model)
            (batch,) = next(batches)
            time.sleep(0.002)  # so that it is seen where the forward pass begins
            at("handed over", self.model)
            _within[:] = [within]
            loss = self.called(batch).sum()
            _within.clear()
            loss.backward()
            at("after the backward pass", self.model)
            self.optimizer.step()
            self.optimizer.zero_grad()
            at("after the step", self.model)
            self.losses.append(float(loss.detach()))


def watched(folder: Path, run: Callable[[], object], sees: bool = True, least_ms: float = 1.9) -> Any:
    """What `run` returns while it is recorded.

    Args:
        sees: whether the model's call is seen in each step from `KNOWN` on.
        least_ms: where that is seen, it comes so long after the batch at the least.
    """
    created = create_run(folder / "run", {"device": {"kind": "cpu"}})
    session = Session(created, CpuDevice(), watch_threads=False, thinning=AllLookedAt(1))
    hooks = install(session, CpuDevice())
    try:
        returned = run()
        off = hooks.off
    finally:
        hooks.remove()
        session.finish()
    assert off == []
    assert not [notice for notice in read_notices(created) if "hook" in notice]
    steps = open_run(created).records(STEP)
    steps = steps[steps["step"] >= KNOWN]
    seen = steps[(steps["flags"] & StepFlag.FORWARD_SEEN) != 0]
    assert len(seen) >= 3 * sees
    assert (seen["forward_begin_ns"] - seen["fetch_end_ns"] >= least_ms * 1e6).all()
    return returned


def made(model: Callable[[], torch.nn.Module]) -> torch.nn.Module:
    torch.manual_seed(5)
    return model()


def told(model: torch.nn.Module) -> bytes:
    """All of a model. Python's own pickler writes where its tensors lie."""
    file = io.BytesIO()
    torch.save(model, file)
    return file.getvalue()


def names(model: torch.nn.Module) -> list[str]:
    return [name for name in dir(model) if not name.startswith("___")]  # which Dynamo adds for the whole process
