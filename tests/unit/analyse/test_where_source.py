"""What the source says of a line: loops it stands in, and where samples are left out."""

from __future__ import annotations

from pathlib import Path

import pytest

from whyidle.analyse.where.source import left_out, loop_around
from whyidle.record.stacks import Call


def at(folder: Path, source: str, function: str, line: int) -> Call:
    """A call that stands on a line of a file with such a source."""
    path = folder / "own.py"
    path.write_text(source)
    return Call(function, str(path), line, source.splitlines()[line - 1].strip())


LOOPS = """\
class Tiles:
    def __getitem__(self, index):
        self.begin = index
        for number, row in enumerate(csv.reader(self.handle)):
            if number == index:
                return row
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
    ("function", "line", "loops"),
    [
        ("metrics", 9, True),
        ("metrics.<locals>.<listcomp>", 10, True),
        ("Tiles.__getitem__", 3, False),
        ("Tiles.__getitem__", 5, True),
        ("train", 14, False),
    ],
)
def test_what_stands_in_a_loop_of_its_function_goes_one_by_one(
    tmp_path: Path, function: str, line: int, loops: bool
) -> None:
    assert (loop_around(at(tmp_path, LOOPS, function, line)) is not None) is loops


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
