"""Which lines are given the same for every sample, as the source tells along the calls of a stack."""

from __future__ import annotations

from pathlib import Path

import pytest

from whyidle.analyse.where.source import is_invariant, left_out, one_by_one
from whyidle.record.stacks import Call

SOURCE = """\
import csv, zipfile, random, torch
LIMIT = 3
class Shards:
    def __getitem__(self, index):
        with zipfile.ZipFile(self.path) as archive:
            raw = archive.read(self.names[index])
        kernel = make_kernel(self.rate, width=16)
        per_sample = make_kernel(len(raw), width=16)
        drawn = make_kernel(random.randrange(8), width=16)
        where = self.names[index]
        copied = where
        table = parse(copied)
        rows = [parse(row) for row in self.rows]
        fixed = parse(LIMIT)
        return self._decode(raw) + self._constant(self.rate)
    def _decode(self, data):
        return torch.tensor(list(data))
    def _constant(self, rate):
        if rate:
            return build(rate)
    def __iter__(self):
        for row in csv.reader(self.file):
            yield parse(row)
    def __call__(self, index):
        self.delay(0.1)
        t = time.perf_counter() + 0.01
        while time.perf_counter() < t: sum(range(50))
        return sleepy(self.names[index]) + table(self.rate)
def sleepy(name):
    time.sleep(0.01)
    return name
def table(rate):
    total = 0
    for k in range(rate):
        total += costly(k)
    return total
def make_kernel(rate, width):
    return torch.arange(rate).sinc(
        ) * width
"""


def at(folder: Path, source: str, function: str, line: int) -> Call:
    """A call that stands on a line of a file with such a source."""
    path = folder / "own.py"
    path.write_text(source)
    return Call(function, str(path), line, source.splitlines()[line - 1].strip())


@pytest.fixture
def call(tmp_path: Path):  # type: ignore[no-untyped-def]
    path = tmp_path / "data.py"
    path.write_text(SOURCE)
    lines = SOURCE.splitlines()
    return lambda function, line: Call(function, str(path), line, lines[line - 1].strip())


@pytest.mark.parametrize(
    ("stack", "same"),
    [
        ([("Shards.__getitem__", 5)], True),
        ([("Shards.__getitem__", 6)], False),
        ([("Shards.__getitem__", 7), ("make_kernel", 38)], True),
        ([("Shards.__getitem__", 8), ("make_kernel", 38)], False),
        ([("Shards.__getitem__", 9), ("make_kernel", 38)], False),
        ([("Shards.__getitem__", 12)], False),
        ([("Shards.__getitem__", 13)], False),
        ([("Shards.__getitem__", 11)], False),
        ([("Shards.__getitem__", 14)], True),
        ([("Shards.__getitem__", 15), ("Shards._decode", 17)], False),
        ([("Shards.__getitem__", 15), ("Shards._constant", 20)], True),
        ([("Shards.__iter__", 23)], False),
        ([("Shards.__call__", 25)], False),
        ([("Shards.__call__", 27)], False),
        ([("Shards.__call__", 28), ("sleepy", 30)], False),
        ([("Shards.__call__", 28), ("table", 35)], True),
    ],
)
def test_a_line_is_the_same_for_every_sample_or_not(call, stack, same) -> None:  # type: ignore[no-untyped-def]
    assert is_invariant([call(*each) for each in stack]) is same


OBJECTS = """\
class Tiles:
    def __getitem__(self, index):
        store = Store(self.port)
        named = Store(self.names[index])
        rows = [row for row in csv.reader(self.file)]
        for number, row in enumerate(csv.reader(self.handle)):
            if number == index:
                return row
        return self.make(index)
class Store:
    def __init__(self, port):
        self.stream = connect(port)
def metrics(pairs):
    for a, b in pairs:
        counts[a, b] += 1
    return [value
            for value in counts]
def train(loader):
    for batch in loader:
        loss(batch).backward()
        log(batch)
"""


@pytest.mark.parametrize(
    ("stack", "same"),
    [
        ([("Tiles.__getitem__", 3), ("Store.__init__", 12)], True),
        ([("Tiles.__getitem__", 4), ("Store.__init__", 12)], False),
        # A reader begins anew where a read goes on.
        ([("Tiles.__getitem__", 6)], True),
        ([("Tiles.__getitem__", 9), ("Tiles.__init__", 12)], False),
    ],
)
def test_an_object_is_the_same_for_every_sample_if_what_makes_it_is(
    tmp_path: Path, stack: list[tuple[str, int]], same: bool
) -> None:
    assert is_invariant([at(tmp_path, OBJECTS, *each) for each in stack]) is same


@pytest.mark.parametrize(
    ("function", "line", "loops"),
    [
        ("metrics", 15, True),
        ("metrics.<locals>.<listcomp>", 16, True),
        ("Store.__init__", 12, False),
        ("Tiles.__getitem__", 7, True),
        ("train", 21, False),
    ],
)
def test_what_stands_in_a_loop_of_its_function_goes_one_by_one(
    tmp_path: Path, function: str, line: int, loops: bool
) -> None:
    assert one_by_one(at(tmp_path, OBJECTS, function, line)) is loops


FILTERS = """\
class Pairs:
    def __getitem__(self, index):
        image = decode(self.names[index])
        if not self.wanted(index):
            return None
        return image
    def __iter__(self):
        for line in self.file:
            if not line:
                return
            yield line
    def whole(self, index):
        return [row for row in self.rows]
def collate(samples):
    samples = [each for each in samples if each is not None]
    return stack(samples)
"""


@pytest.mark.parametrize(
    ("function", "line", "left"),
    [("Pairs.__getitem__", 3, 5), ("collate", 16, 15), ("Pairs.whole", 13, None), ("Pairs.__iter__", 11, None)],
)
def test_where_samples_are_left_out_is_told_by_the_source(
    tmp_path: Path, function: str, line: int, left: int | None
) -> None:
    found = left_out(at(tmp_path, FILTERS, function, line))
    assert (None if found is None else found.line) == left


def test_source_that_is_no_longer_what_was_sampled_is_not_judged(call) -> None:  # type: ignore[no-untyped-def]
    stale = call("Shards.__getitem__", 5)
    assert is_invariant([Call(stale.function, stale.file, stale.line, "something else")]) is False
    assert is_invariant([Call(stale.function, stale.file, stale.line, "")]) is False
    assert is_invariant([Call(stale.function, stale.file + "c", stale.line, stale.text)]) is False
