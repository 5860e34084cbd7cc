"""What mends a line, from what it was seen to call, what it is given, and what it waits for."""

from __future__ import annotations

from pathlib import Path

import pytest

from support.crafted import records_of
from whyidle.analyse.where.looks import Looks
from whyidle.analyse.where.places import places
from whyidle.analyse.where.remedies import LOOP, MAKING, Remedy, remedy_of
from whyidle.record.schema import STACK, ThreadState
from whyidle.record.stacks import Call, CallStack, StackNames, read_stacks

SITE = "/venv/lib/python3.12/site-packages"
LIB = "/usr/lib/python3.12"
FETCH = Call("_MapDatasetFetcher.fetch", f"{SITE}/torch/utils/data/_utils/fetch.py", 54)
PANDAS = (Call("_iLocIndexer._getitem_axis", f"{SITE}/pandas/core/indexing.py", 1),)
MAIN = Call("<module>", "/home/u/train.py", 40, "main()")


def item(text: str, line: int = 27) -> Call:
    return Call("Shards.__getitem__", "/home/u/data.py", line, text)


def looks(folder: Path, *stacks: tuple[CallStack, int], state: int = ThreadState.RUNS) -> Looks:
    names = StackNames(folder)
    numbers = [names.number(stack) for stack, count in stacks for _ in range(count)]
    rows = [{"t_ns": at, "stack": number, "state": state} for at, number in enumerate(numbers)]
    return Looks(records_of(STACK, rows), read_stacks(folder))


def mended(seen: Looks, making: bool = True) -> tuple[Remedy, int] | None:
    """What mends the first line, and how many of the looks it mends."""
    found = remedy_of(seen, places(seen.stacks(), "the time")[0], MAKING if making else LOOP, making, none_of(seen))
    return None if found is None else (found[0], len(seen.where(found[1])))


def kind_of(seen: Looks, making: bool = True) -> str | None:
    found = mended(seen, making)
    return found and found[0].kind


def none_of(seen: Looks) -> Looks:
    return Looks(seen.records[:0], seen.table)


def written(folder: Path, source: str, function: str, line: int) -> Call:
    """A call that stands on a line of a file with such a source."""
    path = folder / "own.py"
    path.write_text(source)
    return Call(function, str(path), line, source.splitlines()[line - 1].strip())


def library(path: str, function: str) -> tuple[Call]:
    return (Call(function, path, 1),)


@pytest.mark.parametrize(
    ("kind", "text", "inner"),
    [
        ("once", "with ZipFile(path) as z:", library(f"{LIB}/zipfile/__init__.py", "ZipFile._RealGetContents")),
        ("once", "tar = tarfile.open(path)", library(f"{LIB}/tarfile.py", "TarFile.next")),
        ("once", "f = h5py.File(path)", library(f"{SITE}/h5py/_hl/files.py", "File.__init__")),
        ("order", "x = self.cube[:, row]", library(f"{SITE}/h5py/_hl/dataset.py", "Dataset.__getitem__")),
        ("cheaper", "row = self.frame.iloc[i]", PANDAS),
        ("once", "frame = pd.read_csv(path)", library(f"{SITE}/pandas/io/parsers/readers.py", "_read")),
        ("once", "record = json.loads(line)", library(f"{LIB}/json/decoder.py", "JSONDecoder.decode")),
        ("once", "pattern = re.compile(expression)", library(f"{LIB}/re/__init__.py", "_compile")),
        ("once", "c = http.client.HTTPConnection(h)", library(f"{LIB}/socket.py", "create_connection")),
        # Where C code has no call of its own the line of source tells it.
        ("cheaper", "return torch.tensor(rows)", ()),
        ("once", "db = sqlite3.connect(self.path)", ()),
        ("cheaper", "raw = gzip.open(path).read()", ()),
    ],
)
def test_what_a_library_is_asked_for_tells_what_mends_it(
    tmp_path: Path, kind: str, text: str, inner: CallStack
) -> None:
    assert kind_of(looks(tmp_path, ((MAIN, FETCH, item(text), *inner), 10))) == kind


@pytest.mark.parametrize(
    ("state", "kind"),
    [(ThreadState.SOCKET, "concurrent"), (ThreadState.FILE_LOCK, "own_handle"), (ThreadState.RUNS, None)],
)
def test_a_line_that_waits_is_mended_by_what_it_waits_for(tmp_path: Path, state: int, kind: str | None) -> None:
    assert kind_of(looks(tmp_path, ((MAIN, FETCH, item("body = self.fetch(key)")), 10), state=state)) == kind


def test_what_other_lines_wait_for_says_nothing_of_a_line(tmp_path: Path) -> None:
    """The costliest line runs; it stands with others that wait for a socket."""
    names = StackNames(tmp_path)
    runs, waits = (
        names.number((MAIN, FETCH, item(text, line))) for text, line in (("x = filtered(y)", 27), ("y = get(i)", 28))
    )
    rows = [{"stack": runs, "state": ThreadState.RUNS}] * 6 + [{"stack": waits, "state": ThreadState.SOCKET}] * 5
    rows += [{"stack": names.number((MAIN, FETCH, item("z = get(i)", 29))), "state": ThreadState.SOCKET}] * 5
    seen = Looks(records_of(STACK, [row | {"t_ns": at} for at, row in enumerate(rows)]), read_stacks(tmp_path))
    assert mended(seen) is None


def test_lines_that_the_same_change_mends_count_together(tmp_path: Path) -> None:
    seen = looks(
        tmp_path,
        ((MAIN, FETCH, item("y = self.frame.iloc[i]", 27), *PANDAS), 10),
        ((MAIN, FETCH, item("z = self.frame.iloc[i + 1]", 28), *PANDAS), 6),
        ((MAIN, FETCH, item("x = self.raw[y]", 29)), 4),
    )
    found = mended(seen)
    assert found is not None
    assert found[1] == 16


OPERATOR = """\
class Resample:
    def __init__(self, rate):
        for phase in range(rate):
            t = wave(phase)
            self.filters.append(t)
    def __call__(self, clip):
        return clip
class Clip:
    def __init__(self, raw):
        self.raw = decoded(raw)
class Clips:
    def __getitem__(self, index):
        raw, rate = self.read(index)
        resample = Resample(rate)
        return resample(Clip(raw))
"""


@pytest.mark.parametrize(
    ("stacks", "expected"),
    [
        # What it is given differs from sample to sample, and no line has most of it.
        ([(14, "Resample.__init__", 4, 9), (14, "Resample.__init__", 5, 8), (13, "", 0, 3)], ("once", 17)),
        ([(15, "Clip.__init__", 10, 9), (13, "", 0, 3)], None),
    ],
)
def test_what_is_done_to_samples_is_to_be_made_once(
    tmp_path: Path, stacks: list[tuple[int, str, int, int]], expected: tuple[str, int] | None
) -> None:
    def stack(at: int, function: str, line: int) -> CallStack:
        inner = [written(tmp_path, OPERATOR, function, line)] if function else []
        return (MAIN, FETCH, written(tmp_path, OPERATOR, "Clips.__getitem__", at), *inner)

    found = mended(looks(tmp_path, *((stack(*each), times) for *each, times in stacks)))
    assert (found and (found[0].kind, found[1])) == expected


LOOPS = """\
class Graphs:
    def __getitem__(self, index):
        for i, j in self.pairs[index]:
            distance = math.sqrt(((self.at[i] - self.at[j]) ** 2).sum())
"""


@pytest.mark.parametrize(
    ("state", "inner", "kind"),
    [
        (ThreadState.RUNS, (), "cheaper"),
        (ThreadState.RUNS, (Call("grid_sample", f"{SITE}/torch/nn/functional.py", 1),), None),
        (ThreadState.SLEEP, (), None),
        (ThreadState.SOCKET, (), "concurrent"),
    ],
)
def test_what_python_does_one_by_one_is_to_be_done_at_once(
    tmp_path: Path, state: int, inner: CallStack, kind: str | None
) -> None:
    line = written(tmp_path, LOOPS, "Graphs.__getitem__", 4)
    assert kind_of(looks(tmp_path, ((MAIN, FETCH, line, *inner), 10), state=state)) == kind


@pytest.mark.parametrize(("times", "kind"), [((4, 6, 0), "once"), ((4, 4, 4), None)])
def test_one_line_that_does_several_things_is_told_by_what_it_mostly_does(
    tmp_path: Path, times: tuple[int, ...], kind: str | None
) -> None:
    pil = library(f"{SITE}/PIL/ImageFile.py", "ImageFile.load")
    zips = library(f"{LIB}/zipfile/__init__.py", "ZipFile.__init__")
    stacks = ((MAIN, FETCH, item("x, y = load(path)"), *inner) for inner in (pil, zips, ()))
    assert kind_of(looks(tmp_path, *zip(stacks, times, strict=True))) == kind


@pytest.mark.parametrize(
    "text", ["torch.save(model.state_dict(), path)", "json.dump(history, file)", "total += loss.item()", "print(loss)"]
)
def test_in_the_loop_most_is_mended_by_doing_it_less_often(tmp_path: Path, text: str) -> None:
    stack = (MAIN, Call("log", "/home/u/train.py", 9, text))
    assert kind_of(looks(tmp_path, (stack, 10)), making=False) == "less_often"


OWN_LOOP = """\
class Tree:
    def set(self, leaf):
        while leaf:
            self.nodes[leaf] = self.nodes[2 * leaf] + self.nodes[2 * leaf + 1]
class WordErrors:
    def update_metric(self, words):
        for word in words:
            self.found[word] = beam(word)
"""


@pytest.mark.parametrize(
    ("function", "line", "kind"), [("Tree.set", 4, "cheaper"), ("WordErrors.update_metric", 8, "less_often")]
)
def test_in_the_loops_own_time_what_is_only_looked_at_may_be_done_less_often(
    tmp_path: Path, function: str, line: int, kind: str
) -> None:
    at = written(tmp_path, OWN_LOOP, function, line)
    assert kind_of(looks(tmp_path, ((MAIN, at), 10)), making=False) == kind


CLIPS = """\
class Clips:
    def __getitem__(self, index):
        clip = self.clips[index // 90]
        sound = clip.decode(clip)
        return sound
    def window(self, index):
        sound = decode(self.clips[index])
        return sound[index : index + 9]
    def cells(self, index):
        for column in self.columns[index]:
            value = self.row[column]
            total = value * value
"""


@pytest.mark.parametrize(
    ("function", "line", "inner", "kind", "said"),
    [
        ("__getitem__", 4, "decode", "once", "Compute it once per `index // 90`"),
        ("window", 7, "decode", "slice", "Compute only the part used at own.py:8"),
        ("window", 7, "zipfile/__init__.py:ZipFile._RealGetContents", "once", "Open it once per worker"),
    ],
)
def test_what_is_given_and_used_tells_it_unless_a_library_is_known_to(
    tmp_path: Path, function: str, line: int, inner: str, kind: str, said: str
) -> None:
    file, _, called = inner.rpartition(":")
    mine = written(tmp_path, CLIPS, f"Clips.{function}", line)
    found = mended(looks(tmp_path, ((MAIN, FETCH, mine, Call(called, f"{LIB}/{file or 'codec.py'}", 1)), 10)))
    assert found is not None
    assert (found[0].kind, found[0].change.startswith(said)) == (kind, True), found


def test_a_table_asked_cell_by_cell_is_mended_with_the_loop_that_asks(tmp_path: Path) -> None:
    cell, own = (written(tmp_path, CLIPS, "Clips.cells", line) for line in (11, 12))
    asked = (MAIN, FETCH, cell, Call("Series.__getitem__", f"{SITE}/pandas/core/series.py", 1))
    found = mended(looks(tmp_path, (asked, 6), ((MAIN, FETCH, own), 4)))
    assert found is not None
    assert (found[0].kind, found[0].change.endswith("without the loop"), found[1]) == ("cheaper", True, 10)
