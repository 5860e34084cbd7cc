"""What happens inside the workers of unchanged loaders, recorded from within them.

Trainings whose workers die end as they would have, and the recording says who died of what.
"""

from __future__ import annotations

import math
import multiprocessing.forkserver
import os
import re
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader, Subset

from support import runs, slow_data, warm
from support.crafted import facts_of_run
from support.hooked import Net
from whyidle.capture.recording import recording
from whyidle.capture.workers import fetch_timing
from whyidle.record.notices import read_notices
from whyidle.record.reader import Records
from whyidle.record.run import open_run
from whyidle.record.schema import BATCH, EVENT, NOT_MEASURED, STEP, EventKind

pytestmark = pytest.mark.usefixtures("nothing_compiled")


def trained(folder: Path, loader: Any, epochs: int = 2) -> tuple[Records, Records]:
    """Steps and batches of a training."""
    net = Net()
    with recording(folder, "cpu", sampler=False):
        for _ in range(epochs):
            for batch in loader:
                net.learn(batch)
        del batch, loader
    run = open_run(folder)
    assert read_notices(folder) == []
    assert run.dropped() == 0
    return run.records(STEP), run.records(BATCH)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "data.bin"
    path.write_bytes(b"x" * 10_000)
    return path


@pytest.fixture(scope="module")
def forkserver() -> Iterator[None]:
    """One of ours alone that has imported torch, which its workers need not do then."""
    server = multiprocessing.forkserver.ForkServer()
    server.set_forkserver_preload(["torch"])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(multiprocessing.forkserver, "connect_to_new_process", server.connect_to_new_process)
        yield
    if server._forkserver_pid is not None:
        # It ends by itself only once every loader's forked workers have gone, which hold its pipe as well:
        # one that an exception's traceback keeps would be waited for without end.
        os.kill(server._forkserver_pid, signal.SIGKILL)
        server._stop()


@pytest.mark.usefixtures("forkserver")
@pytest.mark.parametrize(
    ("start", "kind", "persistent"),
    [
        ("fork", "map", True),
        ("fork", "iterable", False),
        ("forkserver", "map", False),
        *(
            pytest.param(*each, marks=pytest.mark.slow)
            for each in (
                ("fork", "map", False),
                ("fork", "iterable", True),
                ("forkserver", "map", True),
                ("forkserver", "iterable", True),
                ("forkserver", "iterable", False),
                # Unpickles as a forkserver's does, and imports torch as well, each time that it is started.
                ("spawn", "map", True),
            )
        ),
    ],
)
def test_every_step_finds_the_batch_that_a_worker_made(
    tmp_path: Path, file: Path, start: str, kind: str, persistent: bool
) -> None:
    data: Any = slow_data.Planted(file, 24) if kind == "map" else slow_data.Stream(24)
    workers = 2 if start == "fork" else 1
    loader = DataLoader(
        data, 4, num_workers=workers, multiprocessing_context=start, persistent_workers=persistent, drop_last=True
    )
    steps, batches = trained(tmp_path / "run", loader)
    assert len(steps) == len(batches) == 12
    pairs = [(b["loader"], b["batch"]) for b in batches]
    assert sorted(pairs) == sorted((s["loader"], s["batch"]) for s in steps)
    assert len(set(pairs)) == 12
    assert len({loader for loader, _ in pairs}) == (1 if persistent else 2)
    assert set(batches["samples"]) == {4}
    assert set(batches["training"]) == {os.getpid()}
    assert set(batches["worker"]) == set(range(workers))
    assert set(batches["batch_bytes"]) == {4 * 3 * 4}
    arrived = {(s["loader"], s["batch"]): s["fetch_end_ns"] for s in steps}
    for batch in batches:
        assert batch["begin_ns"] < batch["end_ns"] < arrived[batch["loader"], batch["batch"]]
        assert batch["cpu_ns"] > 0
        assert 0 <= batch["collate_ns"] <= batch["end_ns"] - batch["begin_ns"]


def test_a_loader_that_keeps_no_order_still_says_what_its_workers_do(tmp_path: Path, file: Path) -> None:
    loader = DataLoader(slow_data.Planted(file, 160, transform_s=0.001), 4, num_workers=2, in_order=False)
    steps, batches = trained(tmp_path / "run", loader, epochs=1)
    assert set(steps["loader"]) == set(batches["loader"])
    assert set(steps["batch"]) == {NOT_MEASURED}
    facts = facts_of_run(tmp_path / "run")
    assert facts.loader.workers == 2
    assert facts.loader.worker_busy_pct >= 0
    assert math.isnan(facts.handoff_pct)
    assert math.isnan(facts.blocked_pct)


def test_batches_made_in_the_training_itself_have_their_step(tmp_path: Path, file: Path) -> None:
    loader = DataLoader(slow_data.Planted(file, 24), 4)
    checking = DataLoader(slow_data.Planted(file, 8), 2)
    net = Net()
    with recording(tmp_path / "run", "cpu", sampler=False):
        for _ in checking:
            pass  # before the training, as a sanity check
        for _ in range(2):
            for batch in loader:
                net.learn(batch)
            with torch.no_grad():
                for _ in checking:
                    pass
    batches = open_run(tmp_path / "run").records(BATCH)
    assert batches["step"].tolist() == list(range(12))
    assert set(batches["samples"]) == {4}
    assert set(batches["loader"]) == {NOT_MEASURED}


def test_planted_costs_are_found_where_they_are(tmp_path: Path, file: Path) -> None:
    data = slow_data.Planted(file, 80, read_s=0.004, transform_s=0.002)
    slow_one_last = [*(index for index in range(80) if index != 13), 13]
    loading = DataLoader(data, 4, sampler=slow_one_last, num_workers=1, collate_fn=_collating)
    steps, batches = trained(tmp_path / "run", loading, epochs=1)
    assert len(steps) == 20
    # Of each batch at least: 16 ms in reads, 8 of the CPU in the transform, and as much in collating.
    assert np.median(batches["read_ns"]) > 0.5 * 16e6
    assert (batches["collate_ns"] >= 8e6).all()
    assert (batches["cpu_ns"] >= 16e6).all()
    facts = facts_of_run(tmp_path / "run")
    loader = facts.loader
    shares = loader.read_pct, loader.prep_pct, loader.collate_pct
    assert all(share is not None and share > 0 for share in shares)
    assert sum(share or 0 for share in shares) == pytest.approx(100, abs=0.1)
    assert 10_000 <= loader.read_chars_bytes_per_sample < 15_000
    assert (loader.slowest[0].index, loader.slowest[0].file) == (13, f"{tmp_path}/thirteen.jpg")
    (transform,) = loader.transforms
    assert transform.name == "Spin"
    assert transform.ms_per_call >= 2


def _collating(samples: list[torch.Tensor]) -> torch.Tensor:
    slow_data.spin(0.008)
    return torch.stack(samples)


def test_a_subset_names_the_sample_by_its_own_index_and_the_file_by_the_dataset_s(tmp_path: Path, file: Path) -> None:
    data = slow_data.Planted(file, 32, transform_s=0.001)
    # The slow one, which is 13 of the dataset, comes last: 31 of the subset.
    subset = Subset(data, [*(index for index in range(32) if index != 13), 13])
    trained(tmp_path / "run", DataLoader(subset, 4, num_workers=1), epochs=1)
    facts = facts_of_run(tmp_path / "run")
    assert (facts.loader.slowest[0].index, facts.loader.slowest[0].file) == (31, f"{tmp_path}/thirteen.jpg")


def test_workers_started_again_and_again_leave_as_many_files_as_run_at_a_time(tmp_path: Path, file: Path) -> None:
    data = slow_data.Planted(file, 4)
    net = Net()
    with recording(tmp_path / "run", "cpu", sampler=False):
        for _ in range(6):
            for batch in DataLoader(data, 2, num_workers=2):
                net.learn(batch)
    assert len(list((tmp_path / "run").glob("batch-*.w*.rec"))) <= 4
    batches = open_run(tmp_path / "run").records(BATCH)
    assert len({(b["loader"], b["batch"]) for b in batches}) == len(batches) == 12


def test_a_failing_hook_delivers_the_batch_and_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: Any) -> int:
        raise RuntimeError("ours")

    # Which forked workers inherit alone.
    monkeypatch.setattr(fetch_timing, "bytes_of", broken)
    net, seen = Net(), []
    with recording(tmp_path / "run", "cpu", sampler=False):
        for batch in DataLoader(slow_data.Keyed(), 4, num_workers=2, multiprocessing_context="fork"):
            seen.append(batch.shape)
            net.learn(batch)
    assert seen == [(4, 3)] * 4
    (notice,) = read_notices(tmp_path / "run")
    assert "workers" in notice
    assert "RuntimeError: ours" in notice


@pytest.mark.slow
def test_a_worker_without_whyidle_runs_torch_s_own_loop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "whyidle").mkdir()
    asked = tmp_path / "asked"
    missing = f"open({str(asked)!r}, 'w').close()\nraise ModuleNotFoundError(__name__)\n"
    (tmp_path / "whyidle" / "__init__.py").write_text(missing)
    # The worker looks for modules where this process does.
    monkeypatch.syspath_prepend(tmp_path)
    with recording(tmp_path / "run", "cpu", sampler=False):
        loader = DataLoader(slow_data.Keyed(), 4, num_workers=1, multiprocessing_context="spawn")
        assert [tuple(batch.shape) for batch in loader] == [(4, 3)] * 4
    assert asked.exists()
    assert "Traceback" not in capfd.readouterr().err
    assert list((tmp_path / "run").glob("batch-*.w*.rec")) == []


ENDLESS = """
import sys, time
sys.path.insert(0, sys.argv[1])
import slow_data
from torch.utils.data import DataLoader
from whyidle.capture.recording import recording
with recording(sys.argv[2], "cpu", sampler=False):
    it = iter(DataLoader(slow_data.Keyed(), 4, num_workers=1))
    next(it); next(it); print("ready", flush=True)
    time.sleep(600)
"""


def test_a_terminated_training_leaves_the_workers_records(tmp_path: Path) -> None:
    arguments = ["-c", ENDLESS, str(Path(slow_data.__file__).parent), str(tmp_path / "run")]
    ours, theirs = os.pipe()
    with open(ours) as said, open(os.devnull) as nothing:
        process = warm.Process("trainings", "program", arguments, (nothing.fileno(), theirs, sys.__stderr__.fileno()))
        os.close(theirs)
        try:
            assert said.readline() == "ready\n"
        finally:
            process.send_signal(signal.SIGKILL)
        assert process.wait() == -signal.SIGKILL
    assert len(open_run(tmp_path / "run").records(BATCH)) >= 2


PROGRAM = runs.WITHOUT_COMPILER + (Path(__file__).parent / "programs" / "dying_worker.py").read_text()
# Torch finds it by a signal or by a look, whichever is first.
ERROR = re.compile(r"^RuntimeError: DataLoader worker \(pid(?:\(s\))? (\d+)\) .*$", re.MULTILINE)


@pytest.mark.parametrize(("number", "code", "name"), [(signal.SIGKILL, -9, "SIGKILL"), (0, 3, None)])
def test_a_worker_that_dies_is_told_with_what_it_died_of(
    tmp_path: Path, number: int, code: int, name: str | None
) -> None:
    folder, program = tmp_path / "run", tmp_path / "train.py"
    program.write_text(PROGRAM)
    ended, bare = warm.run(folder, sys.executable, program, str(int(number))), warm.bare(program, str(int(number)))
    assert ended.returncode == bare.returncode == 1
    mine, theirs = (ERROR.search(each.stderr) for each in (ended, bare))
    assert theirs is not None
    traceback = ended.stderr[: mine.end()]
    assert "whyidle" not in traceback
    assert "profiler/capture" not in traceback

    events = open_run(folder).records(EVENT)
    assert events["value"][events["what"] == EventKind.WORKER_DIED].tolist() == [code]
    (told,) = events["value"][events["what"] == EventKind.DIED_WORKER].tolist()
    assert told & 0xFFFF_FFFF == int(mine.group(1))
    assert told >> 32 in (1, 2)

    (death,) = runs.report(folder)["worker_deaths"]
    assert (death["pid"], death["exit_code"], death["signal"]) == (int(mine.group(1)), code, name)
    assert death["worker"] == (told >> 32) - 1
    assert death["likely"]
    assert death["way_out"]


def test_a_training_that_goes_on_without_its_worker_does_so(tmp_path: Path) -> None:
    """A program that catches the error finds the same as without us, and the death is recorded once."""
    program = tmp_path / "goes_on.py"
    caught = '    try:\n        main()\n    except RuntimeError:\n        print("went on")\n'
    program.write_text(PROGRAM.replace("    main()\n", caught))
    ended, bare = warm.run(tmp_path / "run", sys.executable, program, "9"), warm.bare(program, "9")
    assert (ended.returncode, bare.returncode) == (0, 0)
    assert bare.stdout == "went on\n"
    assert "went on\n" in ended.stdout
    events = open_run(tmp_path / "run").records(EVENT)
    assert events["value"][events["what"] == EventKind.WORKER_DIED].tolist() == [-9]
