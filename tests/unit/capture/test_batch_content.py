"""What is told of the samples of a batch: which are in it, and which batch it is."""

from __future__ import annotations

import random
import sys
from collections import UserDict, namedtuple
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import IterableDataset, default_collate
from torch.utils.data._utils.fetch import _IterableDatasetFetcher

from whyidle.capture.hooks import parts
from whyidle.capture.hooks.parts import BatchParts, bytes_of, held_by, parts_of, samples_of
from whyidle.capture.workers import stream_calls
from whyidle.capture.workers.batch_content import ALWAYS, THEN_EVERY, BatchContent, fingerprint_of
from whyidle.capture.workers.stream_calls import StreamCalls
from whyidle.record.schema import CONTENT, NOT_MEASURED

IMAGE = torch.zeros(3, 8, 8)


def told(samples: list[Any], collate: Callable[[list[Any]], Any]) -> tuple[int, int, int]:
    """(made, present, kept) of one batch."""
    rows: list[tuple[int, ...]] = []
    content = BatchContent(lambda *row: rows.append(row), in_worker=True)
    content.given(samples)
    content.became(collate(samples), 7)
    content.forget()
    [(number, made, present, kept, *_)] = rows
    assert number == 7
    return made, present, kept


def without_none(samples: list[Any]) -> Any:
    return default_collate([each for each in samples if each is not None])


def beyond_four(samples: list[Any]) -> list[Any]:
    return [sample for sample in samples if sample[1] > 4]


NUMBERED = [(IMAGE, number) for number in range(8)]


@pytest.mark.parametrize(
    ("samples", "collate", "expected"),
    [
        ([IMAGE, None, IMAGE, None, None, IMAGE], without_none, (6, 3, 3)),
        (NUMBERED, lambda samples: default_collate(beyond_four(samples)), (8, 8, 3)),
        (NUMBERED, lambda samples: tuple(zip(*beyond_four(samples), strict=True)), (8, 8, 3)),
    ],
)
def test_samples_that_are_none_or_left_out_are_not_kept(samples: Any, collate: Any, expected: Any) -> None:
    assert told(samples, collate) == expected


def padded(rows: list[torch.Tensor]) -> torch.Tensor:
    return torch.nn.utils.rnn.pad_sequence(rows, batch_first=True)


@pytest.mark.parametrize(
    ("samples", "collate"),
    [
        ([IMAGE] * 8, default_collate),
        ([(IMAGE, 1)] * 8, lambda s: tuple(zip(*s, strict=True))),  # as for detection: a tuple of images
        ([torch.ones(n) for n in (3, 9, 4, 20)], padded),
        ([torch.ones(n) for n in (3, 9, 4, 20)], lambda s: torch.cat(s)),
        ([torch.ones(n) for n in (3, 9, 4, 20)], lambda s: (torch.cat(s), torch.ones(4))),
        ([torch.ones(16)] * 8, lambda s: torch.cat(s).view(2, 64)),  # packed into rows
        ([list(range(16))] * 8, lambda s: torch.tensor([[*s[0], *s[1]] * 2, [*s[2], *s[3]] * 2])),
        ([torch.ones(30)] * 8, lambda s: torch.stack(s, 1)[::5]),  # time first, thinned
        ([{"text": "a"}] * 8, lambda s: torch.ones(2, 3)),  # nothing to compare with
        ([IMAGE] * 8, lambda s: None),
    ],
)
def test_batches_that_put_all_their_samples_together_keep_them(samples: list[Any], collate: Any) -> None:
    assert told(samples, collate) == (len(samples),) * 3


def test_later_batches_are_seldom_looked_at() -> None:
    rows: list[Any] = []
    content = BatchContent(lambda *row: rows.append(row), in_worker=True)
    for number in range(ALWAYS + 3 * THEN_EVERY):
        content.given([IMAGE] * 2)
        content.became(IMAGE, number)
        content.forget()
    assert len(rows) == ALWAYS + 3
    assert all(row[4] != NOT_MEASURED for row in rows[:ALWAYS])
    assert all(row[4] == NOT_MEASURED for row in rows[ALWAYS:])


@pytest.mark.parametrize("kind", [torch.tensor, np.array])
def test_a_fingerprint_is_that_of_the_content(kind: Any) -> None:
    one, other = list(np.arange(1000.0)), list(np.arange(1000.0))
    other[-1] = 5.0
    assert fingerprint_of([kind(one), 1]) == fingerprint_of([kind(one), 2]) != fingerprint_of(kind(other[::-1]))
    assert fingerprint_of(kind(one).reshape(10, 100)) != fingerprint_of(kind(one))


def test_what_is_no_piece_of_memory_has_no_fingerprint() -> None:
    odd: list[Any] = [torch.ones(4, 4).t()[:, :2], torch.empty(0), torch.sparse_coo_tensor(size=(2, 2)), "a", None]
    assert [fingerprint_of(each) for each in odd] == [NOT_MEASURED] * len(odd)


class Source(IterableDataset[Any]):
    """Calls of `make` take one tick of a clock each; nothing else takes any."""

    def __init__(self, clock: list[int], give: Callable[[Source], Iterator[Any]]) -> None:
        self.clock, self.give, self.words = clock, give, ["a", "b", "a", "c", "a", "d"]

    def make(self, item: int) -> torch.Tensor:
        self.clock[0] += 1000
        return torch.full((4,), float(item))

    def parse(self, item: int) -> list[int]:
        self.clock[0] += 1000
        return [item] * 4

    def __iter__(self) -> Iterator[Any]:
        return self.give(self)


def every_third(source: Source) -> Iterator[Any]:
    for item in range(1000):
        sample = source.make(item)
        if item % 3 == 0:
            yield sample


def every_third_encoded(source: Source) -> Iterator[Any]:
    def encode(parsed: list[int]) -> torch.Tensor:
        return torch.tensor(parsed)

    for item in range(1000):
        parsed = source.parse(item)
        if item % 3:
            continue
        yield encode(parsed), item


def sliced(source: Source) -> Iterator[Any]:
    return islice(map(source.make, range(1000)), 2, None, 3)


def through_generators(source: Source) -> Iterator[Any]:
    decoded = ({"x": source.make(item), "key": item} for item in range(1000))
    return (sample["x"] for sample in (s for s in decoded if s["key"] % 3 == 0))


def all_of_it(source: Source) -> Iterator[Any]:
    for item in range(1000):
        yield source.make(item)


def shuffled(source: Source) -> Iterator[Any]:
    held = [source.make(item) for item in range(3)]
    choose = random.Random(0)
    for item in range(1000):
        place = choose.randrange(3)
        out, held[place] = held[place], source.make(item)
        yield out


def packed(source: Source) -> Iterator[Any]:
    held: list[int] = []
    for item in range(1000):
        held.extend(source.parse(item))
        if len(held) == 12:
            yield torch.tensor(held)
            held = []


def two_of_a_kind(source: Source) -> Iterator[Any]:
    for item in range(1000):
        image, mask = source.make(item), source.make(-item)
        yield image / 2, mask


def windows(source: Source) -> Iterator[Any]:
    def push(held: torch.Tensor, new: torch.Tensor) -> torch.Tensor:
        return torch.cat((held[4:], new))

    held = torch.zeros(12)
    for item in range(1000):
        held = push(held, source.make(item))
        if item % 3 == 0:
            yield held


def seen_of(monkeypatch: pytest.MonkeyPatch, give: Callable[[Source], Iterator[Any]]) -> float:
    """Share of the time of some batches in which what was made was not given, on a clock that making alone moves."""
    clock = [1]
    monkeypatch.setattr(stream_calls, "monotonic_ns", lambda: clock[0])
    fetcher = _IterableDatasetFetcher(Source(clock, give), True, lambda samples: samples, False)
    calls, whole, unused = StreamCalls(), 0, 0
    fetcher.fetch([None] * 8)
    for _ in range(4):
        calls.begin()
        fetcher.fetch([None] * 8)
        seen = calls.end()
        assert seen is not None
        whole, unused = whole + seen[0], unused + seen[1]
    return unused / whole


@pytest.mark.parametrize("give", [every_third, every_third_encoded, sliced, through_generators])
def test_what_a_stream_makes_and_does_not_give_is_seen(monkeypatch: pytest.MonkeyPatch, give: Any) -> None:
    assert seen_of(monkeypatch, give) == pytest.approx(2 / 3, abs=0.02)


@pytest.mark.parametrize("give", [all_of_it, shuffled, packed, two_of_a_kind, windows])
def test_a_stream_that_uses_all_it_makes_wastes_nothing(monkeypatch: pytest.MonkeyPatch, give: Any) -> None:
    assert seen_of(monkeypatch, give) == 0


def test_a_long_batch_is_judged_by_its_begin(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stream_calls, "MOST_EVENTS", 60)
    assert seen_of(monkeypatch, every_third) == pytest.approx(2 / 3, abs=0.15)


def tokenised(source: Source) -> Iterator[Any]:
    for item in range(1000):
        yield source.make(sum(int(word == "a") for word in source.words) + item)


def test_what_a_sample_goes_through_is_no_stream_of_samples(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stream_calls, "MOST_EVENTS", 1000)
    assert seen_of(monkeypatch, tokenised) == 0
    monkeypatch.setattr(stream_calls, "MOST_EVENTS", 5)
    clock = [1]
    fetcher = _IterableDatasetFetcher(Source(clock, tokenised), True, lambda samples: samples, False)
    calls = StreamCalls()
    fetcher.fetch([None])
    calls.begin()
    fetcher.fetch([None] * 8)
    # No sample was given within what is looked at.
    assert calls.end() is None


def test_who_looks_at_calls_already_is_left_alone() -> None:
    def theirs(_frame: Any, _event: str, _arg: Any) -> None: ...

    calls = StreamCalls()
    sys.setprofile(theirs)
    try:
        calls.begin()
        assert sys.getprofile() is theirs
        assert calls.end() is None
    finally:
        sys.setprofile(None)
    calls.begin()
    sys.setprofile(None)
    assert calls.end() is None


@dataclass
class Labelled:
    image: torch.Tensor
    name: str


class Store:
    def __init__(self) -> None:
        self.tables = {"x": torch.zeros(3), "edges": torch.zeros(2)}
        self.made_by = Graph.__call__


class Graph:
    """As those of torch_geometric: it can be called, and has what it consists of in an object of its own."""

    def __init__(self) -> None:
        self.store = Store()

    def __call__(self) -> None:
        raise AssertionError("nobody asked for that")


@pytest.mark.parametrize(
    ("batch", "held"),
    [
        (Graph(), BatchParts(2, 20, 3, 0)),
        (torch.zeros(32, 3, 8, 8), BatchParts(1, 32 * 3 * 64 * 4, 0, 0)),
        ([torch.zeros(12)] * 1203, BatchParts(1203, 1203 * 48, 0, 0)),
        ({"pixels": np.zeros((32, 10)), "names": ["abcd"] * 32}, BatchParts(0, 0, 33, 32 * 80 + 32 * 4)),
        ((torch.zeros(2), [0] * 100_000), BatchParts(1, 8, 100_000, 0)),
        ([list(range(100))] * 100, BatchParts(0, 0, 10_000, 0)),
        ([{"image": torch.zeros(3), "boxes": [1.0, 2.0]}] * 200, BatchParts(200, 200 * 12, 400, 0)),
        (Labelled(torch.zeros(3), "ab"), BatchParts(1, 12, 2, 2)),
        ([[torch.zeros(12)] * 19] * 64, BatchParts(1216, 1216 * 48, 0, 0)),
        ([{"boxes": [[1.0, 2.0]] * 60, "names": ["n"] * 30}] * 64, BatchParts(0, 0, 64 * 150, 64 * 30)),
        ([], BatchParts(0, 0, 0, 0)),
    ],
)
def test_what_a_batch_consists_of_is_counted(batch: Any, held: BatchParts) -> None:
    assert held_by(batch) == held


class Lazy(Mapping[str, Any]):
    """Makes its items when they are looked at."""

    def __getitem__(self, key: str) -> Any:
        raise AssertionError("it would be made now")

    __iter__ = __len__ = __getitem__  # type: ignore[assignment]


class LazyDict(dict[str, Any]):
    def __getitem__(self, key: str) -> Any:
        raise AssertionError("it would be made now")

    values = items = keys = __iter__ = __len__ = __getitem__  # type: ignore[assignment]


class LazyShape:
    @property
    def shape(self) -> Any:
        raise AssertionError("it would be made now")

    nbytes = shape


class Seen(torch.Tensor):
    @classmethod
    def __torch_function__(cls, *args: Any, **kwargs: Any) -> Any:
        raise AssertionError("looked at")


Pair = namedtuple("Pair", "names x")
ROWS = {"x": torch.zeros(4, 3), "y": [torch.zeros(2, dtype=torch.int64), "text"], "z": torch.zeros(4).numpy()}


@pytest.mark.parametrize(
    ("make", "samples", "nbytes"),
    [
        (lambda: ROWS, 4, 48 + 16 + 16),
        (lambda: [torch.zeros(1)] * 10_000, 1, NOT_MEASURED),
        (lambda: [Graph(), lambda: None], 2, 20),
        (lambda: Pair(["a", "b"], torch.ones(2, 3)), 2, 24),
        (lambda: Labelled(torch.zeros(3), "ab"), 3, 12),
        (lambda: {"names": ["a", "b"], "inner": {"x": torch.ones(2, 3)}}, 2, 24),
        (lambda: [["a", "b"], torch.ones(2)], 2, 8),
        (lambda: ["a", "b"], 2, NOT_MEASURED),
        # What is made when it is looked at is not made for it.
        (Lazy, None, NOT_MEASURED),
        (LazyShape, None, NOT_MEASURED),
        (lambda: [Lazy(), LazyShape()], 2, NOT_MEASURED),
        (lambda: LazyDict(x=torch.zeros(5)), 5, 20),
        (lambda: UserDict(x=torch.zeros(5)), 5, 20),
        (lambda: torch.zeros(3, 2).as_subclass(Seen), 3, 24),
    ],
)
def test_samples_and_bytes_of_a_batch_of_any_shape(make: Callable[[], Any], samples: int | None, nbytes: int) -> None:
    assert (samples_of(make()), bytes_of(make())) == (samples, nbytes)


def test_however_many_parts_there_are_only_so_many_are_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    looks = []

    def counted(thing: Any, most: int) -> list[Any] | None:
        looks.append(thing)
        return parts_of(thing, most)

    monkeypatch.setattr(parts, "parts_of", counted)
    assert held_by([[[{"x": "a"}] * 64] * 64] * 64) == BatchParts(0, 0, 64**3, 64**3)
    assert len(looks) <= parts.MOST_LOOKED_AT * parts.DEEPEST


def test_a_batch_that_holds_itself_is_counted_all_the_same() -> None:
    batch: list[Any] = [torch.zeros(2)]
    batch.append(batch)
    assert held_by(batch).tensors >= 1


def test_counting_runs_no_code_of_the_batch() -> None:
    held = held_by(LazyDict({str(number): torch.zeros(1) for number in range(100)}))
    assert held == BatchParts(100, 400, 0, 0)


@pytest.mark.parametrize("in_worker", [True, False])
def test_what_workers_hand_over_or_would_is_counted(in_worker: bool) -> None:
    rows: list[tuple[int, ...]] = []
    content = BatchContent(lambda *row: rows.append(row), in_worker=in_worker)
    content.given([IMAGE] * 4)
    content.became([IMAGE] * 4, 7)
    held = BatchParts(4, 4 * 3 * 64 * 4, 0, 0)
    assert rows[0][-4:] == held
    assert len(rows[0]) == len(CONTENT.fields) - 4
