"""What the sampler reads of the host, from a /proc made up for the purpose."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from whyidle.capture.sampler.host import PSS_FIRST_NS, PSS_PERIOD_NS, Host
from whyidle.capture.sampler.procfs import (
    PAGE_BYTES,
    TICK_NS,
    MachineCpu,
    parse_machine_cpu,
    parse_pairs,
    parse_pressure,
    parse_schedstat,
    parse_stat,
)
from whyidle.record.schema import HOST

S = 1_000_000_000
OURS = os.getpid()


class FakeRoot:
    """A root folder with a /proc whose processes come, change and go."""

    def __init__(self, root: Path, children_files: bool = True) -> None:
        self.root = root
        self.proc = root / "proc"
        self.proc.mkdir()
        self.children_files = children_files

    def process(
        self,
        pid: int,
        parent: int = 1,
        *,
        cpu: int = 0,
        state: str = "S",
        started: int = 5,
        name: str = "python",
        rss: int = 1,
        faults: tuple[int, int] = (0, 0),
        io: tuple[int, int] | None = (0, 0),
        pss: int | None = None,
        waits: dict[int, int] | None = None,
        children: dict[int, str] | None = None,
    ) -> None:
        """Write all files of one process; `cpu` in ticks, `rss` in pages, `pss` in kB, `waits` by thread."""
        folder = self.proc / str(pid)
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        waits = {pid: 0} if waits is None else waits
        fields = [state, str(parent)] + ["0"] * 48
        fields[7], fields[9] = str(faults[0]), str(faults[1])
        fields[11], fields[12] = str(cpu - cpu // 3), str(cpu // 3)
        fields[17], fields[19], fields[21] = str(len(waits)), str(started), str(rss)
        (folder / "stat").write_text(f"{pid} ({name}) {' '.join(fields)}\n")
        if io is not None:
            (folder / "io").write_text(f"rchar: {io[0]}\nwchar: 9\nread_bytes: {io[1]}\nwrite_bytes: 8\n")
        if pss is not None:
            (folder / "smaps_rollup").write_text(f"0-f ---p 0 00:00 0 [rollup]\nRss: 99 kB\nPss: {pss} kB\n")
        for thread, wait in waits.items():
            task = folder / "task" / str(thread)
            task.mkdir(parents=True)
            (task / "schedstat").write_text(f"123 {wait} 7\n")
            if self.children_files:
                (task / "children").write_text((children or {}).get(thread, ""))

    def are(self, processes: dict[int, dict[str, Any]]) -> None:
        """Let these be all the processes there are."""
        for folder in self.proc.glob("[0-9]*"):
            shutil.rmtree(folder)
        for pid, said in processes.items():
            self.process(pid, **said)

    def machine(self, cpu: str, **files: str) -> None:
        (self.proc / "stat").write_text(f"cpu  {cpu}\ncpu0 1 2 3\nintr 5\n")
        for name, text in files.items():
            path = self.proc / name.replace("__", "/")
            path.parent.mkdir(exist_ok=True)
            path.write_text(text)


@pytest.fixture
def fake(tmp_path: Path) -> FakeRoot:
    return FakeRoot(tmp_path)


def sample(host: Host, now_ns: int, last: bool = False) -> dict[str, float | None]:
    """A HOST record by name, with `None` for what was not measured."""
    return dict.fromkeys(field.name for field in HOST.fields) | HOST.measured(host.sample(now_ns, 11, last))


def counted(cpu: int, processes: int, **others: float | None) -> dict[str, float | None]:
    """Fields of a tree with so many ticks and processes."""
    return {"tree_cpu_ns": cpu * TICK_NS, "tree_processes": processes, **others}


ALONE = {10: {"cpu": 100, "children": {10: "20"}, "waits": {10: 1}}}
CHILD = {20: {"parent": 10, "cpu": 50, "io": (500, 40), "faults": (3, 2), "waits": {20: 10}}}
READ = {"read_chars_bytes": 500, "read_storage_bytes": 40, "minor_faults": 3, "major_faults": 2}
NOTHING = dict.fromkeys(("tree_cpu_ns", "tree_rss_bytes", "main_cpu_ns", "read_chars_bytes", "run_queue_ns", "cpus"))


@pytest.mark.parametrize(
    ("looks", "seen"),
    [
        # Children of any thread, and theirs; a name may hold anything.
        *(
            (
                [
                    {
                        10: {"name": name, "cpu": 100, "waits": {10: 5, 11: 7}, "children": {10: "20", 11: "21 "}},
                        20: {"parent": 10, "cpu": 30, "waits": {20: 1}, "children": {20: "30"}, "rss": 2},
                        21: {"parent": 10, "cpu": 4, "io": (50, 6), "faults": (8, 9)},
                        30: {"parent": 20, "cpu": 2, "io": (1000, 60), "faults": (10, 1), "waits": {30: 2}},
                        99: {"cpu": 10_000},
                    }
                ],
                counted(136, 4, main_cpu_ns=100 * TICK_NS, run_queue_ns=15, tree_rss_bytes=5 * PAGE_BYTES)
                | {"read_chars_bytes": 1050, "read_storage_bytes": 66, "minor_faults": 18, "major_faults": 10}
                | {"t_ns": 0, "late_ns": 11},
            )
            for name in ("python", "a b", "x) S 1 (y", "((", ")")
        ),
        # Counters do not fall when a member ends.
        ([ALONE | CHILD, {10: {"cpu": 101, "waits": {10: 2}}}], counted(151, 1, run_queue_ns=12, **READ)),
        # A child whose parent has ended stays, and so do its own.
        (
            [
                {10: {"cpu": 5, "children": {10: "20"}}, 20: {"parent": 10, "cpu": 5}},
                {20: {"cpu": 25, "children": {20: "30"}}, 30: {"parent": 20, "cpu": 2}},
            ],
            counted(32, 2, main_cpu_ns=5 * TICK_NS),
        ),
        # A zombie counts its time and is no process.
        (
            [ALONE | CHILD, ALONE | {20: {"parent": 10, "cpu": 53, "state": "Z", "io": None}}],
            counted(153, 1, read_chars_bytes=500),
        ),
        # A number given to another process is none of a member.
        *(
            ([{10: {"cpu": 7}}, *[{10: {"cpu": 5000, "started": 6}}] * more], counted(7, 0, main_cpu_ns=7 * TICK_NS))
            for more in (1, 3)
        ),
        # Before the training appears nothing of it is zero.
        ([{}], NOTHING),
        ([{}, {10: {"cpu": 3}}], counted(3, 1)),
        # The sampler is no part of the tree.
        (
            [{10: {"cpu": 1, "children": {10: f"{os.getpid()}"}}, os.getpid(): {"parent": 10, "cpu": 500}}],
            counted(1, 1),
        ),
    ],
)
def test_the_tree_is_the_training_and_all_that_descends_from_it(
    fake: FakeRoot, looks: list[dict[int, dict[str, Any]]], seen: dict[str, float | None]
) -> None:
    host = Host(10, 0, fake.root)
    for number, processes in enumerate(looks):
        fake.are(processes)
        values = sample(host, number * S)
    assert seen.items() <= values.items()


def test_kernels_that_do_not_list_children_are_searched_by_parent(tmp_path: Path) -> None:
    fake = FakeRoot(tmp_path, children_files=False)
    fake.are({10: {"cpu": 1}, 30: {"parent": 20, "cpu": 4}, 20: {"parent": 10, "cpu": 2}, 99: {"cpu": 100}})
    assert sample(Host(10, 0, fake.root), 0)["tree_cpu_ns"] == 7 * TICK_NS


def test_the_first_thread_of_the_training_is_told_apart_from_all_others(fake: FakeRoot) -> None:
    fake.process(10, waits={10: 40, 11: 7, 12: 1}, children={11: "20"})
    fake.process(20, 10, waits={20: 500, 21: 3})
    host = Host(10, 0, fake.root)
    values = sample(host, 0)
    assert (values["main_thread_queue_ns"], values["run_queue_ns"]) == (40, 551)
    fake.process(10, waits={10: 90})
    # Threads are scanned seldom, and at the end.
    between = sample(host, S // 5)
    assert (between["main_thread_queue_ns"], between["run_queue_ns"]) == (None, None)
    assert sample(host, S // 5, last=True)["main_thread_queue_ns"] == 90
    assert sample(host, 11 * S)["main_thread_queue_ns"] == 90
    fake.process(10, state="Z", waits={10: 90}, io=None)
    sample(host, 12 * S)
    fake.are({})
    assert sample(host, 23 * S)["main_thread_queue_ns"] == 90


def test_missing_files_are_not_measured_rather_than_zero(fake: FakeRoot) -> None:
    fake.process(10, cpu=1, io=None)
    shutil.rmtree(fake.proc / "10" / "task")
    values = sample(Host(10, 0, fake.root), 0)
    missing = "machine_busy_pct steal_pct run_queue_ns read_chars_bytes read_storage_bytes memory_pressure_us"
    missing += " throttled_us shm_used_bytes memory_available_bytes"
    assert {name for name, value in values.items() if value is None} >= set(missing.split())
    assert values["tree_cpu_ns"] == TICK_NS


def test_machine_shares_are_those_between_two_looks(fake: FakeRoot) -> None:
    files = {
        "meminfo": "MemTotal: 100 kB\nMemAvailable:   40 kB\n",
        "pressure__memory": "some avg10=0.23 avg60=0.45 avg300=0.25 total=5149651\nfull avg10=0.00 total=3\n",
    }
    fake.machine("100 10 50 1000 40 5 5 20 90 0", **files)
    host = Host(10, 0, fake.root)
    first = sample(host, 0)
    assert (first["machine_busy_pct"], first["machine_iowait_pct"], first["steal_pct"]) == (None, None, None)
    assert first["memory_available_bytes"] == 40 * 1024
    assert first["memory_pressure_us"] == 5149651
    # 100 ticks passed: 30 busy, 20 iowait, 5 stolen, 45 idle.
    fake.machine("120 12 55 1045 60 7 6 25 95 0", **files)
    second = sample(host, S)
    assert (second["machine_busy_pct"], second["machine_iowait_pct"], second["steal_pct"]) == (30, 20, 5)


def test_limits_come_from_the_training_process(fake: FakeRoot, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []

    def affinity(pid: int) -> set[int]:
        asked.append(pid)
        return {0, 1, 2}

    monkeypatch.setattr(os, "sched_getaffinity", affinity)
    fake.process(10)
    (fake.proc / "10" / "cgroup").write_text("0::/job\n")
    (fake.proc / "self").mkdir()
    (fake.proc / "self" / "mountinfo").write_text("31 23 0:28 / /cg rw - cgroup2 cgroup2 rw\n")
    job = fake.root / "cg" / "job"
    job.mkdir(parents=True)
    (job / "cpu.max").write_text("250000 100000\n")
    (job / "cpu.stat").write_text("usage_usec 9\nnr_periods 4\nnr_throttled 3\nthrottled_usec 7000\n")
    (fake.root / "cg" / "cpu.stat").write_text("usage_usec 9\n")
    host = Host(10, 0, fake.root)
    values = sample(host, 0)
    assert (values["cpus"], values["throttled_us"], values["throttled_periods"]) == (2500, 7000, 3)
    assert set(asked) == {10}
    # Put into another group after it has started.
    (fake.proc / "10" / "cgroup").write_text("0::/other\n")
    assert sample(host, S)["cpus"] == 3000


def test_pss_is_summed_over_the_tree_one_process_a_look_and_is_not_where_one_refuses(fake: FakeRoot) -> None:
    fake.are({10: {"pss": 100, "children": {10: "20 21"}}, 20: {"parent": 10, "pss": 30}, 21: {"parent": 10, "pss": 4}})
    host = Host(10, 0, fake.root)
    looks = [0, PSS_FIRST_NS, PSS_FIRST_NS + S, PSS_FIRST_NS + 2 * S, PSS_FIRST_NS + 3 * S]
    assert [sample(host, now)["tree_pss_bytes"] for now in looks] == [None, None, None, 134 * 1024, None]
    fake.process(20, 10)
    late = 2 * PSS_PERIOD_NS
    assert [sample(host, late + i)["tree_pss_bytes"] for i in range(4)] == [None] * 4
    fake.process(20, 10, pss=1)
    assert [sample(host, 2 * late + i)["tree_pss_bytes"] for i in range(3)] == [None, None, 105 * 1024]


@pytest.mark.parametrize("text", [None, b"", b"7 (python) S 1 2", b"7 (python) S x" + b" y" * 50])
def test_a_torn_stat_is_none(text: bytes | None) -> None:
    assert parse_stat(text) is None


TICKS = st.integers(0, 10**6)


@given(st.tuples(*[TICKS] * 4), st.tuples(*[TICKS] * 4))
def test_shares_of_cpu_are_percentages(one: tuple[int, ...], two: tuple[int, ...]) -> None:
    before = MachineCpu(one[0], one[1], one[2], sum(one))
    after = MachineCpu(two[0], two[1], two[2], sum(two))
    shares = after.shares_since(before)
    if sum(two) <= sum(one):
        assert shares is None
    else:
        assert shares is not None
        assert all(0 <= share <= 100 for share in shares)


def test_parsers_of_foreign_text_return_nothing() -> None:
    assert parse_machine_cpu(b"cpu 1 2 3\n") is None
    assert parse_machine_cpu(None) is None
    assert parse_pressure(b"full avg10=0.00 total=3\n") is None
    assert parse_schedstat(b"") == parse_schedstat(b"garbled 7") == (None, None)
    assert parse_pairs(b"Pss:  12 kB\nName:\tx\nthrottled_usec 5\n") == {b"Pss": 12, b"throttled_usec": 5}
