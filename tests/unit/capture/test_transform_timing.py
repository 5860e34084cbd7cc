"""What transforms of a dataset take, timed without the dataset noticing."""

from __future__ import annotations

import abc
import copy
import inspect
import operator
import os
import pickle
import traceback
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from types import FunctionType
from typing import Any, ClassVar

import pytest
import torch
from torch.utils.data import Subset
from torch.utils.data._utils.fetch import _MapDatasetFetcher as Fetcher

import support.slow_data as slow_data
from support.hooked import KeptBatches
from whyidle.capture.hooks.switch import Switch
from whyidle.capture.workers.fetch_timing import FetchTimer, TransformTiming
from whyidle.capture.workers.hook import fetchers

pytestmark = pytest.mark.usefixtures("nothing_compiled")


class Doubling:
    factor = 2

    def __call__(self, value: int) -> int:
        return value * self.factor


class Holder(slow_data.Keyed):
    def __init__(self) -> None:
        self.transform = Doubling()
        self.target_transform = None


def test_transforms_are_timed_in_place_and_put_back() -> None:
    data = Holder()
    inner = data.transform
    timing = TransformTiming(Subset(data, [0]))
    assert isinstance(data.transform, Doubling)
    assert [data.transform(n) for n in (1, 2, 3)] == [2, 4, 6]
    data.transform.factor = 5
    assert copy.deepcopy(data.transform)(2) == 10
    assert type(pickle.loads(pickle.dumps(data.transform))) is Doubling
    timing.end()
    assert data.transform is inner
    assert inner.factor == 5
    (timed,) = timing.transforms
    assert (timed.name, timed.position, timed.calls) == ("Doubling", 0, 3)
    assert 0 < timed.ns == timing.total_ns


@pytest.fixture(params=["torchvision.transforms", "torchvision.transforms.v2"])
def transforms(request: pytest.FixtureRequest) -> Any:
    return pytest.importorskip(request.param)


def test_the_members_of_a_compose_are_timed_one_by_one(transforms: Any) -> None:
    data = Holder()
    data.transform = transforms.Compose([transforms.RandomHorizontalFlip(), slow_data.Spin(0.003)])
    members = list(data.transform.transforms)
    image = torch.rand(3, 8, 8)
    torch.manual_seed(1)
    plain = [data.transform(image) for _ in range(5)]
    timing = TransformTiming(data)
    torch.manual_seed(1)
    assert all(torch.equal(data.transform(image), expected) for expected in plain)
    timing.end()
    assert all(a is b for a, b in zip(data.transform.transforms, members, strict=True))
    flip, spin = timing.transforms
    assert (flip.name, flip.calls, spin.name, spin.calls) == ("RandomHorizontalFlip", 5, "Spin", 5)
    assert spin.ns >= 5 * 3_000_000
    assert timing.total_ns == flip.ns + spin.ns


def test_a_transform_that_a_dataset_holds_twice_is_timed_once(transforms: Any) -> None:
    """torchvision's datasets hold theirs as `transform`, and once more within `transforms`."""
    datasets = pytest.importorskip("torchvision.datasets")
    members = [transforms.RandomHorizontalFlip(), slow_data.Spin(0.001)]
    data = datasets.VisionDataset(root="", transform=transforms.Compose(list(members)))
    timing = TransformTiming(data)
    image = data.transform(torch.rand(3, 8, 8))
    data.transforms(image, 0)
    assert [(timed.name, timed.calls) for timed in timing.transforms] == [("RandomHorizontalFlip", 2), ("Spin", 2)]
    # Nor is a stand-in of another thread's a transform.
    assert TransformTiming(data).transforms == []
    timing.end()
    assert all(a is b for a, b in zip(data.transform.transforms, members, strict=True))


def test_an_error_in_a_transform_has_no_frame_of_ours() -> None:
    data = Holder()
    data.transform = lambda _: 1 // 0  # type: ignore[assignment]
    timing = TransformTiming(data)
    with pytest.raises(ZeroDivisionError) as raised:
        data.transform(1)
    timing.end()
    assert all("capture/workers" not in entry.filename for entry in traceback.extract_tb(raised.value.__traceback__))


class Pipe:
    def __init__(self, number: int) -> None:
        self.number = number

    def __call__(self, value: int) -> int:
        return value + self.number

    def __bool__(self) -> bool:
        return False

    def __or__(self, other: Pipe) -> Pipe:
        return type(self)(self.number + other.number)

    def __copy__(self) -> Pipe:
        kind = type(self)
        made = kind.__new__(kind)
        made.number = self.number
        return made


def test_a_transform_can_do_all_it_could_while_it_is_timed_and_keeps_nothing_of_it() -> None:
    data = Holder()
    data.transform = own = Pipe(1)  # type: ignore[assignment]
    data.transforms = modules = torch.nn.ModuleList([torch.nn.Sequential(torch.nn.Identity())])  # type: ignore[attr-defined]
    data.target_transform = function = lambda value: value  # type: ignore[assignment]
    timing = TransformTiming(data)
    kept: Any = data.transform
    assert not kept
    assert (kept(1), (kept | kept).number, (own | kept).number, type(kept)(7).number) == (2, 2, 2, 7)
    assert (kept == kept, kept == own, own == kept, hash(kept)) == (True, True, True, hash(own))
    copies = [kept | kept, copy.copy(kept), copy.deepcopy(kept), pickle.loads(pickle.dumps(kept)), copy.deepcopy(data)]
    assert [type(each) for each in copies] == [Pipe, Pipe, Pipe, Pipe, Holder]
    assert (type(copies[-1].transform), kept.__class__, type(kept).__name__) == (Pipe, Pipe, "Pipe")
    assert isinstance(own, type(kept))
    assert inspect.signature(kept) == inspect.signature(own)
    assert [inner[0](3) for inner in data.transforms] == [3]  # type: ignore[attr-defined]
    stand_in: Any = data.target_transform
    assert (stand_in(4), stand_in.__module__, stand_in.__qualname__) == (4, __name__, function.__qualname__)
    assert pickle.loads(pickle.dumps(own)).number == 1
    timing.end()
    assert vars(data) == {"transform": own, "target_transform": function, "transforms": modules}
    assert [type(each) for each in vars(data).values()] == [Pipe, FunctionType, torch.nn.ModuleList]
    calls = {timed.name: timed.calls for timed in timing.transforms}
    assert (stand_in(5), kept(5)) == (5, 6)
    assert calls == {timed.name: timed.calls for timed in timing.transforms}
    assert calls["Pipe"] == 1


@dataclass
class Scaling:
    factor: int = 3

    def __call__(self, value: int) -> int:
        return value * self.factor


def test_a_dataclass_is_one_while_it_is_timed() -> None:
    data = Holder()
    data.transform = Scaling()  # type: ignore[assignment]
    timing = TransformTiming(data)
    shown: Any = data.transform
    assert (asdict(shown), replace(shown, factor=4), shown) == ({"factor": 3}, Scaling(4), Scaling(3))
    with pytest.raises(TypeError):
        hash(shown)
    timing.end()


class Registered:
    known: ClassVar[list[type]] = []

    def __init_subclass__(cls) -> None:
        cls.known.append(cls)

    def __call__(self, value: int) -> int:
        return value


class Looking(slow_data.Keyed):
    """Looks at its transform as it makes a sample, the transform at itself."""

    __getitems__ = None  # type: ignore[assignment]

    def __init__(self, kind: type) -> None:
        self.seen: list[tuple[Any, ...]] = []
        seen = self.seen

        class Theirs(kind):  # type: ignore[misc]
            def __call__(self, sample: int) -> int:
                seen.append((type(self), self.__class__, vars(type(self))["__call__"], Theirs.__subclasses__()))
                if sample == 13:
                    raise ValueError("theirs")
                return sample

        self.transform = self.train_transform = Theirs()
        self.own = [self.transform]

    def __getitem__(self, index: int) -> torch.Tensor:
        kind = type(self.own[0])
        self.seen.append((kind, self.transform.__class__, vars(kind)["__call__"], kind.__subclasses__()))
        assert self.transform is self.train_transform
        assert self.transform in self.own
        assert isinstance(self.transform, kind)
        return torch.ones(1) * self.transform(index)


def fetch_timer(tmp_path: Path) -> tuple[FetchTimer, list[tuple[int, ...]]]:
    """One, and the times of transforms that it records."""
    kept: Any = KeptBatches(tmp_path, in_worker=False)
    return FetchTimer(Switch("workers", "nothing is seen", kept.transforms.append), kept, False), kept.transforms


def fetcher_of(data: Any) -> Any:
    return Fetcher(data, True, torch.stack, False)


@pytest.mark.parametrize("kind", [object, Registered, torch.nn.Module, abc.ABC])
def test_every_class_is_the_same_before_while_and_after_its_transforms_are_timed(tmp_path: Path, kind: type) -> None:
    timer, timed = fetch_timer(tmp_path)
    data = Looking(kind)
    [own], theirs = data.own, type(data.own[0])
    as_it_was = (theirs, theirs, vars(theirs)["__call__"], [])
    known = list(Registered.known)
    fetcher = fetcher_of(data)
    for number in range(5):
        assert timer.begins(fetcher, [13 if number == 2 else number])
        try:
            timer.ends(fetcher.fetch(timer.indices))
        except ValueError:
            timer.fails()
        assert vars(data)["transform"] is vars(data)["train_transform"] is own
    assert [calls for _, _, calls, _ in timed] == [1, 1, 1]
    assert data.seen == [as_it_was] * 10
    assert Registered.known == known


def test_a_process_forked_in_the_midst_of_a_batch_has_the_transforms_themselves(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = Looking(object)
    fetcher, (timer, _) = fetcher_of(data), fetch_timer(tmp_path)
    monkeypatch.setattr(fetchers, "in_training", timer)
    for number in range(2):
        assert timer.begins(fetcher, [number])
        assert (data.transform is data.own[0]) == (number == 0), "the second batch is timed"
        child = os.fork()
        if not child:
            # `own` is a list that holds the transform and is not looked into.
            os._exit(data.transform is not data.own[0] or fetcher.collate_fn is not torch.stack)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        timer.ends(fetcher.fetch(timer.indices))


def test_what_the_dataset_moves_meanwhile_is_the_transform_again_afterwards(transforms: Any) -> None:
    data: Any = Holder()
    first, second = transforms.RandomHorizontalFlip(), Doubling()
    data.transform = compose = transforms.Compose([first, second])
    data.other = data.target_transform = Doubling()
    timing = TransformTiming(data)
    compose.transforms.insert(0, compose.transforms.pop())
    data.earlier, data.transform = compose.transforms[0], data.other
    timing.end()
    held = [*compose.transforms, data.earlier, data.transform, data.other]
    assert [type(each) for each in held] == [Doubling, type(first), Doubling, Doubling, Doubling]
    assert (held[0], held[1], held[2]) == (second, first, second)


class Listing(list[Any]):
    def __call__(self, value: int) -> int:
        return value


def test_what_functions_in_c_look_into_is_left_alone() -> None:
    for transform in (Listing(), operator.itemgetter(0), torch.add, int):
        data: Any = Holder()
        data.transform = transform
        timing = TransformTiming(data)
        assert data.transform is transform or transform is torch.add
        assert len(timing.transforms) == (transform is torch.add)
        timing.end()
        assert data.transform is transform
