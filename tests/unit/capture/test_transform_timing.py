"""What transforms of a dataset take, timed without the dataset noticing."""

from __future__ import annotations

import copy
import pickle
import traceback
from typing import Any

import pytest
import torch
from torch.utils.data import Subset

import support.slow_data as slow_data
from whyidle.capture.workers.transform_timing import Timing


def fails() -> None:
    raise ValueError("theirs")


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
    timing = Timing(Subset(data, [0]))
    assert data.transform is inner
    assert isinstance(data.transform, Doubling)
    assert [data.transform(n) for n in (1, 2, 3)] == [2, 4, 6]
    data.transform.factor = 5
    assert copy.deepcopy(data.transform)(2) == 10
    assert type(pickle.loads(pickle.dumps(data.transform))) is Doubling
    timing.end()
    assert data.transform is inner
    assert inner.factor == 5
    (timed,) = timing.transforms
    assert (timed.name, timed.calls) == ("Doubling", 3)
    assert 0 < timed.ns == timing.total_ns


@pytest.mark.parametrize("version", ["v1", "v2"])
def test_the_members_of_a_compose_are_timed_one_by_one(version: str) -> None:
    torchvision = pytest.importorskip("torchvision")
    transforms = torchvision.transforms if version == "v1" else pytest.importorskip("torchvision.transforms.v2")
    data = Holder()
    data.transform = transforms.Compose([transforms.RandomHorizontalFlip(), slow_data.Spin(0.003)])
    members = list(data.transform.transforms)
    image = torch.rand(3, 8, 8)
    torch.manual_seed(1)
    plain = [data.transform(image) for _ in range(5)]
    timing = Timing(data)
    torch.manual_seed(1)
    assert all(torch.equal(data.transform(image), expected) for expected in plain)
    timing.end()
    assert all(a is b for a, b in zip(data.transform.transforms, members, strict=True))
    flip, spin = timing.transforms
    assert (flip.name, flip.calls, spin.name, spin.calls) == ("RandomHorizontalFlip", 5, "Spin", 5)
    assert spin.ns >= 5 * 3_000_000
    assert timing.total_ns == flip.ns + spin.ns


@pytest.mark.parametrize("version", ["v1", "v2"])
def test_a_transform_that_a_dataset_holds_twice_is_timed_once(version: str) -> None:
    """torchvision's datasets hold theirs as `transform`, and once more within `transforms`."""
    torchvision = pytest.importorskip("torchvision")
    transforms = torchvision.transforms if version == "v1" else pytest.importorskip("torchvision.transforms.v2")
    members = [transforms.RandomHorizontalFlip(), slow_data.Spin(0.001)]
    data = torchvision.datasets.VisionDataset(root="", transform=transforms.Compose(list(members)))
    timing = Timing(data)
    image = data.transform(torch.rand(3, 8, 8))
    data.transforms(image, 0)
    assert [(timed.name, timed.calls) for timed in timing.transforms] == [("RandomHorizontalFlip", 2), ("Spin", 2)]
    # Nor is a stand-in of another thread's a transform.
    assert Timing(data).transforms == []
    timing.end()
    assert all(a is b for a, b in zip(data.transform.transforms, members, strict=True))


def test_an_error_in_a_transform_has_no_frame_of_ours() -> None:
    data = Holder()
    data.transform = lambda _: fails()  # type: ignore[assignment]
    timing = Timing(data)
    with pytest.raises(ValueError, match="theirs") as raised:
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
    data.transform = kept = Pipe(1)  # type: ignore[assignment]
    data.transforms = torch.nn.ModuleList([torch.nn.Sequential(torch.nn.Identity())])  # type: ignore[attr-defined]
    data.target_transform = function = lambda value: value  # type: ignore[assignment]
    timing = Timing(data)
    assert not data.transform
    assert data.transform is kept
    assert (data.transform(1), (kept | kept).number) == (2, 2)
    assert {type(kept | kept), type(copy.copy(kept)), kept.__class__, type(pickle.loads(pickle.dumps(kept)))} == {Pipe}
    assert [inner[0](3) for inner in data.transforms] == [3]  # type: ignore[attr-defined]
    stand_in: Any = data.target_transform
    assert stand_in(4) == 4
    timing.end()
    assert (type(kept), type(data.transforms)) == (Pipe, torch.nn.ModuleList)  # type: ignore[attr-defined]
    assert data.target_transform is function
    calls = {timed.name: timed.calls for timed in timing.transforms}
    assert (stand_in(5), kept(5)) == (5, 6)
    assert calls == {timed.name: timed.calls for timed in timing.transforms}
    assert calls["Pipe"] == 1


def test_a_transform_whose_class_knows_its_subclasses_is_left_alone() -> None:
    class Registered:
        known: list[type] = []  # noqa: RUF012

        def __init_subclass__(cls) -> None:
            cls.known.append(cls)

        def __call__(self, value: int) -> int:
            return value

    data = Holder()
    data.transform = Registered()  # type: ignore[assignment]
    timing = Timing(data)
    assert (type(data.transform), Registered.known, timing.transforms) == (Registered, [], [])
    timing.end()
