"""Models that are saved, copied, compiled or looked at at any moment of a step are what they are without us."""

from __future__ import annotations

import copy
import gc
import inspect
import io
import pickle
import sys
import threading
import time
import traceback
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
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

pytestmark = pytest.mark.usefixtures("either_path")

BATCH = torch.ones(2, 3)
MOMENTS = ("before the fetch", "handed over", "within the forward pass", "after the backward pass", "after the step")
KNOWN = forward.FIRST_LOOK + 1
"""From this step on the model is known, and its call awaited."""
STEPS = KNOWN + 3
At = Callable[[str], object]

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


class OwnCall(Plain):
    def __call__(self, *args: Any) -> Any:
        return super().__call__(*args)


class Hooked(Plain):
    def __init__(self) -> None:
        super().__init__()
        self.register_forward_hook(own_hook)


KINDS = (OwnAttributes, AllAttributes, OwnCopy, OwnCall)


class AllLookedAt(Thinning):
    def first(self) -> int:
        return 1 << 40


class Training:
    """A short training that calls `at` at each of `MOMENTS` of each step."""

    def __init__(self, model: torch.nn.Module) -> None:
        self.model = model
        self.step = 0
        self.losses: list[float] = []
        self.optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        data = TensorDataset(torch.arange(6.0 * STEPS).reshape(-1, 3) / 100)
        self.loader = DataLoader(data, batch_size=2)

    def run(self, at: At) -> None:
        def within(_module: torch.nn.Module) -> None:
            if torch.is_grad_enabled():
                _within.clear()
                at("within the forward pass")

        batches = iter(self.loader)
        for self.step in range(STEPS):
            at("before the fetch")
            (batch,) = next(batches)
            time.sleep(0.002)  # so that it is seen where the forward pass begins
            at("handed over")
            _within[:] = [within]
            loss = self.model(batch).sum()
            _within.clear()
            loss.backward()
            at("after the backward pass")
            self.optimizer.step()
            self.optimizer.zero_grad()
            at("after the step")
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


def saved(model: torch.nn.Module) -> bytes:
    file = io.BytesIO(told(model))
    with torch.serialization.safe_globals(
        [Plain, Hooked, own_hook, torch.nn.Sequential, torch.nn.Linear, torch.nn.ReLU, set]
    ):
        loaded = torch.load(file, weights_only=True)
    assert vars(loaded).keys() == vars(model).keys()
    return file.getvalue()


def attributes(model: torch.nn.Module) -> object:
    assert vars(model) is model.__dict__
    return (
        [(name, id(value)) for name, value in vars(model).items() if name != "noted"],
        names(model),
        [(name, type(value).__name__) for name, value in inspect.getmembers(model) if name != "__weakref__"],
        sorted(vars(type(model))),
        sorted(vars(torch.nn.Module)),
        type(model).__mro__,
        sys.getsizeof(model),
    )


def _copies(model: torch.nn.Module) -> object:
    deep, shallow = copy.deepcopy(model), copy.copy(model)
    assert [id(value) for value in vars(shallow).values()] == [id(value) for value in vars(model).values()]
    return list(vars(deep)), told(deep), list(vars(shallow)), told(shallow)


def _averaged(model: torch.nn.Module) -> object:
    average = torch.optim.swa_utils.AveragedModel(model)
    average.update_parameters(model)
    ema = torch.optim.swa_utils.AveragedModel(model, multi_avg_fn=torch.optim.swa_utils.get_ema_multi_avg_fn(0.9))
    ema.update_parameters(model)
    return list(vars(average.module)), told(average.module), told(ema.module)


def _functional(model: torch.nn.Module) -> object:
    state = {name: torch.zeros_like(value) for name, value in model.state_dict().items()}
    return torch.func.functional_call(model, state, BATCH).tolist(), list(vars(model))


QUICK: dict[str, Callable[[torch.nn.Module], object]] = {
    "torch.save": saved,
    "pickle": lambda model: [pickle.dumps(model, protocol) for protocol in range(pickle.HIGHEST_PROTOCOL + 1)],
    "attributes": attributes,
    "copies": _copies,
    "averages": _averaged,
    "functional_call": _functional,
}


def same(
    folder: Path,
    take: Callable[[Training, str, list[Any]], object],
    model: Callable[[], Any] = Plain,
    sees: bool = True,
) -> list[Any]:
    """What `take` takes of a training at its moments, its losses and graphs are what they are without us; it."""

    def took(run: Callable[[Callable[[], object]], object]) -> tuple[list[Any], ...]:
        torch._dynamo.reset()
        torch._dynamo.utils.counters.clear()
        training = Training(made(model))
        taken: list[Any] = []
        run(lambda: training.run(lambda moment: take(training, moment, taken)))
        return taken, training.losses, [dict(torch._dynamo.utils.counters["stats"])]

    plain = took(lambda run: run())
    assert took(lambda run: watched(folder, run, sees=sees)) == plain
    return plain[0]


@pytest.mark.parametrize("kind", [Plain, Hooked])
@pytest.mark.parametrize("way", QUICK)
def test_a_model_is_at_every_moment_what_it_is_without_us(
    tmp_path: Path, way: str, kind: Callable[[], torch.nn.Module]
) -> None:
    model = made(kind)
    start = copy.deepcopy(model.state_dict())

    def again() -> torch.nn.Module:
        """The same one, whose parts lie where they lay: a pickle and `attributes` tell of that."""
        model.load_state_dict(start)
        return model

    # A call of `functional_call` is one of the model: the forward pass begins there.
    taken = same(tmp_path, lambda training, _moment, taken: taken.append(QUICK[way](training.model)), again)
    assert len(taken) == STEPS * (len(MOMENTS) if kind is Hooked else len(MOMENTS) - 1)


@pytest.mark.parametrize("kind", KINDS)
def test_a_model_with_ways_of_its_own_is_what_it_is_without_us(
    tmp_path: Path, kind: Callable[[], torch.nn.Module]
) -> None:
    def take(training: Training, _moment: str, taken: list[Any]) -> None:
        model = training.model
        deep = copy.deepcopy(model)
        space = object.__getattribute__(model, "__dict__")
        taken += [list(space), names(model), told(model), told(deep), list(vars(deep))]
        taken += [space.get("noted", ())[:], space.get("reads")]

    same(tmp_path, take, kind)


def test_copies_are_models_of_their_own_that_hold_nothing_of_ours(tmp_path: Path) -> None:
    training = Training(made(Hooked))
    copies: list[tuple[torch.nn.Module, torch.Tensor]] = []

    def at(_moment: str) -> None:
        for other in (copy.deepcopy(training.model), pickle.loads(pickle.dumps(training.model))):
            with torch.no_grad():
                copies.append((other, other(BATCH)))

    watched(tmp_path, lambda: training.run(at))
    with torch.no_grad():
        for weight in training.model.parameters():
            weight.zero_()
    assert len(copies) == 2 * len(MOMENTS) * STEPS
    for other, then in copies:
        assert torch.equal(other(BATCH), then)
        assert then.abs().sum() > 0
        assert vars(other).keys() == vars(training.model).keys()
        assert not ours_within(other)


def ours_within(model: torch.nn.Module) -> list[object]:
    """Objects of ours that can be reached from a model, but by way of modules of Python."""
    seen: dict[int, object] = {}
    ahead: list[object] = [model]
    while ahead:
        each = ahead.pop()
        if id(each) in seen or isinstance(each, type | type(sys)) or inspect.isroutine(each):
            continue
        seen[id(each)] = each
        ahead += gc.get_referents(each)
    return [each for each in seen.values() if type(each).__module__.startswith("whyidle")]


def test_copies_that_are_called_before_the_model_are_not_taken_for_it(tmp_path: Path) -> None:
    training = Training(made(Plain))
    called: list[float] = []

    def at(moment: str) -> None:
        if moment == "handed over":
            for other in (copy.deepcopy(training.model), copy.copy(training.model), Plain()):
                other._modules = {"layers": torch.nn.Flatten(0)}
                called.append(float(other(BATCH).detach().sum()))
            time.sleep(0.003)

    watched(tmp_path, lambda: training.run(at), least_ms=4.9)
    assert called == [6.0] * 3 * STEPS


def _scripted(model: torch.nn.Module) -> object:
    scripted = torch.jit.script(model)
    return scripted.code, str(scripted.graph), scripted(BATCH).tolist(), names(scripted)


def _exported(model: torch.nn.Module) -> object:
    program = torch.export.export(model, (BATCH,))
    return program.graph_module.code, sorted(program.state_dict), str(program.graph_signature)


def _graphed(model: torch.nn.Module) -> object:
    graphed = torch.fx.symbolic_trace(model)
    return graphed.code, graphed(BATCH).tolist(), list(vars(graphed))


def _compiled(model: torch.nn.Module) -> object:
    torch._dynamo.reset()
    torch._dynamo.utils.counters.clear()
    compiled = torch.compile(model, backend="eager", fullgraph=True)
    outputs = [compiled(BATCH).tolist() for _ in range(3)]
    held = vars(compiled).keys() - {"dynamo_ctx"}
    return outputs, sorted(held), dict(torch._dynamo.utils.counters["stats"]), list(vars(model))


THOROUGH = {
    "jit.script": _scripted,
    "export": _exported,
    "fx": _graphed,
    "compile": _compiled,
}


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")
@pytest.mark.parametrize("way", THOROUGH)
def test_what_is_made_of_a_model_is_what_it_is_without_us(tmp_path: Path, way: str) -> None:
    def take(training: Training, _moment: str, taken: list[Any]) -> None:
        if training.step in (KNOWN, STEPS - 1):
            taken.append(THOROUGH[way](training.model))

    # What is called for it while the call is awaited may be taken for the forward pass, or hide it in that step.
    assert len(same(tmp_path, take, sees=False)) == 2 * (len(MOMENTS) - 1)


@pytest.fixture
def alone_in_a_group() -> Iterator[None]:
    torch.distributed.init_process_group("gloo", store=torch.distributed.HashStore(), rank=0, world_size=1)
    yield
    torch.distributed.destroy_process_group()


def _sharded(model: torch.nn.Module) -> torch.nn.Module:
    from torch.distributed.fsdp import fully_shard

    return fully_shard(model, mesh=torch.distributed.device_mesh.init_device_mesh("cpu", (1,)))


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")
@pytest.mark.parametrize("how", ["compiled", "scripted", "traced", "DataParallel", "averaged", "DDP", "FSDP"])
def test_the_call_of_a_model_within_another_is_seen_and_leaves_nothing(
    tmp_path: Path, how: str, request: pytest.FixtureRequest
) -> None:
    if how in ("DDP", "FSDP"):
        request.getfixturevalue("alone_in_a_group")
    wraps: dict[str, Callable[[torch.nn.Module], Any]] = {
        "compiled": lambda model: torch.compile(model, backend="eager"),
        "scripted": torch.jit.script,
        "traced": lambda model: torch.jit.trace(model, BATCH),
        "DataParallel": torch.nn.DataParallel,
        "averaged": torch.optim.swa_utils.AveragedModel,
        "DDP": torch.nn.parallel.DistributedDataParallel,
        "FSDP": _sharded,
    }

    def take(training: Training, _moment: str, taken: list[Any]) -> None:
        taken.append((list(vars(training.model)), names(training.model)))

    same(tmp_path, take, lambda: wraps[how](made(Plain)))


class Fails(Plain):
    fails = False

    def forward(self, batch: torch.Tensor) -> torch.Tensor:
        if self.fails:
            raise ArithmeticError("of the program's")
        return super().forward(batch)


def test_an_error_of_the_model_has_the_traceback_that_it_has_without_us(tmp_path: Path) -> None:
    def take(training: Training, moment: str, taken: list[Any]) -> None:
        if moment == "handed over":
            training.model.fails = True  # type: ignore[assignment]
            for _ in range(2):
                try:
                    training.model(BATCH)
                except ArithmeticError as error:
                    taken.append("".join(traceback.format_exception(error)))
            training.model.fails = False  # type: ignore[assignment]

    assert len(same(tmp_path, take, Fails)) == 2 * STEPS


def test_the_class_stays_the_programs(tmp_path: Path) -> None:
    """It may get a call of its own, and classes may be made of it, while the call of its model is awaited."""

    def take(training: Training, moment: str, taken: list[Any]) -> None:
        kind = type(training.model)

        def around(module: torch.nn.Module, *args: Any) -> Any:
            taken.append(training.step)
            return torch.nn.Module._wrapped_call_impl(module, *args)

        if moment == "handed over":
            later = type("Later", (kind,), {})()
            with torch.no_grad():
                taken.append((type(later).__call__.__name__, later(BATCH).sum().item()))
            if training.step == KNOWN:
                kind.__call__ = around  # type: ignore[method-assign]
            if training.step == KNOWN + 1:
                del kind.__call__
        taken.append((training.step, moment, kind.__call__.__name__))

    assert KNOWN in same(tmp_path, take, lambda: type("Model", (Plain,), {})(), sees=False)


def test_the_call_of_all_modules_stays_the_programs(tmp_path: Path) -> None:
    """Other tools replace it for a while, as torch.fx does."""
    before: list[Any] = [torch.nn.Module.__call__]

    def take(training: Training, moment: str, taken: list[Any]) -> None:
        def around(module: torch.nn.Module, *args: Any) -> Any:
            taken.append((training.step, type(module).__name__))
            return before[-1](module, *args)

        if training.step >= KNOWN and moment == "handed over":
            before.append(torch.nn.Module.__call__)
            torch.nn.Module.__call__ = around  # type: ignore[method-assign]
        elif len(before) > 1:
            torch.nn.Module.__call__ = before.pop()  # type: ignore[method-assign]

    assert len(same(tmp_path, take, sees=False)) == 5 * (STEPS - KNOWN)
    assert [torch.nn.Module.__call__] == before


@pytest.mark.parametrize("leaves", ["called", "awaited"])
def test_models_and_classes_are_freed(tmp_path: Path, leaves: str) -> None:
    gone: list[bool] = []

    def run() -> tuple[weakref.ref[torch.nn.Module], weakref.ref[type]]:
        class Model(Plain):
            pass

        training = Training(made(Model))
        model = weakref.ref(training.model)

        def at(moment: str) -> None:
            if leaves == "awaited" and moment == "handed over" and training.step == STEPS - 1:
                training.model = made(Plain)
                training.optimizer = torch.optim.SGD(training.model.parameters(), lr=0.1)
                gc.collect()
                gone.append(model() is None)

        training.run(at)
        return model, weakref.ref(Model)

    model, kind = watched(tmp_path, run, sees=leaves == "called")
    gc.collect()
    assert gone == [True] * (leaves == "awaited")
    assert model() is None
    assert kind() is None


def test_a_call_on_another_thread_is_the_programs(tmp_path: Path) -> None:
    def take(training: Training, moment: str, taken: list[Any]) -> None:
        if moment == "handed over":
            thread = threading.Thread(target=lambda: taken.append(training.model(BATCH).tolist()))
            thread.start()
            thread.join()

    assert len(same(tmp_path, take, sees=False)) == STEPS
