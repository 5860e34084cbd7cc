"""From stacks to lines of the user's own code, to parts of the step, and to what workers were seen to do."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from support.planted_runs import trained
from support.planted_stacks import DECODING, WAITING, WORKER, look
from whyidle.analyse.where.looks import LEAST_SEEN, ProcessLooks, looks_at, making_seen
from whyidle.analyse.where.places import is_users, outside_models, place_of, places
from whyidle.record.run import open_run
from whyidle.record.schema import ThreadState
from whyidle.record.stacks import Call, CallStack
from whyidle.scenarios.planted import MS, START, Step

SITE = "/opt/env/lib/python3.12/site-packages"
STDLIB = "/usr/lib/python3.12"
TRAIN = Call("<module>", "/home/u/train.py", 40, "for x, y in loader:")
LOADER = Call("_MultiProcessingDataLoaderIter.__init__", f"{SITE}/torch/utils/data/dataloader.py", 1100)
LOOP = Call("_worker_loop", f"{SITE}/torch/utils/data/_utils/worker.py", 349)
FETCH = Call("_MapDatasetFetcher.fetch", f"{SITE}/torch/utils/data/_utils/fetch.py", 52)
ITEM = Call("Shards.__getitem__", "/home/u/data.py", 27, "with zipfile.ZipFile(self.path) as z:")
INIT = Call("ZipFile.__init__", f"{STDLIB}/zipfile/__init__.py", 1370)
CONTENTS = Call("ZipFile._RealGetContents", f"{STDLIB}/zipfile/__init__.py", 1430)
FOLDER = Call("DatasetFolder.__getitem__", f"{SITE}/torchvision/datasets/folder.py", 245, "sample = self.loader(path)")
PIL = Call("ImageFile.load", f"{SITE}/PIL/ImageFile.py", 300)


COMMAND = Call("<module>", "/opt/env/bin/fits", 8, "sys.exit(main())")
MAIN = Call("main", f"{SITE}/fits/cli.py", 12, "Trainer(arguments).fit()")
FIT = Call("Trainer.fit", f"{SITE}/fits/trainer.py", 300, "for batch in self.loader:")
READ = Call("Images.__getitem__", f"{SITE}/fits/data.py", 40, "image = decode(raw)")


def worker(*own: Call) -> CallStack:
    """A forked worker's: it begins with what the training stood in."""
    return (TRAIN, LOADER, LOOP, *own)


@pytest.mark.parametrize(
    ("file", "users"),
    [
        ("/home/u/data.py", True),
        ("/home/u/lib/data.py", True),
        ("<stdin>", True),
        ("<string>", True),
        ("<ipython-input-3-a1b2>", True),
        ("/tmp/ipykernel_812/341.py", True),
        (f"{SITE}/torch/nn/modules/module.py", False),
        (f"{STDLIB}/zipfile/__init__.py", False),
        ("/usr/lib/python3/dist-packages/yaml/loader.py", False),
        ("/opt/py/lib/python3.13t/json/decoder.py", False),
        ("<frozen importlib._bootstrap>", False),
        ("<eval_with_key>.3", False),
        ("", False),
        ("/tmp/torchinductor_u/ko/ckonx5zgla2fmrqnnoxapqdhssqqihu6zgo7hcgkgekrbqab4mjv.py", False),
        ("/home/u/ko/compiled.py", True),
    ],
)
def test_a_file_is_of_the_user_or_of_a_library(file: str, users: bool) -> None:
    assert is_users(Call("f", file, 1)) is users


SCRIPT = Call("<module>", "/home/u/train.py", 12, "trainer.fit(model)")
RUN = Call("_run_module_as_main", "<frozen runpy>", 198), Call("<module>", f"{SITE}/fits/__main__.py", 3)
POLL = Call("wait", f"{STDLIB}/multiprocessing/connection.py", 900)


@pytest.mark.parametrize(
    ("stack", "place", "calls"),
    [
        (worker(FETCH, ITEM, INIT, CONTENTS), ITEM, "ZipFile._RealGetContents"),
        (worker(FETCH, ITEM), ITEM, ""),  # C code has no call of its own
        # A fork is not told by the calls that its parent stood in.
        (worker(FETCH, FOLDER, PIL), FOLDER, "ImageFile.load"),
        # Within the training's own fetch, as in a worker: who asks for a sample makes none.
        ((SCRIPT, FETCH, FOLDER, PIL), FOLDER, "ImageFile.load"),
        ((SCRIPT, FETCH, ITEM, INIT), ITEM, "ZipFile.__init__"),
        ((SCRIPT, FETCH), SCRIPT, "_MapDatasetFetcher.fetch"),
        # Of a program that a package is the package's own code is the place, in its workers too.
        ((COMMAND, MAIN, FIT, READ, PIL), READ, "ImageFile.load"),
        ((COMMAND, MAIN, FIT, PIL), FIT, "ImageFile.load"),
        ((*RUN, FIT, READ, PIL), READ, "ImageFile.load"),
        ((COMMAND, MAIN, FIT, LOADER, LOOP, FETCH, READ, PIL), READ, "ImageFile.load"),
        ((COMMAND, MAIN, FIT, LOADER, LOOP, FETCH, FOLDER, PIL), FOLDER, "ImageFile.load"),
        # Without anything else it is the innermost call.
        (worker(POLL), POLL, ""),
    ],
)
def test_the_innermost_call_of_the_users_is_the_place_and_the_library_function_within_is_told(
    stack: CallStack, place: Call, calls: str
) -> None:
    assert place_of(stack) == (place, calls)


@pytest.mark.parametrize(
    ("call", "users"),
    [
        (COMMAND, False),
        (Call("<module>", "/opt/env/bin/fits", 8, ""), False),
        (Call("<module>", "/home/u/project/bin/train", 40, "for x, y in loader:"), True),
        (Call("main", "/home/u/project/bin/train", 20), True),
        (Call("<module>", "/home/u/project/bin/train.py", 8, "sys.exit(main())"), True),
    ],
)
def test_a_command_that_a_package_installs_is_not_the_users_own_code(call: Call, users: bool) -> None:
    assert is_users(call) is users


def test_the_call_of_a_model_is_the_outermost_there_is() -> None:
    module = Call("Module._call_impl", f"{SITE}/torch/nn/modules/module.py", 1)
    calls, own = Call("validate", "/home/u/train.py", 31), Call("Net.forward", "/home/u/net.py", 9)
    linear = Call("Linear.forward", f"{SITE}/torch/nn/modules/linear.py", 1)
    assert outside_models((TRAIN, calls, module, own, module, linear)) == (TRAIN, calls)
    assert outside_models((TRAIN, calls)) == (TRAIN, calls)


def test_lines_are_ranked_by_looks_and_failed_looks_count_for_none() -> None:
    other = Call("Shards.__getitem__", "/home/u/data.py", 30, "return decode(raw)")
    stacks = [(worker(FETCH, ITEM, INIT, CONTENTS), 60), (worker(FETCH, ITEM, INIT), 20), (worker(FETCH, other), 20)]
    first, second = places([*stacks, ((), 7)], "the time")
    assert (first.line, first.share, first.samples, first.calls) == (27, 0.8, 80, "ZipFile._RealGetContents")
    assert (second.line, second.share, second.code) == (30, 0.2, "return decode(raw)")


def test_looks_that_are_taken_off_lessen_a_share_and_not_how_often_a_line_was_seen() -> None:
    grown, steady = ((Call("f", "/home/u/train.py", line, "work()"),) for line in (3, 4))
    found = places([(grown, 9), (steady, 6), (grown, -2), (steady, -6)], "the time")
    assert [(each.line, each.samples) for each in found] == [(3, 9)]
    assert found[0].share == pytest.approx(7 / 15)


ALWAYS = np.array([[0, np.iinfo(np.int64).max]])


@pytest.fixture
def run(tmp_path: Path) -> Path:
    return trained(tmp_path / "run", [[Step(fetch_ns=20 * MS)] * 40])


def moments(count: int) -> range:
    return range(START, START + count * 10 * MS, 10 * MS)


def looks(folder: Path) -> ProcessLooks:
    run = open_run(folder)
    writer = run.leading_writer()
    assert writer is not None
    found = looks_at(run, writer)
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("made", "state", "share"),
    [(18, ThreadState.RUNS, 0.75), (18, ThreadState.LOCK, 0.0), (0, ThreadState.RUNS, 0.0)],
)
def test_workers_make_batches_where_they_run_within_the_making(run: Path, made: int, state: int, share: float) -> None:
    if made:
        look(run, moments(made), lambda *_: DECODING, process=WORKER, state=state)
    look(run, moments(24 - made), lambda *_: WAITING, process=WORKER + 1, state=ThreadState.POLL)
    assert making_seen(looks(run), ALWAYS) == share


def test_too_few_looks_and_looks_from_within_say_nothing_of_workers(run: Path) -> None:
    look(run, moments(LEAST_SEEN - 1), lambda *_: DECODING, process=WORKER)
    assert np.isnan(making_seen(looks(run), ALWAYS))
    look(run, moments(40), lambda *_: DECODING, process=WORKER, state=-(2**63))
    assert np.isnan(making_seen(looks(run), ALWAYS))
