"""How a batch's making is timed, in workers and in the training."""

from __future__ import annotations

import pickle
import sys
from collections import UserDict
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils.data import ConcatDataset, DataLoader, Subset, TensorDataset
from torch.utils.data._utils import worker as torch_worker

import support.slow_data as slow_data
from whyidle.analyse.predict.observed import LEAST_BATCHES
from whyidle.analyse.run.window import MOST_WARMUP_STEPS
from whyidle.capture.hooks.parts import bytes_of
from whyidle.capture.hooks.samples import samples_of
from whyidle.capture.hooks.switch import Switch
from whyidle.capture.workers.batch_content import BatchContent
from whyidle.capture.workers.counters import ThreadCounters
from whyidle.capture.workers.fetch_timing import Stamped, file_of, number_of, one_by_one
from whyidle.capture.workers.hook import (
    PASS,
    Fetchers,
    Orders,
    TrainingFetchTimer,
    WorkerFetchTimer,
    WorkerLoop,
    positions,
)
from whyidle.record.names import Names
from whyidle.record.schema import BATCH, NOT_MEASURED

FIELDS = [field.name for field in BATCH.fields[1:]]


def test_the_slowest_of_a_batch_is_found_while_the_fetcher_goes_through_it() -> None:
    stamped = Stamped([4, 8, 15, 16])
    made = []
    for index in stamped:
        slow_data.spin(0.02 if index == 15 else 0.001)
        made.append(index)
    assert made == [4, 8, 15, 16]
    assert len(stamped) == 4
    assert stamped.slowest == 15
    assert stamped.slowest_ns >= 20_000_000


def test_indices_that_are_no_numbers_are_not_measured() -> None:
    assert number_of(torch.tensor(7)) == 7
    assert number_of("key") == number_of(None) == number_of((1, 2)) == NOT_MEASURED


class Listed(TensorDataset):
    def __init__(self, name: str, files: Any) -> None:
        super().__init__(torch.zeros(4))
        setattr(self, name, files)


def test_files_are_found_through_subsets_and_concatenations() -> None:
    images = Listed("samples", [(f"a{n}.jpg", n) for n in range(4)])
    paths = Listed("paths", [Path(f"b{n}.jpg") for n in range(4)])
    both = ConcatDataset([images, paths])
    assert file_of(images, 2) == "a2.jpg"
    assert file_of(both, 6) == "b2.jpg"
    assert file_of(Subset(both, [7, 0]), 0) == "b3.jpg"
    assert file_of(TensorDataset(torch.zeros(4)), 1) is None


def test_samples_are_timed_one_by_one_only_where_the_fetcher_makes_them_so() -> None:
    plain = TensorDataset(torch.zeros(4))
    assert one_by_one(plain)
    assert one_by_one(Subset(plain, [0]))
    assert one_by_one(ConcatDataset([plain]))
    assert not one_by_one(slow_data.Keyed())
    assert not one_by_one(Subset(slow_data.Keyed(), [0]))
    assert not one_by_one(Subset(Subset(plain, [0]), [0]))


def test_bytes_are_those_of_all_tensors_and_of_nothing_else() -> None:
    batch = {"x": torch.zeros(4, 3), "y": [torch.zeros(2, dtype=torch.int64), "text"], "z": torch.zeros(4).numpy()}
    assert bytes_of(batch) == 48 + 16 + 16
    assert bytes_of(["only", "text"]) == NOT_MEASURED
    assert bytes_of([torch.zeros(1)] * 10_000) == NOT_MEASURED


def test_counters_see_what_a_thread_reads_and_computes_and_not_themselves(tmp_path: Path) -> None:
    file = tmp_path / "data"
    file.write_bytes(b"x" * 50_000)
    counters = ThreadCounters(own_process=False)
    begin, idle = counters.begin(), counters.end()
    assert idle.thread_read_bytes - begin.thread_read_bytes == 0
    begin = counters.begin()
    file.read_bytes()
    slow_data.spin(0.01)
    end = counters.end()
    counters.close()
    assert 50_000 <= end.thread_read_bytes - begin.thread_read_bytes < 51_000
    assert 10_000_000 <= end.cpu_ns - begin.cpu_ns <= end.t_ns - begin.t_ns


class Queue:
    def __init__(self, orders: list[Any]) -> None:
        self.orders = orders

    def get(self, timeout: float = 0) -> Any:
        return self.orders.pop(0)


def fetch_timer(tmp_path: Path, rows: list[Any]) -> WorkerFetchTimer:
    switch = Switch("workers", "nothing is seen", rows.append)
    return WorkerFetchTimer(
        switch,
        ThreadCounters(False),
        Names(tmp_path),
        rows.append,
        lambda *_: None,
        BatchContent(lambda *_: None, in_worker=True),
        own_process=False,
        worker=0,
    )


def test_orders_tell_the_batch_and_the_pass(tmp_path: Path) -> None:
    timer = fetch_timer(tmp_path, [])
    queue = Queue([(0, [1, 2]), (3, [4]), torch_worker._ResumeIteration(), (0, [1])])
    orders = Orders(queue, timer, lambda: None)
    numbers = []
    while queue.orders:
        orders.get(timeout=1)
        numbers.append(timer.number)
    assert numbers == [0, 3, 3, PASS]
    assert orders.orders is queue.orders


def test_very_short_batches_are_left_out_and_counted(tmp_path: Path) -> None:
    rows: list[Any] = []
    timer = fetch_timer(tmp_path, rows)
    fetcher = torch.utils.data._utils.fetch._MapDatasetFetcher(
        TensorDataset(torch.zeros(8)), True, torch.utils.data.default_collate, False
    )
    for _ in range(2000):
        assert timer.begins(fetcher, [1, 2, 3])
        timer.ends(fetcher.fetch(timer.indices))
    timer._not_before = 0
    assert timer.begins(fetcher, [1, 2, 3])
    timer.ends(fetcher.fetch(timer.indices))
    assert WorkerFetchTimer.FREE <= len(rows) < 1000
    skipped = sum(row[FIELDS.index("skipped")] for row in rows)
    assert sum(row[FIELDS.index("skipped_samples")] for row in rows) == 3 * skipped
    assert len(rows) + skipped == 2001
    assert fetcher.collate_fn is torch.utils.data.default_collate


def test_what_is_timed_of_a_training_whatever_it_costs_is_enough_to_replay_its_loader() -> None:
    """`tune` replays a first stretch, in which none but these may be timed. One is under way when it is copied."""
    assert TrainingFetchTimer.FREE > LEAST_BATCHES + MOST_WARMUP_STEPS


def test_an_error_of_ours_switches_the_watch_off_and_leaves_the_fetcher_as_it_was(tmp_path: Path) -> None:
    said: list[Any] = []
    timer = fetch_timer(tmp_path, said)
    timer.counters.begin = lambda: 1 / 0  # type: ignore[method-assign,assignment,return-value]
    fetcher = torch.utils.data._utils.fetch._MapDatasetFetcher(slow_data.Keyed(), True, list, False)
    assert not timer.begins(fetcher, [1])
    assert not timer.begins(fetcher, [1])
    assert fetcher.collate_fn is list
    (notice,) = said
    assert "ZeroDivisionError" in notice


def test_a_loop_that_takes_other_arguments_is_refused() -> None:
    assert set(positions(torch_worker._worker_loop)) == {"index_queue", "worker_id"}
    with pytest.raises(LookupError, match="index_queue"):
        positions(lambda dataset, worker_id: None)


def test_a_pickled_loop_is_torch_s_own_where_whyidle_is_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    loop = WorkerLoop(torch_worker._worker_loop, tmp_path, 0, 4711, loader=2)
    pickled = pickle.dumps(loop)
    revived = pickle.loads(pickled)
    assert isinstance(revived, WorkerLoop)
    assert pickle.dumps(revived) == pickled
    for module in [name for name in sys.modules if name.partition(".")[0] == "whyidle"]:
        monkeypatch.setitem(sys.modules, module, None)
    assert pickle.loads(pickled) is torch_worker._worker_loop


def test_a_loop_for_an_iterator_that_is_not_recorded_is_torch_s_own(tmp_path: Path) -> None:
    loop = WorkerLoop(torch_worker._worker_loop, tmp_path, 0, 4711, loader=0)
    assert pickle.loads(pickle.dumps(loop)) is torch_worker._worker_loop


def test_a_loader_within_a_worker_s_dataset_is_not_recorded_twice(tmp_path: Path) -> None:
    rows: list[Any] = []
    timer = fetch_timer(tmp_path, rows)

    class Outer(slow_data.Keyed):
        __getitems__ = None  # type: ignore[assignment]

        def __getitem__(self, index: int) -> torch.Tensor:
            (inner,) = DataLoader(TensorDataset(torch.ones(1)), 1)
            assert not timer.begins(None, [index])
            return inner[0]

    fetcher = torch.utils.data._utils.fetch._MapDatasetFetcher(Outer(), True, torch.stack, False)
    assert timer.begins(fetcher, [1, 2])
    timer.ends(fetcher.fetch(timer.indices))
    assert len(rows) == 1


def test_a_fetcher_is_as_it_was_after_its_counters_failed(tmp_path: Path) -> None:
    said: list[Any] = []
    timer = fetch_timer(tmp_path, said)
    fetcher = torch.utils.data._utils.fetch._MapDatasetFetcher(TensorDataset(torch.zeros(8)), True, list, False)
    assert timer.begins(fetcher, [1])
    timer.counters.end = lambda: 1 / 0  # type: ignore[method-assign,assignment,return-value]
    timer.ends(fetcher.fetch(timer.indices))
    assert fetcher.collate_fn is list
    assert len(fetcher.fetch([1, 2])) == 2
    assert len(said) == 1


def test_a_fetch_that_is_the_programs_own_gets_the_indices_as_they_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kind = torch.utils.data._utils.fetch._MapDatasetFetcher
    seen: list[Any] = []
    for own in (False, True):
        with monkeypatch.context() as patched:
            if own:
                patched.setattr(kind, "fetch", lambda self, indices: seen.append(type(indices)))
            fetchers = Fetchers()
            fetchers.install()
            fetchers.of_thread.timer = timer = fetch_timer(tmp_path, [])
            monkeypatch.setattr(timer, "ends", lambda batch, t=timer: (seen.append(type(t.indices)), t.fails()))
            kind(TensorDataset(torch.zeros(8)), True, list, False).fetch([1, 2])
            fetchers.remove()
    assert seen == [Stamped, list, list]


class Lazy(Mapping[str, Any]):
    """Makes its items when they are looked at."""

    def __getitem__(self, key: str) -> Any:
        raise AssertionError("looked at")

    def __iter__(self) -> Any:
        raise AssertionError("looked at")

    def __len__(self) -> int:
        return 1


class LazyDict(dict[str, Any]):
    def __getitem__(self, key: str) -> Any:
        raise AssertionError("looked at")

    values = items = __iter__ = __getitem__  # type: ignore[assignment]


class LazyShape:
    @property
    def shape(self) -> Any:
        raise AssertionError("looked at")

    nbytes = shape


class Seen(torch.Tensor):
    @classmethod
    def __torch_function__(cls, *args: Any, **kwargs: Any) -> Any:
        raise AssertionError("looked at")


def test_what_a_batch_would_make_when_it_is_looked_at_is_not_made() -> None:
    seen = torch.zeros(3, 2).as_subclass(Seen)
    for look in (samples_of, bytes_of):
        for batch in (Lazy(), LazyShape(), [Lazy(), LazyShape()]):
            assert look(batch) in (None, NOT_MEASURED, 2)  # type: ignore[operator]
    assert samples_of(LazyDict(x=torch.zeros(5))) == 5
    assert samples_of(UserDict(x=torch.zeros(5))) == 5
    assert (samples_of(seen), bytes_of(seen)) == (3, 24)
