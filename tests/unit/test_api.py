"""`watch`, `step` and `phase`: nothing outside a recording, and what they are for inside one."""

from __future__ import annotations

import pickle
import subprocess
import sys
import threading
import time
import traceback
from collections.abc import AsyncIterator, Iterator, Sequence, Sized
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, cast

import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset

import whyidle
from support.hooked import Net
from whyidle.analyse.run.analysis import analyse
from whyidle.capture.recording import recording
from whyidle.record.run import open_run
from whyidle.record.schema import BATCH, EVENT, NOT_MEASURED, PAUSE, STEP, EventKind, PauseKind
from whyidle.record.stacks import read_names


def recorded(folder: Path) -> AbstractContextManager[Any]:
    return recording(folder / "run", "cpu", sampler=False)


def steps_of(folder: Path) -> Any:
    return open_run(folder / "run").records(STEP)


def loader(count: int) -> DataLoader[Any]:
    return DataLoader(TensorDataset(torch.ones(count, 3)), batch_size=4)


@pytest.mark.parametrize(
    ("code", "absent"),
    [
        ("import whyidle", ("torch", "whyidle.c")),  # nor what records
        ("import whyidle.scenarios.voc.read, whyidle.scenarios.voc.generate, whyidle.pipelines.stages", ("torch",)),
        (
            "from whyidle.pipelines import registry; [registry.factory(name) for name in registry.NAMES]",
            ("nvidia.dali", "spdl.pipeline"),
        ),
        (
            "import whyidle_bench.faults, whyidle_bench.cases.registry, whyidle_bench.cases.machine, "
            "whyidle_bench.batch_sizes, whyidle_bench.sweeps.truth",
            ("torch",),
        ),
    ],
    ids=["api", "reading", "loaders", "benchmark"],
)
def test_importing_it_imports_nothing_that_it_does_not_need(code: str, absent: tuple[str, ...]) -> None:
    code += f"; import sys; print([name for name in sys.modules if name.startswith({absent})])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_outside_a_recording_nothing_is_done() -> None:
    batches = [1, 2]
    assert whyidle.watch(batches) is batches
    whyidle.step()

    @whyidle.phase("data")
    def twice(value: int) -> int:
        with whyidle.phase("other"):
            return 2 * value

    assert twice(4) == 8
    assert twice.__name__ == "twice"
    with pytest.raises(KeyError, match="theirs"), whyidle.phase("data"):
        raise KeyError("theirs")


class Batches(Sequence[torch.Tensor]):
    def __init__(self) -> None:
        self.held = [torch.ones(4, 3)] * 5

    def __len__(self) -> int:
        return len(self.held)

    def __getitem__(self, key: Any) -> Any:
        return self.held[key]

    def __enter__(self) -> Batches:
        return self

    def __exit__(self, *_: object) -> None: ...

    def __add__(self, other: object) -> str:
        return "added"

    def __eq__(self, other: object) -> bool:
        return type(other) is Batches

    __hash__ = None


def test_what_nothing_can_stand_for_is_as_it_is_and_within_a_compiled_function_all_is_nothing(tmp_path: Path) -> None:
    async def later() -> AsyncIterator[int]:
        yield 1

    @torch.compile(backend="eager", fullgraph=True)
    def forward(x: torch.Tensor) -> torch.Tensor:
        whyidle.step()
        with whyidle.phase("forward"):
            return x * 2

    with recorded(tmp_path):
        assert forward(torch.ones(2)).tolist() == [2.0, 2.0]
        for thing in ([1], (1,), {"a": 1}, range(3), torch.ones(2), torch.ones(2).numpy(), later(), "text"):
            assert whyidle.watch(thing) is thing


def test_what_is_watched_is_a_loader_to_the_recording_and_itself_to_everything_else(tmp_path: Path) -> None:
    net, batches = Net(), cast("Any", Batches())
    with recorded(tmp_path):
        watched = whyidle.watch(batches)
        assert watched is not batches
        assert isinstance(watched, Batches)
        assert (len(watched), watched[-1:], bool(watched), len(watched.held)) == (5, batches[-1:], True, 5)
        with pytest.raises(TypeError):
            next(watched)
        # It has the special methods of what it stands for and no others.
        with watched as inner:
            assert inner is watched
        assert (watched + 1, watched == batches, watched == whyidle.watch(Batches())) == ("added", True, True)
        assert len(list(reversed(watched))) == 5
        with pytest.raises(TypeError):
            hash(watched)
        generator: Any = whyidle.watch(x for x in (1,))
        assert not isinstance(generator, Sized)
        assert not callable(generator)
        assert not hasattr(whyidle.watch(iter([1])), "send")
        assert type(pickle.loads(pickle.dumps(watched))) is Batches
        for _ in range(2):
            for x in watched:
                net.learn(x)
            with torch.no_grad():
                for x in watched:
                    net.model(x)
    steps = steps_of(tmp_path)
    assert steps["samples"].tolist() == [4] * 10
    assert steps["epoch"].tolist() == [0] * 5 + [1] * 5


def test_a_watched_generator_can_be_sent_to_thrown_into_and_closed(tmp_path: Path) -> None:
    said: list[Any] = []

    def batches() -> Iterator[torch.Tensor]:
        try:
            while True:
                said.append((yield torch.ones(2, 3)))
        except KeyError:
            yield torch.ones(1, 3)
        finally:
            said.append("closed")

    net = Net()
    with recorded(tmp_path):
        watched: Any = whyidle.watch(batches())
        assert iter(watched) is watched
        for _ in range(3):
            net.learn(next(watched))
        net.learn(watched.send("this"))
        assert watched.throw(KeyError()).shape == (1, 3)
        watched.close()
        with pytest.raises(StopIteration):
            next(watched)
    assert steps_of(tmp_path)["samples"].tolist() == [2] * 4
    assert said == [None, None, "this", "closed"]


class Restarts:
    def __iter__(self) -> Iterator[torch.Tensor]:
        self.left = iter([torch.ones(2, 3)] * 3)
        return self

    def __next__(self) -> torch.Tensor:
        return next(self.left)


def test_an_iterator_begins_anew_with_each_loop_the_batch_size_can_be_told_and_other_threads_mark_nothing(
    tmp_path: Path,
) -> None:
    def beside() -> None:
        whyidle.step()
        with whyidle.phase("data"), whyidle.phase("beside"):
            pass

    net, batches, restarts = Net(), loader(8), Restarts()
    with recorded(tmp_path):
        watched = whyidle.watch(restarts)
        for x in (x for _ in range(3) for x in watched):
            net.learn(x)
        assert whyidle.watch(batches) is batches
        for _ in whyidle.watch(iter(range(3)), batch_size=32):
            net.learn(torch.ones(2, 3))
        for (x,) in whyidle.watch(batches, batch_size=7):
            thread = threading.Thread(target=beside)
            thread.start()
            thread.join()
            net.learn(x)
    steps = steps_of(tmp_path)
    assert steps["samples"].tolist() == [2] * 9 + [32] * 3 + [7] * 2
    assert steps["epoch"][:9].tolist() == [0] * 3 + [1] * 3 + [2] * 3


def test_an_error_of_what_is_watched_reaches_the_training_and_is_no_step(tmp_path: Path) -> None:
    """With no frame of ours."""

    def batches() -> Iterator[torch.Tensor]:
        yield torch.ones(2, 3)
        raise OSError("disk")

    net = Net()
    with recorded(tmp_path):
        with pytest.raises(OSError, match="disk") as raised:
            for batch in whyidle.watch(batches()):
                net.learn(batch)
        assert len(traceback.extract_tb(raised.value.__traceback__)) == 2
    assert len(steps_of(tmp_path)) == 1


@pytest.mark.parametrize("around", [False, True], ids=["marked", "around a loader's fetch"])
def test_waits_for_data_that_are_marked_begin_steps(tmp_path: Path, around: bool) -> None:
    net, iterator = Net(), iter(loader(20))
    with recorded(tmp_path):
        for number in range(5):
            if not around and number % 3 == 0:
                with torch.no_grad():
                    for _ in range(4):
                        with whyidle.phase("data"):
                            pass
            with whyidle.phase("data"):
                (x,) = next(iterator) if around else (torch.ones(2, 3),)
                time.sleep(0.003)
            net.learn(x)
    steps = steps_of(tmp_path)
    assert steps["samples"].tolist() == [4 if around else NOT_MEASURED] * 5
    assert (steps["fetch_end_ns"] - steps["fetch_begin_ns"] >= 3_000_000).all()


def test_a_wait_after_the_loaders_fetch_is_waiting_within_the_step(tmp_path: Path) -> None:
    net = Net()
    with recorded(tmp_path):
        for (x,) in loader(40):
            net.model(x)
            time.sleep(0.011)
            with whyidle.phase("data"):
                time.sleep(0.002)
            net.learn(x)
    run = open_run(tmp_path / "run")
    pauses = run.records(PAUSE)
    assert len(run.records(STEP)) == 10
    # At first it is not known that the loader trains.
    assert 9 <= (pauses["what"] == PauseKind.FETCH).sum() <= 10
    assert (pauses["end_ns"] - pauses["begin_ns"] >= 2_000_000).all()


def test_steps_begin_where_the_program_says(tmp_path: Path) -> None:
    net = Net()
    replay = DataLoader(TensorDataset(torch.ones(100, 3)), batch_size=2)
    with recorded(tmp_path):
        batches = iter(replay)
        for _ in range(8):
            whyidle.step()
            for _ in range(3):
                net.learn(next(batches)[0])
    steps = steps_of(tmp_path)
    assert steps["samples"].tolist() == [6] * 8
    assert steps["fetch_begin_ns"][1:].tolist() == steps["step_end_ns"][:-1].tolist()


def test_phases_are_named_and_between_steps_they_are_boundaries(tmp_path: Path) -> None:
    net = Net()
    with recorded(tmp_path):
        for (x,) in loader(160):
            with whyidle.phase("train"):
                net.learn(x)
            with whyidle.phase("write summary"):
                time.sleep(0.002)
    run = open_run(tmp_path / "run")
    events = run.records(EVENT)
    assert set(read_names(run.folder).values()) == {"train", "write summary"}
    assert (events["what"] == EventKind.PHASE).sum() == 80
    assert (events["what"] == EventKind.BOUNDARY).sum() == 40
    assert len(run.records(STEP)) == 40
    analysis = analyse(run)
    assert analysis.facts.parts.share("boundary") > 0.3
    assert any('phase "write summary"' in note for note in analysis.notes)


class Stamped(torch.Tensor):
    """A batch that knows how it was made."""

    made: whyidle.MadeBatch | None


def stamped(number: int) -> torch.Tensor:
    batch = torch.ones(4, 3).as_subclass(Stamped)
    batch.made = None
    if number != 2:
        begin = 1000 * number
        batch.made = whyidle.MadeBatch(
            begin_ns=begin, end_ns=begin + 900, worker=number % 2, read_ns=500, collate_ns=0, batch_bytes=48
        )
    return batch


def test_a_loader_can_tell_how_its_batches_were_made_and_how_many_are_ready(tmp_path: Path) -> None:
    class Loader:
        left = 0

        def __iter__(self) -> Iterator[torch.Tensor]:
            for number in range(5):
                self.left = 4 - number
                yield stamped(number)

    net, own = Net(), Loader()
    with recorded(tmp_path):
        watched = whyidle.watch(own, made=lambda batch: batch.made, ready=lambda: own.left, capacity=6)
        for _ in range(2):
            with torch.no_grad():
                list(watched)  # what only evaluates is no batch of a step
            for x in watched:
                net.learn(x.as_subclass(torch.Tensor))
    steps, batches = steps_of(tmp_path), open_run(tmp_path / "run").records(BATCH)
    assert batches["step"].tolist() == [0, 1, 3, 4, 5, 6, 8, 9]
    assert batches["worker"].tolist() == [0, 1, 1, 0] * 2
    assert (batches["end_ns"] - batches["begin_ns"]).tolist() == [900] * 8
    whole = {"samples": 4, "read_ns": 500, "collate_ns": 0, "cpu_ns": NOT_MEASURED}
    assert {name: set(batches[name]) for name in whole} == {name: {value} for name, value in whole.items()}
    # Each epoch's first fetch begins with its `iter()`, before which there is no queue to look at.
    assert steps["queue_ready"].tolist() == [NOT_MEASURED, 4, 3, 2, 1] * 2
    assert set(steps["queue_capacity"][1:5]) == {6}


@pytest.mark.parametrize("workers", [0, 2])
def test_a_loader_that_tells_of_itself_is_not_recorded_as_a_data_loader_besides(tmp_path: Path, workers: int) -> None:
    own = DataLoader(TensorDataset(torch.ones(16, 3)), batch_size=4, num_workers=workers)
    net, told = Net(), whyidle.MadeBatch(begin_ns=1, end_ns=2, worker=7)

    def batches() -> Iterator[Any]:
        yield from own

    with recorded(tmp_path):
        # A batch whose step is taken back was made for none: the first is looked at and thrown away.
        next(iter(whyidle.watch((stamped(0) for _ in range(3)), made=lambda batch: batch.made)))
        for each in (batches(), own):
            for (x,) in whyidle.watch(each, made=lambda _: told):
                net.learn(x)
    made = open_run(tmp_path / "run").records(BATCH)
    assert (made["worker"].tolist(), made["step"].tolist()) == ([7] * 8, list(range(8)))


def test_what_fails_while_a_loader_is_asked_ends_the_telling_and_nothing_else(tmp_path: Path) -> None:
    def fails(*_: Any) -> Any:
        raise KeyError("their own")

    net = Net()
    with recorded(tmp_path):
        for x in whyidle.watch(iter([torch.ones(4, 3)] * 5), made=fails, ready=fails, capacity=2):
            net.learn(x)
    steps = steps_of(tmp_path)
    assert steps["samples"].tolist() == [4] * 5
    assert set(steps["queue_ready"]) == {NOT_MEASURED}
    notices = (tmp_path / "run" / "training-notices.txt").read_text()
    assert notices.count("the program's own report on batches") == 1
