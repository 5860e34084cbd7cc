"""Where the forward pass begins: what a training does with a batch before that is its own work, not the step's. Models
that are saved, copied, compiled or looked at at any moment of a step are what they are without us."""

from __future__ import annotations

import copy
import gc
import inspect
import io
import pickle
import sys
import threading
import traceback
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset

from support.hooked import MS, AllLookedAt, Clocked, data, recording
from whyidle.analyse.run.analysis import analyse
from whyidle.capture.hooks import forward
from whyidle.record.reader import Records
from whyidle.record.run import open_run
from whyidle.record.schema import StepFlag

pytestmark = pytest.mark.usefixtures("either_path")


class Model(torch.nn.Module):
    """A network that takes 20 ms."""

    def __init__(self, clock: Clocked | None = None) -> None:
        super().__init__()
        self.layers = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.ReLU(), torch.nn.Linear(4, 1))
        self._clock = [clock]

    def forward(self, batch: torch.Tensor) -> torch.Tensor:
        if self._clock[0] is not None:
            self._clock[0].take(20)
        return self.layers(batch).sum()  # type: ignore[no-any-return]


class Training:
    """Its backward pass and optimizer take 10 ms."""

    def __init__(self, folder: Path, steps: int = 60) -> None:
        self.folder = folder
        self.clock = Clocked(1000)
        self.model = Model(self.clock)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.01)
        self.loader: Any = DataLoader(TensorDataset(torch.ones(4 * steps, 3)), batch_size=4)

    def run(self, step: Callable[[torch.Tensor], object]) -> Records:
        before = torch.nn.Module.__call__
        with recording(self.folder, self.clock) as made:
            for (batch,) in self.loader:
                step(batch)
        assert made.notices == []
        assert torch.nn.Module.__call__ is before
        return made.done()

    def learns(self, loss: torch.Tensor) -> None:
        loss.backward()
        self.clock.take(10)
        self.optimizer.step()
        self.optimizer.zero_grad()


@pytest.fixture
def training(tmp_path: Path) -> Training:
    return Training(tmp_path)


def seen(steps: Records) -> np.ndarray[Any, Any]:
    return (steps["flags"] & StepFlag.FORWARD_SEEN) != 0


def before_forward_ms(steps: Records) -> np.ndarray[Any, Any]:
    found = steps[seen(steps)]
    return (found["forward_begin_ns"] - found["fetch_end_ns"]) / MS  # type: ignore[no-any-return]


@pytest.mark.parametrize("around", [False, True], ids=["in the loop", "in a generator around the loader"])
def test_a_stage_behind_the_loader_is_time_of_the_host(training: Training, around: bool) -> None:
    loader = training.loader

    def packed(batch: torch.Tensor) -> torch.Tensor:
        training.clock.take(30)  # packing, tokenising
        return torch.roll(batch, 1)

    class Augmented:
        def __iter__(self) -> Iterator[Any]:
            return ((packed(batch),) for (batch,) in loader)

    if around:
        training.loader = Augmented()
    steps = training.run(lambda batch: training.learns(training.model(batch if around else packed(batch))))
    assert seen(steps)[forward.FIRST_LOOK + 1 :].all()
    assert before_forward_ms(steps) == pytest.approx(30, abs=0.1)
    analysis = analyse(open_run(training.folder / "run"))
    assert analysis.facts is not None
    # 30 of 60 ms; the steps until the model was found are warm-up, or counted as computing.
    assert analysis.facts.shares["host"] == pytest.approx(0.5, abs=0.05)
    assert analysis.facts.shares["compute"] == pytest.approx(0.5, abs=0.05)
    assert analysis.verdict.cause == "input.main_process"
    assert analysis.verdict.share == pytest.approx(0.5, abs=0.05)


def test_clearing_gradients_there_is_part_of_the_step(training: Training, monkeypatch: pytest.MonkeyPatch) -> None:
    plain = torch.optim.Optimizer.zero_grad

    def slow(optimizer: torch.optim.Optimizer, set_to_none: bool = True) -> None:
        training.clock.take(25)
        plain(optimizer, set_to_none)

    monkeypatch.setattr(torch.optim.Optimizer, "zero_grad", slow)

    def step(batch: torch.Tensor) -> None:
        training.optimizer.zero_grad()
        training.clock.take(15)
        training.learns(training.model(batch))

    assert before_forward_ms(training.run(step))[-20:] == pytest.approx(15, abs=0.1)
    assert torch.optim.Optimizer.zero_grad is slow


def test_clearing_gradients_is_timed_only_where_something_takes_time_before_the_model(training: Training) -> None:
    plain = torch.optim.Optimizer.zero_grad
    hooked: list[bool] = []

    def step(batch: torch.Tensor) -> None:
        hooked.append(torch.optim.Optimizer.zero_grad is not plain)
        training.optimizer.zero_grad()
        if len(hooked) == 40:
            training.clock.take(15)
        training.learns(training.model(batch))

    steps = training.run(step)
    assert hooked == [False] * 40 + [True] * 20
    assert seen(steps).nonzero()[0].tolist() == [39]
    assert torch.optim.Optimizer.zero_grad is plain


def test_augmentation_by_modules_that_learn_nothing_is_no_forward_pass(training: Training) -> None:
    augment = torch.nn.Dropout(0.1)

    def step(batch: torch.Tensor) -> None:
        changed = augment(batch)
        training.clock.take(15)
        training.learns(training.model(changed))

    assert before_forward_ms(training.run(step)) == pytest.approx(15, abs=0.1)


def test_a_loop_that_fetches_before_it_learns_is_not_blamed(training: Training) -> None:
    """What follows the hand-over is the pass of the batch before."""
    held: list[torch.Tensor] = []

    def step(batch: torch.Tensor) -> None:
        if held:
            training.learns(held.pop())
        held.append(training.model(batch))

    assert not seen(training.run(step))[2:].any()


def test_a_program_without_modules_is_left_alone(training: Training) -> None:
    weight = torch.ones(3, 1, requires_grad=True)

    def step(batch: torch.Tensor) -> None:
        loss = (batch @ weight).sum()
        training.model.layers(batch)
        loss.backward()

    assert not seen(training.run(step)).any()


def test_a_model_that_gives_way_to_another_is_followed(training: Training) -> None:
    models = [training.model] * 24 + [Model(training.clock)] * 36

    def step(batch: torch.Tensor) -> None:
        training.clock.take(5)
        training.learns(models.pop(0)(batch))

    steps = training.run(step)
    assert seen(steps)[-10:].all()
    assert not seen(steps)[25:30].any()


# A model is at every moment of a step what it is without us.

BATCH = torch.ones(2, 3)
MOMENTS = ("before the fetch", "handed over", "within the forward pass", "after the backward pass", "after the step")
KNOWN = forward.FIRST_LOOK + 1
"""From this step on the model is known, and its call awaited."""
STEPS = KNOWN + 3
Take = Callable[["Watched", str, list[Any]], object]
"""What a training takes of its model at a moment of its step."""

_within: list[Callable[[torch.nn.Module], object]] = []


def own_hook(module: torch.nn.Module, _args: object, _returned: object) -> None:
    """A forward hook of the program's."""
    for call in _within:
        call(module)


class Hooked(Model):
    def __init__(self) -> None:
        super().__init__()
        self.register_forward_hook(own_hook)


class OwnAttributes(Model):
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


class AllAttributes(Model):
    """Counts what is read of it by name."""

    def __getattribute__(self, name: str) -> Any:
        space = object.__getattribute__(self, "__dict__")
        space["reads"] = space.get("reads", 0) + (name == "_call_impl")
        return super().__getattribute__(name)


class OwnCall(Model):
    def __call__(self, *args: Any) -> Any:
        return super().__call__(*args)


class Watched:
    """A short training that takes what is said at each of `MOMENTS` of each step."""

    def __init__(self, model: torch.nn.Module, take: Take, clock: Clocked) -> None:
        self.model, self.take, self.clock = model, take, clock
        self.step = 0
        self.losses: list[float] = []
        self.taken: list[Any] = []
        self.optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)

    def at(self, moment: str) -> None:
        self.take(self, moment, self.taken)

    def run(self) -> None:
        def within(_module: torch.nn.Module) -> None:
            if torch.is_grad_enabled():
                _within.clear()
                self.at("within the forward pass")

        batches = iter(data(2 * STEPS, 2))
        for self.step in range(STEPS):
            self.at("before the fetch")
            (batch,) = next(batches)
            self.clock.take(2)  # so that it is seen where the forward pass begins
            self.at("handed over")
            _within[:] = [within]
            loss = self.model(batch).sum()
            _within.clear()
            loss.backward()
            self.at("after the backward pass")
            self.optimizer.step()
            self.optimizer.zero_grad()
            self.at("after the step")
            self.losses.append(float(loss.detach()))


def watched(folder: Path, model: torch.nn.Module, take: Take, sees: bool = True, least_ms: float = 2) -> Watched:
    """A training that was recorded.

    Args:
        sees: whether the model's call is seen in each step from `KNOWN` on.
        least_ms: where that is seen, it comes so long after the batch at the least.
    """
    clock = Clocked(1000)
    training = Watched(model, take, clock)
    del model  # the training may let go of it
    with recording(folder, clock, AllLookedAt(1)) as made:
        training.run()
    assert not [notice for notice in made.notices if "hook" in notice]
    steps = made.done()
    found = before_forward_ms(steps[steps["step"] >= KNOWN])
    assert len(found) >= 3 * sees
    assert (found >= least_ms).all()
    return training


def fresh(model: Callable[[], Any]) -> Any:
    torch.manual_seed(5)
    return model()


def same(folder: Path, take: Take, model: Callable[[], Any] = Model, sees: bool = True) -> list[Any]:
    """What is taken of a training, its losses and its graphs are what they are without us; what is taken."""
    outcomes = []
    for recorded in (False, True):
        torch._dynamo.reset()
        torch._dynamo.utils.counters.clear()
        if recorded:
            training = watched(folder, fresh(model), take, sees)
        else:
            training = Watched(fresh(model), take, Clocked())
            training.run()
        outcomes.append((training.taken, training.losses, dict(torch._dynamo.utils.counters["stats"])))
    assert outcomes[0] == outcomes[1]
    return outcomes[0][0]


def bytes_of(model: torch.nn.Module) -> bytes:
    """All of a model. Python's own pickler writes where its tensors lie."""
    file = io.BytesIO()
    torch.save(model, file)
    return file.getvalue()


def names(model: torch.nn.Module) -> list[str]:
    return [name for name in dir(model) if not name.startswith("___")]  # which Dynamo adds for the whole process


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


def copies(model: torch.nn.Module) -> object:
    deep, shallow = copy.deepcopy(model), copy.copy(model)
    assert [id(value) for value in vars(shallow).values()] == [id(value) for value in vars(model).values()]
    return list(vars(deep)), bytes_of(deep), list(vars(shallow)), bytes_of(shallow)


def functional(model: torch.nn.Module) -> object:
    """A call of `functional_call` is one of the model: the forward pass begins there."""
    state = {name: torch.zeros_like(value) for name, value in model.state_dict().items()}
    return torch.func.functional_call(model, state, BATCH).tolist(), list(vars(model))


QUICK: dict[str, Callable[[torch.nn.Module], object]] = {
    "torch.save": bytes_of,
    "pickle": lambda model: [pickle.dumps(model, protocol) for protocol in range(pickle.HIGHEST_PROTOCOL + 1)],
    "attributes": attributes,
    "copies": copies,
    "functional_call": functional,
}


@pytest.mark.parametrize("kind", [Model, Hooked])
@pytest.mark.parametrize("way", QUICK)
def test_a_model_is_at_every_moment_what_it_is_without_us(
    tmp_path: Path, way: str, kind: Callable[[], torch.nn.Module]
) -> None:
    model = fresh(kind)
    start = copy.deepcopy(model.state_dict())

    def again() -> torch.nn.Module:
        """The same one, whose parts lie where they lay: a pickle and `attributes` tell of that."""
        model.load_state_dict(start)
        return model  # type: ignore[no-any-return]

    taken = same(tmp_path, lambda training, _moment, taken: taken.append(QUICK[way](training.model)), again)
    assert len(taken) == STEPS * (len(MOMENTS) if kind is Hooked else len(MOMENTS) - 1)


CASES: list[Any] = []


def taken(count: int, *models: Callable[[], Any], sees: bool = True) -> Callable[[Take], Take]:
    """What this takes of a training of such models is what it is without us, and so much.

    `sees`: the forward pass is seen all the while, and not taken to begin, or hidden, by what is called for this.
    """

    def keep(take: Take) -> Take:
        CASES.extend(
            pytest.param(take, model, sees, count, id=f"{take.__name__}-{model.__name__}")
            for model in models or (Model,)
        )
        return take

    return keep


def layers() -> torch.nn.Module:
    return Model().layers


def within(wrap: Callable[[torch.nn.Module], Any], name: str) -> Callable[[], Any]:
    """A model within another."""

    def wrapped() -> Any:
        return wrap(layers())

    wrapped.__name__ = name
    return wrapped


def _sharded(model: torch.nn.Module) -> torch.nn.Module:
    from torch.distributed.fsdp import fully_shard

    return fully_shard(model, mesh=torch.distributed.device_mesh.init_device_mesh("cpu", (1,)))


def _hooked(model: torch.nn.Module) -> torch.nn.Module:
    """The program's own hooks, around its layers and within."""
    model[0].register_forward_hook(lambda _module, _args, returned: returned + 1)  # type: ignore[index]
    model.register_forward_pre_hook(lambda module, args: args)
    return model


WRAPS: dict[str, Callable[[torch.nn.Module], Any]] = {
    "compiled": lambda model: torch.compile(model, backend="eager"),
    "compiled with hooks": lambda model: torch.compile(_hooked(model), backend="eager"),
    "around what is compiled": lambda model: torch.nn.Sequential(torch.compile(model[0], backend="eager"), model[2]),
    "scripted": torch.jit.script,
    "traced": lambda model: torch.jit.trace(model, BATCH),
    "DataParallel": torch.nn.DataParallel,
    "averaged": torch.optim.swa_utils.AveragedModel,
    "DDP": torch.nn.parallel.DistributedDataParallel,
    "FSDP": _sharded,
}


@pytest.fixture(scope="module")
def alone_in_a_group() -> Iterator[None]:
    torch.distributed.init_process_group("gloo", store=torch.distributed.HashStore(), rank=0, world_size=1)
    yield
    torch.distributed.destroy_process_group()


@taken(5 * STEPS * (len(MOMENTS) - 1), OwnAttributes, AllAttributes, OwnCall)
def ways_of_its_own(training: Watched, _moment: str, taken: list[Any]) -> None:
    space = object.__getattribute__(training.model, "__dict__")
    taken += [list(space), names(training.model), bytes_of(training.model)]
    taken += [list(space.get("noted", ())), space.get("reads")]


@taken(STEPS * (len(MOMENTS) - 1), *(within(wrap, name) for name, wrap in WRAPS.items()))
def its_call_within_another(training: Watched, _moment: str, taken: list[Any]) -> None:
    taken.append((list(vars(training.model)), names(training.model)))


def compiled_in_place() -> torch.nn.Module:
    model = layers()
    model.compile(backend="eager")
    return model


def of_compiled_functions() -> torch.nn.Module:
    class Outer(Model):
        """Its call leads into a graph of its own."""

        def __init__(self) -> None:
            super().__init__()
            self.within = [torch.compile(lambda batch: self.layers(batch).sum(), backend="eager")]

        def forward(self, batch: torch.Tensor) -> torch.Tensor:
            return self.within[0](batch)

    return Outer()


@taken(STEPS, compiled_in_place, of_compiled_functions, sees=False)
def its_graphs(training: Watched, moment: str, taken: list[Any]) -> None:
    if moment == "after the step":
        taken.append(dict(torch._dynamo.utils.counters["stats"]))
        assert taken[-1]["unique_graphs"] > 0


def made_of(model: torch.nn.Module) -> Iterator[object]:
    scripted = torch.jit.script(model)
    yield scripted.code, str(scripted.graph), scripted(BATCH).tolist(), names(scripted)
    program = torch.export.export(model, (BATCH,))
    yield program.graph_module.code, sorted(program.state_dict), str(program.graph_signature)
    graphed = torch.fx.symbolic_trace(model)
    yield graphed.code, graphed(BATCH).tolist(), list(vars(graphed))
    torch._dynamo.reset()
    torch._dynamo.utils.counters.clear()
    compiled = torch.compile(model, backend="eager", fullgraph=True)
    outputs = [compiled(BATCH).tolist() for _ in range(3)]
    held = vars(compiled).keys() - {"dynamo_ctx"}
    yield outputs, sorted(held), dict(torch._dynamo.utils.counters["stats"]), list(vars(model))


@taken(4 * 2 * (len(MOMENTS) - 1), layers, sees=False)
def what_is_made_of_it(training: Watched, _moment: str, taken: list[Any]) -> None:
    if training.step in (KNOWN, STEPS - 1):
        taken += made_of(training.model)


class Fails(Model):
    fails = False

    def forward(self, batch: torch.Tensor) -> torch.Tensor:
        if self.fails:
            raise ArithmeticError("of the program's")
        return super().forward(batch)


@taken(2 * STEPS, Fails)
def tracebacks_of_its_errors(training: Watched, moment: str, taken: list[Any]) -> None:
    if moment == "handed over":
        training.model.fails = True  # type: ignore[assignment]
        for _ in range(2):
            try:
                training.model(BATCH)
            except ArithmeticError as error:
                taken.append("".join(traceback.format_exception(error)))
        training.model.fails = False  # type: ignore[assignment]


def of_a_class_of_its_own() -> Any:
    return type("Kind", (Model,), {})()


@taken(STEPS * len(MOMENTS) + 2, of_a_class_of_its_own, sees=False)
def its_class(training: Watched, moment: str, taken: list[Any]) -> None:
    """It may get a call of its own, and classes may be made of it, while the call of its model is awaited."""
    kind = type(training.model)

    def around(module: torch.nn.Module, *args: Any) -> Any:
        taken.append(training.step)
        return torch.nn.Module._wrapped_call_impl(module, *args)

    if moment == "handed over":
        later = fresh(type("Later", (kind,), {}))
        with torch.no_grad():
            taken.append((type(later).__call__.__name__, later(BATCH).sum().item()))
        if training.step == KNOWN:
            kind.__call__ = around  # type: ignore[method-assign]
        if training.step == KNOWN + 1:
            del kind.__call__
    taken.append((training.step, moment, kind.__call__.__name__))


@taken(5 * (STEPS - KNOWN), sees=False)
def the_call_of_all_modules(training: Watched, moment: str, taken: list[Any]) -> None:
    """Other tools replace it for a while, as torch.fx does."""
    before = training.__dict__.setdefault("before", [torch.nn.Module.__call__])

    def around(module: torch.nn.Module, *args: Any) -> Any:
        taken.append((training.step, type(module).__name__))
        return before[-1](module, *args)

    if training.step >= KNOWN and moment == "handed over":
        before.append(torch.nn.Module.__call__)
        torch.nn.Module.__call__ = around  # type: ignore[method-assign]
    elif len(before) > 1:
        torch.nn.Module.__call__ = before.pop()  # type: ignore[method-assign]


@taken(STEPS, sees=False)
def its_call_on_another_thread(training: Watched, moment: str, taken: list[Any]) -> None:
    if moment == "handed over":
        thread = threading.Thread(target=lambda: taken.append(training.model(BATCH).tolist()))
        thread.start()
        thread.join()


@pytest.mark.usefixtures("alone_in_a_group")
@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")
@pytest.mark.parametrize(("take", "model", "sees", "count"), CASES)
def test_what_a_program_does_with_its_model_gives_what_it_gives_without_us(
    tmp_path: Path, take: Take, model: Callable[[], Any], sees: bool, count: int
) -> None:
    before = torch.nn.Module.__call__
    assert len(same(tmp_path, take, model, sees)) == count
    assert torch.nn.Module.__call__ is before


def test_copies_that_are_called_before_the_model_are_not_taken_for_it(tmp_path: Path) -> None:
    def take(training: Watched, moment: str, taken: list[Any]) -> None:
        if moment == "handed over":
            for other in (copy.deepcopy(training.model), copy.copy(training.model), Model()):
                other._modules = {"layers": torch.nn.Flatten(0)}
                taken.append(float(other(BATCH).detach().sum()))
            training.clock.take(3)

    assert watched(tmp_path, fresh(Model), take, least_ms=5).taken == [6.0] * 3 * STEPS


@pytest.mark.parametrize("leaves", ["called", "awaited"])
def test_models_and_classes_are_freed(tmp_path: Path, leaves: str) -> None:
    class Kept(Model):
        pass

    model = Kept()
    gone = [weakref.ref(model), weakref.ref(Kept)]
    held = [model]
    del model, Kept

    def take(training: Watched, moment: str, taken: list[Any]) -> None:
        if leaves == "awaited" and moment == "handed over" and training.step == STEPS - 1:
            training.model = Model()
            training.optimizer = torch.optim.SGD(training.model.parameters(), lr=0.1)
            gc.collect()
            taken.append(gone[0]() is None)

    training = watched(tmp_path, held.pop(), take, sees=leaves == "called")
    assert training.taken == [True] * (leaves == "awaited")
    del training
    gc.collect()
    assert [each() for each in gone] == [None, None]
