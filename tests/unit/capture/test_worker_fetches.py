"""How a batch's making is timed, in workers and in the training, and what a worker's process uses beside the thread
that makes batches: CPU, CPUs to run on, bytes sent."""

from __future__ import annotations

import os
import pickle
import sys
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import ConcatDataset, DataLoader, Dataset, Subset, TensorDataset, default_collate
from torch.utils.data._utils import worker as torch_worker
from torch.utils.data._utils.fetch import _MapDatasetFetcher as Fetcher

import support.slow_data as slow_data
from support.hooked import KeptBatches, Net, recording
from whyidle.analyse.predict.observed import LEAST_BATCHES
from whyidle.analyse.run.window import MOST_WARMUP_STEPS
from whyidle.capture.hooks.switch import Switch
from whyidle.capture.sampler.start import start_sampler
from whyidle.capture.workers import fetch_timing
from whyidle.capture.workers.counters import ThreadCounters, affinity
from whyidle.capture.workers.fetch_timing import Stamped, file_of, number_of, one_by_one
from whyidle.capture.workers.hook import Fetchers, TrainingFetchTimer, WorkerFetchTimer, WorkerLoop
from whyidle.errors import RecordError
from whyidle.record.reader import RecordFile, Records
from whyidle.record.run import open_run
from whyidle.record.schema import BATCH, CONTENT, NOT_MEASURED
from whyidle.record.segment import RecordWriter

FIELDS = [field.name for field in BATCH.fields[1:]]
PLAIN = TensorDataset(torch.zeros(8))


def test_indices_that_are_no_numbers_are_not_measured() -> None:
    numbers = [number_of(index) for index in (torch.tensor(7), "key", None, (1, 2))]
    assert numbers == [7, NOT_MEASURED, NOT_MEASURED, NOT_MEASURED]


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
    assert all(one_by_one(each) for each in (PLAIN, Subset(PLAIN, [0]), ConcatDataset([PLAIN])))
    at_once = (slow_data.Keyed(), Subset(slow_data.Keyed(), [0]), Subset(Subset(PLAIN, [0]), [0]))
    assert not any(one_by_one(each) for each in at_once)


def fetch_timer(tmp_path: Path, rows: list[Any]) -> WorkerFetchTimer:
    kept: Any = KeptBatches(tmp_path)
    kept.batch = rows.append
    return WorkerFetchTimer(Switch("workers", "nothing is seen", rows.append), kept, False, worker=0)


def test_very_short_batches_are_left_out_and_counted(tmp_path: Path) -> None:
    rows: list[Any] = []
    timer = fetch_timer(tmp_path, rows)
    fetcher = Fetcher(PLAIN, True, default_collate, False)
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
    assert fetcher.collate_fn is default_collate


def test_what_is_timed_of_a_training_whatever_it_costs_is_enough_to_replay_its_loader() -> None:
    """`tune` replays a first stretch, in which none but these may be timed. One is under way when it is copied."""
    assert TrainingFetchTimer.FREE > LEAST_BATCHES + MOST_WARMUP_STEPS


@pytest.mark.parametrize("fails", ["begin", "end"])
def test_an_error_of_ours_switches_the_watch_off_and_leaves_the_fetcher_as_it_was(tmp_path: Path, fails: str) -> None:
    said: list[Any] = []
    timer = fetch_timer(tmp_path, said)
    setattr(timer.counters, fails, lambda: 1 / 0)
    fetcher = Fetcher(PLAIN, True, list, False)
    assert timer.begins(fetcher, [1]) == (fails == "end")
    if fails == "end":
        timer.ends(fetcher.fetch(timer.indices))
    assert not timer.begins(fetcher, [1])
    assert (fetcher.collate_fn, len(fetcher.fetch([1, 2]))) == (list, 2)
    (notice,) = said
    assert "ZeroDivisionError" in notice


def test_a_loop_that_takes_other_arguments_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch_worker, "_worker_loop", lambda dataset, worker_id: None)
    with recording(tmp_path, off=["preparing batches"]) as made:
        said = made.notices
    assert ["takes no index_queue" in notice for notice in said] == [True]


def test_a_pickled_loop_is_torch_s_own_where_whyidle_is_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    loop = WorkerLoop(torch_worker._worker_loop, tmp_path, 0, 4711, loader=2)
    pickled = pickle.dumps(loop)
    revived = pickle.loads(pickled)
    assert isinstance(revived, WorkerLoop)
    assert pickle.dumps(revived) == pickled
    not_recorded = WorkerLoop(torch_worker._worker_loop, tmp_path, 0, 4711, loader=0)
    assert pickle.loads(pickle.dumps(not_recorded)) is torch_worker._worker_loop
    for module in [name for name in sys.modules if name.partition(".")[0] == "whyidle"]:
        monkeypatch.setitem(sys.modules, module, None)
    assert pickle.loads(pickled) is torch_worker._worker_loop


def test_a_loader_within_a_worker_s_dataset_is_not_recorded_twice(tmp_path: Path) -> None:
    rows: list[Any] = []
    timer = fetch_timer(tmp_path, rows)

    class Outer(slow_data.Keyed):
        __getitems__ = None  # type: ignore[assignment]

        def __getitem__(self, index: int) -> torch.Tensor:
            (inner,) = DataLoader(TensorDataset(torch.ones(1)), 1)
            assert not timer.begins(None, [index])
            return inner[0]

    fetcher = Fetcher(Outer(), True, torch.stack, False)
    assert timer.begins(fetcher, [1, 2])
    timer.ends(fetcher.fetch(timer.indices))
    assert len(rows) == 1


def test_a_fetch_that_is_the_programs_own_gets_the_indices_as_they_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[Any] = []
    for own in (False, True):
        with monkeypatch.context() as patched:
            if own:
                patched.setattr(Fetcher, "fetch", lambda self, indices: seen.append(type(indices)))
            fetchers = Fetchers()
            fetchers.install()
            fetchers.of_thread.timer = timer = fetch_timer(tmp_path, [])
            monkeypatch.setattr(timer, "ends", lambda batch, t=timer: (seen.append(type(t.indices)), t.fails()))
            Fetcher(PLAIN, True, list, False).fetch([1, 2])
            fetchers.remove()
    assert seen == [Stamped, list, list]


LARGE = 500_000
MISSING = {NOT_MEASURED}


class Data(Dataset[torch.Tensor]):
    """Samples that take a while to compute, with or without the help of a second thread."""

    def __init__(self, helped: bool = False) -> None:
        self._helped = helped

    def __len__(self) -> int:
        return 24

    def __getitem__(self, index: int) -> torch.Tensor:
        if self._helped:
            helper = threading.Thread(target=slow_data.spin, args=(0.01,))
            helper.start()
            helper.join()
        slow_data.spin(0.005)
        return torch.zeros(3)


def batches(folder: Path, data: Any, workers: int = 1, batch_size: int = 4, **settings: Any) -> Records:
    """What a training records of how its batches were made."""
    net = Net()
    with recording(folder) as made:
        for _ in DataLoader(data, batch_size, num_workers=workers, **settings):
            net.learn(torch.zeros(2, 3))
    assert made.notices == []
    return open_run(made.folder).records(BATCH)


def test_cpu_of_threads_that_help_is_the_processs_and_not_the_threads(tmp_path: Path) -> None:
    alone = batches(tmp_path / "alone", Data())
    helped = batches(tmp_path / "helped", Data(helped=True))
    assert len(alone) == len(helped) == 6
    assert (alone["process_cpu_ns"] >= alone["cpu_ns"]).all()
    # Four helpers of 10 ms each beside four samples of 5 ms; alone, there is what sends the batches.
    assert (alone["process_cpu_ns"] - alone["cpu_ns"] < 20_000_000).all()
    assert (helped["process_cpu_ns"] - helped["cpu_ns"] > 30_000_000).all()


def test_a_training_that_makes_its_batches_itself_says_nothing_of_a_workers_process(tmp_path: Path) -> None:
    made = batches(tmp_path / "run", Data(), workers=0)
    assert len(made) > 0
    assert set(made["process_cpu_ns"]) == set(made["sent_bytes"]) == MISSING
    assert set(made["cpus"]) == {len(os.sched_getaffinity(0))}


def test_where_contents_cannot_be_stored_all_else_of_a_batch_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_: Any, **_slot: Any) -> None:
        raise RecordError("no space left")

    monkeypatch.setattr(fetch_timing, "RecordWriter", fails)
    assert len(batches(tmp_path, PLAIN, workers=0, batch_size=2)) == 4
    assert len(open_run(tmp_path / "run").records(CONTENT)) == 0


def to_the_highest(worker: int) -> None:
    os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})


def test_cpus_are_those_that_the_worker_may_run_on(tmp_path: Path) -> None:
    allowed = os.sched_getaffinity(0)
    free = batches(tmp_path / "free", Data(), workers=2)
    bound = batches(tmp_path / "bound", Data(), workers=2, worker_init_fn=to_the_highest)
    assert (set(free["cpus"]), set(free["first_cpu"])) == ({len(allowed)}, {min(allowed)})
    assert (set(bound["cpus"]), set(bound["first_cpu"])) == ({1}, {max(allowed)})


def test_cpus_are_not_measured_where_the_system_does_not_tell(monkeypatch: Any) -> None:
    monkeypatch.delattr(os, "sched_getaffinity")
    assert affinity() == (NOT_MEASURED, NOT_MEASURED)


def as_array(samples: list[torch.Tensor]) -> np.ndarray[Any, Any]:
    return np.zeros(LARGE, dtype=np.uint8)


def test_batches_that_go_through_the_pipe_are_bytes_sent_and_tensors_are_not(tmp_path: Path) -> None:
    pickled = batches(tmp_path / "pickled", Data(), workers=1, collate_fn=as_array)["sent_bytes"].tolist()
    assert pickled[0] == NOT_MEASURED
    # A batch is sent by a thread of its own: the last may go out after the next one was begun.
    assert 4 * LARGE < sum(pickled[1:]) < 6 * LARGE
    shared = batches(tmp_path / "shared", TensorDataset(torch.zeros(200, 50_000)), batch_size=10)["sent_bytes"]
    assert 0 < shared[1:].max() < LARGE / 100


def test_what_is_recorded_is_not_counted_as_sent(tmp_path: Path) -> None:
    """Records are stored in memory, and the sampler writes them."""
    counters = ThreadCounters(own_process=True)
    with start_sampler(tmp_path, os.getpid()):
        writer = RecordWriter(tmp_path, BATCH, 0, 4711, slot=True)
        before = counters.begin().written_bytes
        for _ in range(1000):
            writer.append(*BATCH.missing())
        written = counters.end().written_bytes - before
        writer.close()
    counters.close()
    assert RecordFile(tmp_path / "batch-0-4711.w0.rec").count() == 1000
    assert written < 1000 * BATCH.record_bytes / 100


def test_bytes_written_are_those_of_the_whole_process() -> None:
    with open(os.devnull, "wb", buffering=0) as sink:
        counters, shared = ThreadCounters(own_process=True), ThreadCounters(own_process=False)
        before = counters.begin().written_bytes
        thread = threading.Thread(target=sink.write, args=(b"x" * 4321,))
        thread.start()
        thread.join()
        assert counters.end().written_bytes - before >= 4321
        assert shared.begin().written_bytes == NOT_MEASURED
        counters.close()
        shared.close()


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
