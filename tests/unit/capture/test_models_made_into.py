"""What is made of a model at any moment of a step, and its class, are what they are without us."""

from __future__ import annotations

import copy
import gc
import threading
import traceback
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from support.moments import BATCH, KNOWN, MOMENTS, STEPS, Plain, Training, made, names, told, watched

pytestmark = pytest.mark.usefixtures("either_path")


def _scripted(model: torch.nn.Module) -> object:
    scripted = torch.jit.script(model)
    return scripted.code, str(scripted.graph), scripted(BATCH).tolist(), names(scripted)


def _traced(model: torch.nn.Module) -> object:
    return torch.jit.trace(model, BATCH).code


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


def _in_place(model: torch.nn.Module) -> object:
    torch._dynamo.reset()
    other = copy.deepcopy(model)
    other.compile(backend="eager", fullgraph=True)
    return other(BATCH).tolist(), list(vars(other)), told(other)


THOROUGH = {
    "jit.script": _scripted,
    "jit.trace": _traced,
    "export": _exported,
    "fx": _graphed,
    "compile": _compiled,
    "compile in place": _in_place,
}


@pytest.fixture
def fresh_compiler() -> Iterator[None]:
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")
@pytest.mark.usefixtures("fresh_compiler")
@pytest.mark.parametrize("way", THOROUGH)
def test_what_is_made_of_a_model_is_what_it_is_without_us(tmp_path: Path, way: str) -> None:
    def took(run: Callable[[Callable[[], object]], object]) -> object:
        training = Training(made(Plain))
        taken: list[object] = []

        def at(moment: str, model: torch.nn.Module) -> None:
            if training.step in (KNOWN, STEPS - 1):
                taken.append((training.step, moment, THOROUGH[way](model)))

        run(lambda: training.run(at))
        assert len(taken) == 2 * (len(MOMENTS) - 1)
        return taken, training.losses

    # What is called for it while the call is awaited may be taken for the forward pass, or hide it in that step.
    assert took(lambda run: watched(tmp_path, run, sees=False)) == took(lambda run: run())


@pytest.fixture
def alone_in_a_group() -> Iterator[None]:
    torch.distributed.init_process_group("gloo", store=torch.distributed.HashStore(), rank=0, world_size=1)
    yield
    torch.distributed.destroy_process_group()


def _sharded(model: torch.nn.Module) -> torch.nn.Module:
    from torch.distributed.fsdp import fully_shard

    return fully_shard(model, mesh=torch.distributed.device_mesh.init_device_mesh("cpu", (1,)))


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")
@pytest.mark.usefixtures("fresh_compiler")
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

    def took(run: Callable[[Callable[[], object]], object]) -> object:
        torch._dynamo.reset()
        torch._dynamo.utils.counters.clear()
        called = wraps[how](made(Plain))
        training = Training(called)
        taken: list[object] = []
        run(lambda: training.run(lambda _moment, model: taken.append((list(vars(model)), names(model)))))
        return taken, training.losses, dict(torch._dynamo.utils.counters["stats"])

    assert took(lambda run: watched(tmp_path, run)) == took(lambda run: run())


def test_an_error_of_the_model_has_the_traceback_that_it_has_without_us(tmp_path: Path) -> None:
    class Fails(Plain):
        fails = False

        def forward(self, batch: torch.Tensor) -> torch.Tensor:
            if self.fails:
                raise ArithmeticError("of the program's")
            return super().forward(batch)

    def took(run: Callable[[Callable[[], object]], object]) -> list[str]:
        training = Training(made(Fails))
        raised: list[str] = []

        def at(moment: str, model: Any) -> None:
            if moment == "handed over":
                model.fails = True
                for _ in range(2):
                    try:
                        model(BATCH)
                    except ArithmeticError as error:
                        raised.append("".join(traceback.format_exception(error)))
                model.fails = False

        run(lambda: training.run(at))
        assert len(raised) == 2 * STEPS
        return raised

    assert took(lambda run: watched(tmp_path, run)) == took(lambda run: run())


def test_the_class_stays_the_programs(tmp_path: Path) -> None:
    """It may get a call of its own, and classes may be made of it, while the call of its model is awaited."""

    def took(run: Callable[[Callable[[], object]], object]) -> object:
        class Model(Plain):
            pass

        training = Training(made(Model))
        calls: list[object] = []
        later: list[torch.nn.Module] = []

        def around(module: torch.nn.Module, *args: Any) -> Any:
            calls.append(training.step)
            return torch.nn.Module._wrapped_call_impl(module, *args)

        def at(moment: str, model: torch.nn.Module) -> None:
            if moment == "handed over":
                later.append(type("Later", (Model,), {})())
                if training.step == KNOWN:
                    Model.__call__ = around  # type: ignore[method-assign]
                if training.step == KNOWN + 1:
                    del Model.__call__
            calls.append((training.step, moment, type(model).__call__.__name__))

        run(lambda: training.run(at))
        calls.extend(type(each).__call__.__name__ for each in later)
        assert KNOWN in calls
        with torch.no_grad():
            calls.append([float(each(BATCH).sum()) for each in later])
        return calls, training.losses

    assert took(lambda run: watched(tmp_path, run, sees=False)) == took(lambda run: run())


def test_the_call_of_all_modules_stays_the_programs(tmp_path: Path) -> None:
    """Other tools replace it for a while, as torch.fx does."""

    def took(run: Callable[[Callable[[], object]], object]) -> object:
        training = Training(made(Plain))
        calls: list[object] = []
        plain = torch.nn.Module.__call__

        def around(module: torch.nn.Module, *args: Any) -> Any:
            calls.append((training.step, type(module).__name__))
            return plain(module, *args)

        def at(moment: str, _model: torch.nn.Module) -> None:
            if training.step >= KNOWN and moment == "handed over":
                torch.nn.Module.__call__ = around  # type: ignore[method-assign]
            elif torch.nn.Module.__call__ is around:
                torch.nn.Module.__call__ = plain  # type: ignore[method-assign]

        run(lambda: training.run(at))
        assert len(calls) == 5 * (STEPS - KNOWN)
        return calls, training.losses

    before = torch.nn.Module.__call__
    assert took(lambda run: watched(tmp_path, run, sees=False)) == took(lambda run: run())
    assert torch.nn.Module.__call__ is before


@pytest.mark.parametrize("leaves", ["called", "awaited"])
def test_models_and_classes_are_freed(tmp_path: Path, leaves: str) -> None:
    gone: list[bool] = []

    def run() -> tuple[weakref.ref[torch.nn.Module], weakref.ref[type]]:
        class Model(Plain):
            pass

        training = Training(made(Model))
        model = weakref.ref(training.model)

        def at(moment: str, given: torch.nn.Module) -> None:
            del given
            if leaves == "awaited" and moment == "handed over" and training.step == STEPS - 1:
                training.model = training.called = made(Plain)
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
    def took(run: Callable[[Callable[[], object]], object]) -> object:
        training = Training(made(Plain))
        outputs: list[object] = []

        def at(moment: str, model: torch.nn.Module) -> None:
            if moment == "handed over":
                thread = threading.Thread(target=lambda: outputs.append(model(BATCH).tolist()))
                thread.start()
                thread.join()

        run(lambda: training.run(at))
        assert len(outputs) == STEPS
        return outputs, training.losses

    assert took(lambda run: watched(tmp_path, run, sees=False)) == took(lambda run: run())
