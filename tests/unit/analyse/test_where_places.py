"""From stacks to lines of the user's own code, to parts of the step, and to what workers were seen to do."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from support.crafted import records_of
from support.planted_runs import trained
from support.planted_stacks import DECODING, WAITING, WORKER, look
from whyidle.analyse.where.looks import LEAST_SEEN, ProcessLooks, looks_at, makes, making_seen
from whyidle.analyse.where.parts import StepPart, parts_at
from whyidle.analyse.where.places import is_users, outside_models, place_of, places
from whyidle.record.run import open_run
from whyidle.record.schema import EVENT, NOT_MEASURED, PAUSE, STEP, EventKind, PauseKind, StepFlag, ThreadState
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


def test_an_empty_stack_has_no_place() -> None:
    assert place_of(()) is None


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


def test_a_worker_makes_a_batch_within_torchs_fetcher_alone() -> None:
    queue = Call("Queue.get", f"{STDLIB}/multiprocessing/queues.py", 113)
    assert makes(worker(FETCH, ITEM))
    assert not makes(worker(queue))
    # The training stood in a fetch of its own when it forked the worker.
    assert not makes((TRAIN, FETCH, LOADER, LOOP, queue))


def test_looks_that_are_taken_off_lessen_a_share_and_not_how_often_a_line_was_seen() -> None:
    grown, steady = ((Call("f", "/home/u/train.py", line, "work()"),) for line in (3, 4))
    found = places([(grown, 9), (steady, 6), (grown, -2), (steady, -6)], "the time")
    assert [(each.line, each.samples) for each in found] == [(3, 9)]
    assert found[0].share == pytest.approx(7 / 15)


def step(number: int, begin: int, **stamps: Any) -> dict[str, float]:
    """100 ms from `begin`: fetched at 10, called at 20, optimized until 90, unless said otherwise."""
    row = {"fetch_begin_ns": 0, "fetch_end_ns": 10, "forward_begin_ns": 20, "backward_begin_ns": 50}
    row |= {"optimizer_end_ns": 90, "step_end_ns": 100}
    plain = {"step": number, "flags": StepFlag.FORWARD_SEEN, "samples": 8, "skipped": 0, "skipped_samples": 0}
    told = row | plain | stamps
    return {name: value if name in plain or value == NOT_MEASURED else begin + value for name, value in told.items()}


def part_at(at: int, *steps: dict[str, float], events: Any = (), pauses: Any = ()) -> StepPart:
    told = [dict(zip(("t_ns", "what", "value", "end_ns"), row, strict=True)) for row in events]
    calls = [{"what": what, "begin_ns": begin, "end_ns": end} for what, begin, end in pauses]
    (part,) = parts_at(np.array([at]), records_of(STEP, steps), records_of(EVENT, told), records_of(PAUSE, calls))
    return StepPart(part)


UNKNOWN, COMPUTE, OUTSIDE = StepPart.UNKNOWN, StepPart.COMPUTE, StepPart.OUTSIDE
TWO = step(0, 1000), step(1, 1100)
PASSED = step(0, 1000), step(5, 1400, skipped=4, skipped_end_ns=NOT_MEASURED)
ENDED = step(0, 1000), step(5, 1400, skipped=4, skipped_end_ns=-150)
LOST = step(0, 1000), step(3, 1400)
UNSEEN = [step(number, 1000 + 100 * number, flags=0, forward_begin_ns=10) for number in range(2)]
UNFED = [step(number, 1000 + 100 * number, fetch_end_ns=NOT_MEASURED, flags=0) for number in range(2)]
VALIDATION = [(1030, EventKind.BOUNDARY, 0, 1040)]
SKIPPED = [(1500, EventKind.SKIPPED_STEPS, 7, NOT_MEASURED)]


@pytest.mark.parametrize(
    ("at", "steps", "events", "part"),
    [
        (1150, (step(0, 1000), step(1, 1200)), [], OUTSIDE),  # between two epochs
        # A validation is outside the steps wherever it is, and before the training before the first.
        (1035, TWO, VALIDATION, OUTSIDE),
        (1041, TWO, VALIDATION, COMPUTE),
        (1300, TWO, [(1250, EventKind.BOUNDARY, 0, 1400)], OUTSIDE),
        (905, TWO, [(900, EventKind.BOUNDARY, 0, 910)], StepPart.BEFORE_FIRST),
        # Steps that were let pass or are missing in the recording are not guessed.
        (1250, PASSED, [], UNKNOWN),
        (1249, ENDED, [], UNKNOWN),
        (1250, ENDED, [], OUTSIDE),
        (1250, LOST, [], UNKNOWN),
        (900, [step(3, 1000)], [], UNKNOWN),
        # Let pass after the last, they are not after the training.
        (1400, TWO, SKIPPED, UNKNOWN),
        (1500, TWO, SKIPPED, StepPart.AFTER_LAST),
        # Without a single call of the model seen its arrival is not told from computing.
        (1030, UNSEEN, [], StepPart.ARRIVAL_OR_COMPUTE),
        (1030, (UNSEEN[0], TWO[1]), [], COMPUTE),
        # A step without an optimizer computes to its end.
        (1099, (step(0, 1000, optimizer_end_ns=NOT_MEASURED), TWO[1]), [], COMPUTE),
        # Where the fetch was not seen only the backward pass is known.
        (1030, UNFED, [], UNKNOWN),
        (1060, UNFED, [], COMPUTE),
        (1095, UNFED, [], UNKNOWN),
        (1195, UNFED, [], UNKNOWN),
        (5, [], [], UNKNOWN),
    ],
)
def test_what_is_known_of_a_moment_is_told_and_the_rest_not_guessed(
    at: int, steps: Any, events: Any, part: StepPart
) -> None:
    assert part_at(at, *steps, events=events) is part


@pytest.mark.parametrize(
    ("at", "part"),
    [
        (999, StepPart.BEFORE_FIRST),
        (1000, StepPart.FETCH),
        (1009, StepPart.FETCH),
        (1010, StepPart.ARRIVAL),
        (1019, StepPart.ARRIVAL),
        (1020, StepPart.COMPUTE),
        (1089, StepPart.COMPUTE),
        (1090, StepPart.AFTER_OPTIMIZER),
        (1099, StepPart.AFTER_OPTIMIZER),
        (1100, StepPart.FETCH),
        (1200, StepPart.AFTER_LAST),
        (10**12, StepPart.AFTER_LAST),
    ],
)
def test_each_moment_of_a_step_is_in_the_part_that_its_stamps_tell(at: int, part: StepPart) -> None:
    assert part_at(at, *TWO) is part


def test_a_further_fetch_within_a_step_is_a_fetch() -> None:
    assert part_at(1055, *TWO, pauses=[(PauseKind.FETCH, 1050, 1060)]) is StepPart.FETCH
    assert part_at(1055, *TWO, pauses=[(PauseKind.SYNC, 1050, 1060)]) is StepPart.COMPUTE


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
    assert making_seen(looks(run), ALWAYS) is None
    look(run, moments(40), lambda *_: DECODING, process=WORKER, state=-(2**63))
    assert making_seen(looks(run), ALWAYS) is None
