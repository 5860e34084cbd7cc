"""What real loops leave in the record besides their steps: evaluation, checkpoints, compilations, settings, data sets
with workers of their own, samplers, what came behind the training."""

from __future__ import annotations

import contextlib
import gc
import multiprocessing
import multiprocessing.context
import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader, Dataset, IterableDataset, Subset, dataloader

from support.crafted import facts_of_run, verdict_of_run
from support.hooked import MS, Clocked, Net, Recording, SomePass, data, learn, recording, sized
from whyidle.analyse.run.analysis import warnings_of
from whyidle.capture.hooks.compiles import CompileHook
from whyidle.capture.hooks.loader_facts import DataSets, starts_python
from whyidle.capture.hooks.steady import LEAST_DRAW_NS
from whyidle.capture.loop_detector import loaders as detector_loaders
from whyidle.capture.steps import Thinning
from whyidle.record.schema import NOT_MEASURED, EventKind, LoaderFlag

pytestmark = pytest.mark.usefixtures("either_path")


class Rows(Dataset[torch.Tensor]):
    """Each sample takes so long on a clock that is the training's."""

    def __init__(self, samples: int, ms: int = 0, clock: Clocked | None = None) -> None:
        self.samples, self.ms, self.clock = samples, ms, clock

    def __len__(self) -> int:
        return self.samples

    def __getitem__(self, index: int) -> torch.Tensor:
        if self.clock is not None:
            self.clock.take(self.ms)
        return torch.ones(4)


class Stream(IterableDataset[torch.Tensor]):
    def __iter__(self) -> Iterator[torch.Tensor]:
        yield from torch.ones(12, 4)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clocked:
    """What a batch of workers takes, the training sees only as its wait for them: 40 ms each."""
    clock = Clocked()
    gets = dataloader._MultiProcessingDataLoaderIter._get_data

    def waits(self: Any) -> Any:
        clock.take(40)
        return gets(self)

    monkeypatch.setattr(dataloader._MultiProcessingDataLoaderIter, "_get_data", waits)
    return clock


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("without_grad", [True, False])
def test_an_evaluating_pass_tells_how_long_it_waited(
    tmp_path: Path, workers: int, without_grad: bool, clock: Clocked
) -> None:
    training, checking = DataLoader(Rows(8), 2), DataLoader(Rows(12, 20, clock), 2, num_workers=workers)
    net = torch.nn.Linear(4, 1)
    with recording(tmp_path, clock) as made:
        for _ in range(2):
            for batch in training:
                learn(net, batch)
            with torch.no_grad() if without_grad else contextlib.nullcontext():
                for batch in checking:
                    net(batch)
                    clock.take(30)
            clock.take(7)
    assert made.values(EventKind.EVALUATION) == [6 * 40 * MS] * 2
    assert made.values(EventKind.EVALUATION_WORKERS) == [workers] * 2
    # It is the boundary's pass, no more and no less.
    assert made.lasted(EventKind.EVALUATION) == made.lasted(EventKind.BOUNDARY) == [6 * (40 + 30) * MS] * 2


def test_an_iterator_that_evaluates_a_batch_now_and_then_counts_each_time_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, clock: Clocked
) -> None:
    monkeypatch.setattr(detector_loaders, "MOST_EVALUATIONS", 5)
    net = torch.nn.Linear(4, 1)
    with recording(tmp_path, clock) as made, torch.no_grad():
        checking = iter(DataLoader(Rows(100, 5, clock), 2))
        for batch in DataLoader(Rows(20), 2):
            with torch.enable_grad():
                learn(net, batch)
            net(next(checking))
            clock.take(3)
    # The first iteration was made without gradients too, and is known to train once it has.
    waited = made.values(EventKind.EVALUATION)
    assert (len(waited), set(waited)) == (5, {0, 2 * 5 * MS})
    assert all(value <= took for value, took in zip(waited, made.lasted(EventKind.EVALUATION), strict=True))


def test_a_checkpoint_is_recorded_once_also_within_validation(tmp_path: Path) -> None:
    net = Net()
    net.model.register_buffer("large", torch.zeros(400, 400))
    with recording(tmp_path) as made:
        net.learns(data(8, 2))
        torch.save({"net": net.model.state_dict()}, tmp_path / "one.pt")
        with torch.no_grad():
            for batch in data(4, 2):
                net.loss(batch)
                torch.save({"net": net.model.state_dict()}, tmp_path / "two.pt")
    boundaries, saves = made.events(EventKind.BOUNDARY), made.events(EventKind.SAVE)
    assert (len(saves), len(boundaries)) == (3, 2)
    assert boundaries["t_ns"][0] <= saves["t_ns"][0] <= saves["end_ns"][0] <= boundaries["end_ns"][0]


def test_what_is_saved_in_no_time_is_not_recorded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("whyidle.capture.hooks.loop.LEAST_SAVE_NS", 10**12)
    with recording(tmp_path) as made:
        torch.save(torch.ones(1), tmp_path / "one.pt")
    assert (made.values(EventKind.SAVE), len(made.values(EventKind.BOUNDARY))) == ([], 1)


def test_each_compilation_is_recorded_in_its_step(tmp_path: Path) -> None:
    torch._dynamo.reset()
    function = torch.compile(lambda x: (x * 2).sum(), backend="eager", dynamic=False)
    with recording(tmp_path) as made:
        for batch in DataLoader(sized(3, 3, 4, 4, 3), batch_size=None):  # type: ignore[arg-type]
            function(batch.requires_grad_()).backward()
    torch._dynamo.reset()
    steps, begins = made.done(), made.events(EventKind.COMPILE)["t_ns"].tolist()
    assert [int(((steps["fetch_begin_ns"] <= t) & (t < steps["step_end_ns"])).argmax()) for t in begins] == [0, 2]
    assert all(ns > 0 for ns in made.lasted(EventKind.COMPILE))
    assert made.shapes == "nknkk"


def test_a_compilation_within_another_or_on_another_thread_counts_once(tmp_path: Path) -> None:
    with recording(tmp_path) as made:
        (compiling,) = (hook for hook in made.hooks._hooks if isinstance(hook, CompileHook))

        def nested() -> None:
            for call in (compiling._begins, compiling._begins, compiling._ends, compiling._ends, compiling._ends):
                call()

        for batch in DataLoader(Rows(4), 2):
            learn(torch.nn.Linear(4, 1), batch)
            elsewhere = threading.Thread(target=nested)
            elsewhere.start()
            elsewhere.join()
    assert len(made.events(EventKind.COMPILE)) == 2


def test_a_compiler_that_calls_nobody_back_is_left_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import torch._dynamo.callback as callback

    monkeypatch.setattr(callback, "callback_handler", object())
    with recording(tmp_path, off=["torch's compiler"]) as made:
        pass
    assert len(made.notices) == 1 + 1  # and that nothing was trained


FORK = {"num_workers": 1, "multiprocessing_context": "fork"}


@pytest.mark.parametrize(
    ("settings", "flags"),
    [
        ({}, 0),
        ({"dataset": Stream()}, LoaderFlag.ITERABLE),
        (FORK, 0),
        # Starts a Python that imports torch, and knows nothing of this file.
        pytest.param(
            {"num_workers": 1, "multiprocessing_context": "spawn", "dataset": torch.ones(12, 4)},
            LoaderFlag.STARTS_PYTHON,
            marks=pytest.mark.slow,
        ),
        (FORK | {"in_order": False}, LoaderFlag.OUT_OF_ORDER),
        (FORK | {"persistent_workers": True}, LoaderFlag.PERSISTENT_WORKERS),
    ],
)
def test_a_loaders_settings_are_told(tmp_path: Path, settings: dict[str, Any], flags: int) -> None:
    net = torch.nn.Linear(4, 1)
    with recording(tmp_path) as made:
        for batch in DataLoader(**{"dataset": Rows(12), "batch_size": 4, **settings}):
            learn(net, batch)
    assert made.values(EventKind.LOADER_FLAGS) == [flags]
    assert made.values(EventKind.LOADER_WORKERS) == [settings.get("num_workers", 0)]


def test_asking_how_workers_start_does_not_settle_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(multiprocessing.context._default_context, "_actual_context", None)  # type: ignore[attr-defined]
    default = multiprocessing.get_all_start_methods()[0]
    assert starts_python(None) == (default != "fork")
    assert multiprocessing.get_start_method(allow_none=True) is None
    assert [starts_python(method) for method in ("fork", "spawn", "forkserver")] == [False, True, True]


def test_a_program_that_trains_without_steps_is_told_how_to_have_some(tmp_path: Path) -> None:
    net = torch.nn.Linear(4, 1)
    with recording(tmp_path) as made:
        for _ in range(7):
            learn(net, torch.ones(2, 4))
    verdict = verdict_of_run(made.folder)
    assert verdict.cause is None
    assert "7 backward passes were seen" in verdict.title
    assert "whyidle.step()" in verdict.next[0].change


# Data sets with worker processes of their own: told by what they hold, and nothing of them is called.


def forked(workers: int) -> Any:
    context = "fork" if workers else None
    return DataLoader(Rows(12), batch_size=None, num_workers=workers, multiprocessing_context=context)


class Queue(Rows):
    """As torchio's: its samples come from a loader within it, which is made when the first one is asked for."""

    def __init__(self, workers: int) -> None:
        super().__init__(12)
        self.workers, self.queued = workers, iter(())

    @property
    def loader(self) -> Any:
        raise AssertionError("nothing of the data set is called")

    def __getitem__(self, index: int) -> Any:
        sample = next(self.queued, None)
        if sample is None:
            self.queued = iter(forked(self.workers))
            sample = next(self.queued)
        return sample


class Looping(IterableDataset[torch.Tensor]):
    """Keeps its loader nowhere but in its loop."""

    def __iter__(self) -> Iterator[torch.Tensor]:
        yield from forked(2)


class Processes(Rows):
    """A process of its own makes the samples."""

    def __init__(self) -> None:
        super().__init__(12)
        context = multiprocessing.get_context("fork")
        self.made = context.SimpleQueue()
        self.worker = context.Process(target=lambda: [self.made.put([1.0] * 4) for _ in range(12)], daemon=True)
        self.worker.start()

    def __getitem__(self, index: int) -> torch.Tensor:
        return torch.tensor(self.made.get())


class Pooled(Rows):
    """Threads read ahead: each worker could have some of its own."""

    def __init__(self) -> None:
        super().__init__(12)
        self.threads = ThreadPoolExecutor(2)

    def __getitem__(self, index: int) -> torch.Tensor:
        return self.threads.submit(super().__getitem__, index).result()


INNER = LoaderFlag.OWN_WORKERS + 2 * LoaderFlag.INNER_WORKER


@pytest.mark.parametrize(
    ("data_set", "flags"),
    [
        (lambda: Queue(2), INNER),
        (lambda: Subset(Queue(2), range(12)), INNER),
        (Looping, INNER | LoaderFlag.ITERABLE),
        (Processes, LoaderFlag.OWN_WORKERS),
        (lambda: Queue(0), 0),
        (Pooled, 0),
    ],
    ids=["queue", "within another", "in a loop", "processes", "a loader without workers", "threads"],
)
def test_workers_of_the_data_set_s_own_are_told(tmp_path: Path, data_set: Callable[[], Any], flags: int) -> None:
    net = torch.nn.Linear(4, 1)
    # Another loader's worker lives all the while: that is none of the data set's.
    others = iter(forked(1))
    with recording(tmp_path) as made:
        for batch in DataLoader(data_set(), batch_size=4):
            learn(net, batch)
    assert made.values(EventKind.LOADER_FLAGS) == [flags]
    assert next(others) is not None


# What a sampler takes in the training's thread, whenever it does its work.

BATCHES = 6


class Sampler:
    """Batches of four indices in their order. It works when its iterator is made, before the first batch, and for
    each."""

    def __init__(self, clock: Clocked, at_iter: float = 0.0, at_first: float = 0.0, each: float = 0.0) -> None:
        self._clock = clock
        self._at_iter, self._at_first, self._each = at_iter, at_first, each

    def __len__(self) -> int:
        return BATCHES

    def __iter__(self) -> Iterator[Any]:
        self._clock.take(self._at_iter)
        return self._draws()

    def _draws(self) -> Iterator[Any]:
        self._clock.take(self._at_first)
        for batch in range(BATCHES):
            self._clock.take(self._each)
            yield list(range(4 * batch, 4 * batch + 4))


class Tuples(Sampler):
    def _draws(self) -> Iterator[Any]:
        return map(tuple, super()._draws())


class Indices(Sampler):
    """One after the other."""

    def __len__(self) -> int:
        return 4 * BATCHES

    def _draws(self) -> Iterator[Any]:
        for index in range(4 * BATCHES):
            self._clock.take(self._each)
            yield index


def drawn(
    folder: Path, sampler: Callable[[Clocked], Any], epochs: int = 1, thinning: Thinning | None = None, **settings: Any
) -> Recording:
    """A training whose loader has this sampler; the batches that come are its own."""
    clock, came = Clocked(1000), []
    made_of = sampler(clock)
    settings |= (
        {"sampler": made_of, "batch": 4} if isinstance(made_of, Indices) else {"batch_sampler": made_of, "batch": 1}
    )
    loader, net = data(4 * BATCHES, **settings), Net()
    with recording(folder, clock, thinning) as made:
        for _ in range(epochs):
            for (batch,) in loader:
                came.append(batch[:, 0].tolist())
                net.learn(batch)
    assert made.notices == []
    assert came == [[3.0 * index for index in range(4 * batch, 4 * batch + 4)] for batch in range(BATCHES)] * epochs
    return made


QUICK = (LEAST_DRAW_NS - 5000) / MS


@pytest.mark.parametrize(
    ("sampler", "settings", "lasted_ms", "indices"),
    [
        # Torch makes the first iterator twice where there are workers.
        (lambda clock: Sampler(clock, at_iter=30), {"epochs": 2}, [30.0] * 2, [0] * 2),
        (lambda clock: Sampler(clock, at_iter=30), {"epochs": 2, "num_workers": 1}, [30.0] * 4, [0] * 4),
        (
            lambda clock: Sampler(clock, at_iter=30),
            {"epochs": 2, "num_workers": 1, "persistent_workers": True},
            [30.0] * 3,
            [0] * 3,
        ),
        *(
            (lambda clock: Sampler(clock, at_first=50, each=2), {"num_workers": n}, [52.0] + [2.0] * 5, [4] * 6)
            for n in (0, 2)
        ),
        (lambda clock: Indices(clock, each=0.5), {}, [2.0] * 6, [4] * 6),
        (lambda clock: Tuples(clock, each=3), {}, [3.0] * 6, [NOT_MEASURED] * 6),
        (lambda clock: Sampler(clock, at_iter=QUICK, each=QUICK), {}, [], []),
        # Of the steps that are let pass no clock is read.
        (lambda clock: Sampler(clock, each=2), {"thinning": SomePass(2, 1000)}, [2.0] * 4, [4] * 4),
    ],
)
def test_what_a_sampler_takes_is_recorded_within_the_fetch_and_what_it_gives_stays(
    tmp_path: Path, sampler: Callable[[Clocked], Any], settings: Any, lasted_ms: list[float], indices: list[int]
) -> None:
    made = drawn(tmp_path, sampler, **settings)
    assert [round(ns / MS, 1) for ns in made.lasted(EventKind.SAMPLER)] == lasted_ms
    assert made.values(EventKind.SAMPLER) == indices
    steps = made.done()
    assert (len(steps) < BATCHES) == ("thinning" in settings)
    for event in made.events(EventKind.SAMPLER):
        within = (steps["fetch_begin_ns"] <= event["t_ns"]) & (event["end_ns"] <= steps["fetch_end_ns"])
        assert within.sum() == 1


def test_without_torch_s_functions_the_steps_are_recorded_and_a_notice_tells(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def moved(self: Any, loader: Any, first_iter: bool, further: Any) -> None: ...

    monkeypatch.setattr(dataloader._BaseDataLoaderIter, "_reset", moved)
    with recording(tmp_path, off=["preparing batches"]) as made:
        Net().learns(data(4 * BATCHES))
    (said,) = [text for text in made.notices if "sampler" in text]
    assert said.startswith("Work of a sampler at the start of an epoch counts for its first batch")
    assert len(made.samples) == BATCHES


# What belongs to a training behind its last step: a validation does, a test and a prediction do not.

STEPS = 20
"""Of an epoch."""


class Trained:
    """A program that trains with a batch of one sample, and evaluates; each sample takes 10 ms."""

    def __init__(self) -> None:
        self.clock = Clocked()
        self.net = torch.nn.Linear(4, 1)
        self.training = self.rows(STEPS)

    def trains(self) -> None:
        for batch in self.training:
            learn(self.net, batch)
            self.clock.take(10)

    def rows(self, samples: int) -> DataLoader[torch.Tensor]:
        return DataLoader(Rows(samples, 10, self.clock), 1)

    def evaluates(self, loader: Iterable[torch.Tensor], most: int = 99) -> None:
        with torch.no_grad():
            for number, batch in enumerate(loader, 1):
                self.net(batch)
                if number == most:
                    break


@pytest.mark.parametrize(
    ("passes", "behind_ms"),
    [
        ("tvtvtvep", (50, 500)),  # the test and the prediction behind a validation
        ("tve", (50, 300)),  # the first pass after the only epoch is its validation
        ("twe", (30, 300)),
        ("tte", (0, 300)),
        ("tvtvev", (50, 350)),
        ("tetetev", (300, 50)),  # a training that goes on after a test
        ("tntntne", (50, 300)),
    ],
)
def test_a_validation_counts_and_a_test_and_a_prediction_do_not(
    tmp_path: Path, passes: str, behind_ms: tuple[int, int]
) -> None:
    """`behind_ms`: time of the window behind its last step, and what is shown apart."""
    program = Trained()
    checked, tested, predicted = program.rows(5), program.rows(30), program.rows(20)
    with recording(tmp_path, program.clock) as made:
        for each in passes:
            match each:
                case "t":
                    program.trains()
                case "v" | "w":
                    program.evaluates(checked, most=99 if each == "v" else 3)
                case "n":  # a loader and a data set made anew for each pass
                    program.evaluates(program.rows(5))
                    gc.collect()
                case _:
                    program.evaluates(tested if each == "e" else predicted)
    window = facts_of_run(made.folder).window
    after = window.after
    assert after is not None
    found = window.end_ns - window.steps["step_end_ns"].max(), after["end_ns"].max() - after["t_ns"][0]
    assert tuple(ns // MS for ns in found) == behind_ms
    (said,) = [note for note in warnings_of(facts_of_run(made.folder)) if note.startswith("After the training")]
    assert f"{behind_ms[1] / 1000:.2f} s" in said
    assert ("2 passes" in said) == (passes in ("tvtvtvep", "tvtvev"))


class Printed:
    """As data sets of `datasets`: what is made of one in the same way has the same fingerprint."""

    def __init__(self, fingerprint: str) -> None:
        self._fingerprint = fingerprint

    def __len__(self) -> int:
        raise RuntimeError("is not to be asked")


def test_a_data_set_is_known_again_by_itself_by_its_fingerprint_and_by_its_looks_once_it_is_gone() -> None:
    sets = DataSets()
    one, other = Printed("a"), Printed("b")
    assert [sets.number_of(one), sets.number_of(other), sets.number_of(one)] == [1, 2, 1]
    assert sets.number_of(Printed("a")) == 1
    kept: list[Any] = [Rows(3), Rows(3)]
    assert [sets.number_of(each) for each in kept] == [3, 4]
    del kept[0]
    gc.collect()
    assert [sets.number_of(Rows(4)), sets.number_of(Rows(3))] == [5, 3]
    assert sets.number_of([1, 2]) == sets.number_of([3, 4])
