"""What a worker's process uses beside the thread that makes batches: CPU, CPUs to run on, bytes sent."""

from __future__ import annotations

import os
import threading
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset, TensorDataset

import support.slow_data as slow_data
from whyidle.capture.recording import recording
from whyidle.capture.sampler.start import start_sampler
from whyidle.capture.workers.counters import ThreadCounters, affinity
from whyidle.record.notices import read_notices
from whyidle.record.reader import RecordFile, Records
from whyidle.record.run import open_run
from whyidle.record.schema import BATCH, NOT_MEASURED
from whyidle.record.segment import RecordWriter

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


def batches(folder: Path, data: Any, workers: int = 1, **settings: Any) -> Records:
    """What a training records of how its batches were made."""
    model = torch.nn.Linear(3, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-6)
    with recording(folder, "cpu", sampler=False):
        for _ in DataLoader(data, settings.pop("batch_size", 4), num_workers=workers, **settings):
            model(torch.zeros(2, 3)).sum().backward()
            optimizer.step()
    assert read_notices(folder) == []
    return open_run(folder).records(BATCH)


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
