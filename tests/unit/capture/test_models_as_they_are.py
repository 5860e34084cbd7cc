"""Models that are saved, pickled, copied or looked at at any moment of a step are what they are without us."""

from __future__ import annotations

import copy
import gc
import inspect
import io
import pickle
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from support.moments import BATCH, KINDS, MOMENTS, STEPS, Hooked, Plain, Training, made, names, own_hook, told, watched

pytestmark = pytest.mark.usefixtures("either_path")


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


def _states(model: torch.nn.Module) -> object:
    state: Any = model.__getstate__()
    other = copy.copy(model)
    other.__setstate__(state)
    return list(state), list(vars(other)), list(model.state_dict()), repr(model)


def _averaged(model: torch.nn.Module) -> object:
    average = torch.optim.swa_utils.AveragedModel(model)
    average.update_parameters(model)
    ema = torch.optim.swa_utils.AveragedModel(model, multi_avg_fn=torch.optim.swa_utils.get_ema_multi_avg_fn(0.9))
    ema.update_parameters(model)
    return list(vars(average.module)), told(average.module), told(ema.module)


def _functional(model: torch.nn.Module) -> object:
    state = {name: torch.zeros_like(value) for name, value in model.state_dict().items()}
    return torch.func.functional_call(model, state, BATCH).tolist(), list(vars(model))


def _by_name(module: str) -> Callable[[torch.nn.Module], object]:
    def dumps(model: torch.nn.Module) -> object:
        pickler = pytest.importorskip(module)
        loaded = pickler.loads(pickler.dumps(copy.deepcopy(model)))
        return pickler.dumps(model), told(loaded), list(vars(loaded))

    return dumps


QUICK: dict[str, Callable[[torch.nn.Module], object]] = {
    "torch.save": saved,
    "pickle": lambda model: [pickle.dumps(model, protocol) for protocol in range(pickle.HIGHEST_PROTOCOL + 1)],
    "attributes": attributes,
    "copies": _copies,
    "states": _states,
    "averages": _averaged,
    "functional_call": _functional,
    "dill": _by_name("dill"),
    "cloudpickle": _by_name("cloudpickle"),
}


@pytest.mark.parametrize("kind", [Plain, Hooked])
@pytest.mark.parametrize("way", QUICK)
def test_a_model_is_at_every_moment_what_it_is_without_us(
    tmp_path: Path, way: str, kind: Callable[[], torch.nn.Module]
) -> None:
    model = made(kind)
    start = copy.deepcopy(model.state_dict())
    taken: dict[bool, list[tuple[int, str, object]]] = {False: [], True: []}
    looks_within = kind is Hooked
    for watch in (False, True):
        model.load_state_dict(start)
        training = Training(model)

        def at(moment: str, module: torch.nn.Module) -> None:
            taken[watch].append((training.step, moment, QUICK[way](module)))  # noqa: B023

        def run(training: Training = training) -> None:
            training.run(at)

        if watch:
            # A call of `functional_call` is one of the model: the forward pass begins there.
            watched(tmp_path, run)
        else:
            run()
    assert len(taken[True]) == STEPS * (len(MOMENTS) if looks_within else len(MOMENTS) - 1)
    for ours, plain in zip(taken[True], taken[False], strict=True):
        assert ours == plain


@pytest.mark.parametrize("kind", KINDS)
def test_a_model_with_ways_of_its_own_is_what_it_is_without_us(
    tmp_path: Path, kind: Callable[[], torch.nn.Module]
) -> None:
    def took(run: Callable[[Callable[[], object]], object]) -> object:
        training = Training(made(kind))
        taken: list[object] = []

        def at(moment: str, model: torch.nn.Module) -> None:
            deep = copy.deepcopy(model)
            space = object.__getattribute__(model, "__dict__")
            taken.append((training.step, moment, list(space), names(model), told(model), told(deep)))
            taken.append((space.get("noted", ())[:], space.get("reads"), list(vars(deep)), getattr(model, "kept", 0)))

        run(lambda: training.run(at))
        return taken, training.losses

    assert took(lambda run: watched(tmp_path, run)) == took(lambda run: run())


def test_a_class_that_is_pickled_with_its_model_is_what_it_is_without_us(tmp_path: Path) -> None:
    """As of the program's own file: picklers other than Python's own write down such a class attribute by attribute."""
    pickler = pytest.importorskip("dill")

    def forward(self: Any, batch: Any) -> Any:
        return self.layer(batch)

    def own() -> torch.nn.Module:
        kind = type("Own", (torch.nn.Module,), {"forward": forward, "__module__": "__main__"})
        model: Any = kind()
        model.layer = torch.nn.Linear(3, 1)
        return model  # type: ignore[no-any-return]

    model = made(own)
    start = copy.deepcopy(model.state_dict())

    def took(run: Callable[[Callable[[], object]], object]) -> object:
        model.load_state_dict(start)
        training = Training(model)
        taken: list[bytes] = []
        run(lambda: training.run(lambda _moment, model: taken.append(pickler.dumps(model, recurse=True))))
        assert b"layer" in taken[0]
        assert b"Own" in taken[0]
        return taken

    assert took(lambda run: watched(tmp_path, run)) == took(lambda run: run())


def test_copies_are_models_of_their_own_that_hold_nothing_of_ours(tmp_path: Path) -> None:
    training = Training(made(Hooked))
    copies: list[tuple[torch.nn.Module, torch.Tensor]] = []

    def at(_moment: str, model: torch.nn.Module) -> None:
        for other in (copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
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

    def at(moment: str, model: torch.nn.Module) -> None:
        if moment == "handed over":
            for other in (copy.deepcopy(model), copy.copy(model), Plain()):
                other._modules = {"layers": torch.nn.Flatten(0)}
                called.append(float(other(BATCH).detach().sum()))
            time.sleep(0.003)

    watched(tmp_path, lambda: training.run(at), least_ms=4.9)
    assert called == [6.0] * 3 * STEPS
