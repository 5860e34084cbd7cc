"""What the source tells along the calls of a stack: what work is given, what becomes of it, loops it stands in."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from whyidle.analyse.where.source import EACH, how_given, left_out, loop_around, part_used
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


SAME = ""


def at(folder: Path, source: str, function: str, line: int) -> Call:
    """A call that stands on a line of a file with such a source."""
    path = folder / "own.py"
    path.write_text(source)
    return Call(function, str(path), line, source.splitlines()[line - 1].strip())


@pytest.mark.parametrize(
    ("stack", "same"),
    [
        ([("Shards.__getitem__", 5)], True),
        ([("Shards.__getitem__", 6)], False),
        ([("Shards.__getitem__", 7), ("make_kernel", 38)], True),
        ([("Shards.__getitem__", 8), ("make_kernel", 38)], False),
        ([("Shards.__getitem__", 9), ("make_kernel", 38)], False),
        ([("Shards.__getitem__", 12)], False),
        # All rows, for every sample.
        ([("Shards.__getitem__", 13)], True),
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
def test_a_line_is_the_same_for_every_sample_or_not(tmp_path: Path, stack: list[tuple[str, int]], same: bool) -> None:
    assert (how_given(tuple(at(tmp_path, SOURCE, *each) for each in stack)) == SAME) is same


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
        if self.stream.readline() != READY:
            raise OSError(port)
"""


@pytest.mark.parametrize(
    ("stack", "same"),
    [
        ([("Tiles.__getitem__", 3), ("Store.__init__", 12)], True),
        ([("Tiles.__getitem__", 4), ("Store.__init__", 12)], False),
        # What a new connection reads is the same each time.
        ([("Tiles.__getitem__", 3), ("Store.__init__", 13)], True),
        # A reader begins anew where a read goes on.
        ([("Tiles.__getitem__", 6)], True),
        ([("Tiles.__getitem__", 9), ("Tiles.__init__", 12)], False),
    ],
)
def test_an_object_is_the_same_for_every_sample_if_what_makes_it_is(
    tmp_path: Path, stack: list[tuple[str, int]], same: bool
) -> None:
    assert (how_given(tuple(at(tmp_path, OBJECTS, *each) for each in stack)) == SAME) is same


@pytest.mark.parametrize("change", [{"text": "something else"}, {"text": ""}, {"file": "/home/me/own.pyc"}])
def test_source_that_is_no_longer_what_was_sampled_is_not_judged(tmp_path: Path, change: dict[str, str]) -> None:
    call = at(tmp_path, SOURCE, "Shards.__getitem__", 5)
    assert how_given((call,)) == SAME
    assert how_given((replace(call, **change),)) == EACH


WINDOWS = """\
class Windows:
    def __getitem__(self, index):
        which = index % len(self.clips)
        clip, at = divmod(index, self.windows)
        own = index % 2 ** 32
        drawn = self.rng.integers(8) % 4
        sound = decode(self.clips[which])
        other = decode(self.clips[clip])
        placed = decode(self.clips[clip], at)
        seeded = decode(own)
        chance = decode(drawn)
        found = decode(bisect.bisect(self.ends, index))
        opened = Reader(self.clips[which])
        frames = opened.all(range(len(opened)))
        counted = 0
        for each in self.parts:
            counted += each
        noise = decode(counted)
        index = index // 4
        again = decode(index)
        rows = []
        for row in self.rows[which]:
            rows.append(row)
        together = stack(rows)
        rows.append(own)
        mixed = stack(rows)
        if self.flip:
            which = index
        either = decode(which)
        return sound[index : index + 9]
class Reader:
    def __init__(self, path):
        self.path = path
    def all(self, numbers):
        found = [unpack(self.path, number) for number in numbers]
        return found
    def chance(self):
        return unpack(self.path, random.random())
"""
WHICH, CLIP = "index % len(self.clips)", "divmod(index, self.windows)[0]"


@pytest.mark.parametrize(
    ("lines", "given"),
    [
        ([7], WHICH),
        ([8], CLIP),
        ([9], EACH),
        ([10], EACH),
        ([11], EACH),
        ([12], "bisect.bisect(self.ends, index)"),
        ([14, 35], WHICH),
        # What is drawn on the way is another each time, whatever the call was given.
        ([14, 38], EACH),
        ([18], SAME),
        ([20], "index // 4"),
        ([24], WHICH),
        ([26], EACH),
        ([29], EACH),
    ],
)
def test_what_an_index_is_divided_by_is_shared_by_several_samples(tmp_path: Path, lines: list[int], given: str) -> None:
    functions = {35: "Reader.all", 38: "Reader.chance"}
    source = WINDOWS.replace("opened.all(range", "opened.chance(range") if 38 in lines else WINDOWS
    stack = (at(tmp_path, source, functions.get(line, "Windows.__getitem__"), line) for line in lines)
    assert how_given(tuple(stack)) == given


PARTS = """\
class Cuts:
    def __getitem__(self, index):
        whole = decode(self.names[index])
        begin = int(self.rng.integers(9))
        window = whole[begin : begin + 16]
        return window
    def picked(self, index):
        frames = self.frames(index)
        frames = stack(frames)
        return frames[choose(len(frames), self.rng.random())]
    def frames(self, index):
        found = []
        for packet in self.packets[index]:
            found.append(unpack(packet))
        return found
    def one(self, index):
        table = search(self.labels)
        which = int(self.rng.integers(9))
        return table[which]
    def all(self, index):
        whole = decode(self.names[index])
        parts = [whole[at : at + 9] for at in range(0, len(whole), 9)]
        cut = whole[:LONGEST]
        return parts, whole["image"], whole[0], self.labels[len(whole)], self.sizes[index : index + whole.shape[0]]
    def cropped(self, index):
        return random_crop(decode(self.names[index]), index)
    def dropped(self, index):
        decode(self.names[index])
        return self.labels[index]
    def both(self, index):
        whole = decode(self.names[index])
        return whole, whole[:, index : index + 9]
    def cut_in_place(self, index):
        whole = decode(self.names[index])
        whole = whole[index : index + 9]
        return whole
    def sorted(self, index):
        whole = decode(self.names[index])
        order = argsort(self.lengths[index])
        return whole[order], whole[whole > self.least[index]]
"""


@pytest.mark.parametrize(
    ("stack", "used"),
    [
        ([("Cuts.__getitem__", 3)], (5, False)),
        ([("Cuts.picked", 8), ("Cuts.frames", 14)], (10, False)),
        ([("Cuts.one", 17)], (19, True)),
        # All of it, in pieces; a bound that is always the same; parts of a record; what only its size is asked of.
        ([("Cuts.all", 21)], None),
        ([("Cuts.cropped", 26)], (26, False)),
        ([("Cuts.dropped", 28)], None),
        ([("Cuts.both", 31)], None),
        ([("Cuts.cut_in_place", 34)], (35, False)),
        # All in another order; what is taken by what was made.
        ([("Cuts.sorted", 38)], None),
    ],
)
def test_a_part_is_used_where_nothing_but_that_is_taken(
    tmp_path: Path, stack: list[tuple[str, int]], used: tuple[int, bool] | None
) -> None:
    found = part_used(tuple(at(tmp_path, PARTS, *each) for each in stack))
    assert (None if found is None else (found[0].line, found[1])) == used


TABLES = """\
class Rows:
    def __getitem__(self, index):
        found = {}
        for key in self.keys:
            found[key] = stack(self.table[self.wanted(index)][key])
        return found
    def image(self, index):
        return self.file["images"][:][index]
    def row(self, index):
        return self.table[index]["image"], self.labels[index]
"""


@pytest.mark.parametrize(
    ("function", "line", "cut"), [("__getitem__", 5, True), ("image", 8, True), ("row", 10, False)]
)
def test_a_library_that_is_asked_by_an_index_makes_what_it_gives(
    tmp_path: Path, function: str, line: int, cut: bool
) -> None:
    mine = at(tmp_path, TABLES, f"Rows.{function}", line)
    assert part_used((mine,)) is None
    library = Call("Dataset.__getitem__", "/venv/lib/python3.12/site-packages/datasets/arrow_dataset.py", 2)
    found = part_used((mine, library))
    assert (found is not None) is cut
    assert found is None or found[0].line == line


STREAM = """\
class Stream:
    def __iter__(self):
        for row in self.rows:
            sample = parse(row)
            yield sample
    def whole(self, index):
        for row in self.rows:
            found = parse(row)
        return found
"""


@pytest.mark.parametrize(("function", "line", "given"), [("__iter__", 4, EACH), ("whole", 8, SAME)])
def test_a_loop_that_yields_makes_another_sample_each_turn(
    tmp_path: Path, function: str, line: int, given: str
) -> None:
    assert how_given((at(tmp_path, STREAM, f"Stream.{function}", line),)) == given


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
