"""The run folder: its run.json, versions, damage; small files; stacks and names, which come back whoever names them."""

from __future__ import annotations

import json
import os
import stat
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from whyidle import __version__
from whyidle.errors import RecordError
from whyidle.record import stacks
from whyidle.record.comparison import COMPARISON_JSON, CellRecord, is_comparison, read_comparison, write_comparison
from whyidle.record.files import plain, read_json, replacing, write_text
from whyidle.record.run import (
    DEVICES,
    STATES,
    ProcessStates,
    SampledDevice,
    create_run,
    open_run,
    read_states,
    sampled_devices,
    update_run,
    write_states,
)
from whyidle.record.schema import KINDS, NOT_MEASURED, STEP
from whyidle.record.segment import RecordWriter
from whyidle.record.stacks import LONGEST_NAME, NAMES, STACKS, Call, Names, StackNames, read_names, read_stacks
from whyidle.record.tuning import WITHOUT_MEMORY


def test_a_new_run_says_what_its_records_mean_and_updates_keep_it(tmp_path: Path) -> None:
    folder = create_run(tmp_path / "run", {"device": {"kind": "cpu"}})
    before = open_run(folder).info
    assert (before["device"], before["ended"], set(before["fields"])) == ({"kind": "cpu"}, None, set(KINDS))
    units = {name: unit for name, _type, unit, _meaning in before["fields"]["step"]}
    assert [units[name] for name in ("fetch_begin_ns", "copy_bytes", "samples")] == ["ns", "bytes", "count"]
    assert update_run(folder, {"ended": {"status": "ok"}})
    assert open_run(folder).info == before | {"ended": {"status": "ok"}}
    assert [path.name for path in folder.iterdir()] == ["run.json"]
    assert not update_run(tmp_path / "gone", {"ended": {}})
    with pytest.raises(RecordError, match="already holds a run"):
        create_run(folder, {})


def test_a_folder_without_run_and_an_unknown_version_are_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(RecordError, match=r"is not a run folder: it has no run\.json"):
        open_run(tmp_path)
    create_run(tmp_path / "run", {"version": 1})
    for text, said in (
        (None, rf"run format 1; .*reads format 2. Read it with the version that recorded it: {__version__}\.$"),
        ('{"format": "other"}', "is not a whyidle run"),
        ('{"form', "cannot read"),
        ("[" * 200_000, "cannot read"),
    ):
        if text is not None:
            (tmp_path / "run" / "run.json").write_text(text)
        with pytest.raises(RecordError, match=said):
            open_run(tmp_path / "run")
    create_run(tmp_path / "named", {"device": {"title": "\x1b[2Jevil\x07 µ"}})
    assert open_run(tmp_path / "named").info["device"]["title"] == "?[2Jevil? µ"


def test_a_damaged_file_is_told_and_the_others_are_read(tmp_path: Path) -> None:
    folder = create_run(tmp_path / "run", {})
    writer = RecordWriter(folder, STEP)
    writer.append(*STEP.missing())
    writer.close()
    (folder / "step-9-1.rec").write_bytes(b"rubbish")
    run = open_run(folder)
    assert [len(run.records(STEP)) for _ in range(2)] == [1, 1]
    (damaged,) = run.damaged
    assert "step-9-1.rec is not a whyidle record file" in damaged


def test_what_describes_no_device_is_left_out_and_no_process_damage(tmp_path: Path) -> None:
    assert sampled_devices(tmp_path) is None
    listed = '{"number": "1"}, {"number": 2, "name": 7}, {"number": 3, "power_limit_mw": -1}, 7'
    (tmp_path / DEVICES).write_text(f'{{"devices": [{{"number": 0, "name": "GPU", "more": 1}}, {listed}]}}')
    assert sampled_devices(tmp_path) == (SampledDevice(0, "GPU"),)
    process = ProcessStates(7, 1, "python", states={"R": 3})
    write_states(tmp_path, [process])
    assert read_states(tmp_path) == [process]
    (tmp_path / STATES).write_text('{"processes": [{"pid": 1}]}')
    with pytest.raises(RecordError, match="describes no processes"):
        read_states(tmp_path)


def test_a_comparison_comes_back_as_written(tmp_path: Path) -> None:
    cells = [CellRecord("naive", 8, "ok", None, ("naive-b8-r0",)), CellRecord("caffe", 8, "oom", "too big", ())]
    assert not is_comparison(tmp_path)
    write_comparison(tmp_path, {"net": "ssd300"}, cells)
    assert is_comparison(tmp_path)
    assert read_comparison(tmp_path) == ({"net": "ssd300"}, cells)
    path = tmp_path / COMPARISON_JSON
    path.write_text(json.dumps(json.loads(path.read_text()) | {"version": 9}))
    with pytest.raises(RecordError, match="version 9; this whyidle reads version 1"):
        read_comparison(tmp_path)
    for name in ("../elsewhere", "/elsewhere", "..", "", "a/b", 3):
        # It names only runs beside it.
        cell = {"pipeline": "naive", "batch_size": 8, "status": "ok", "error": None, "runs": [name]}
        path.write_text(json.dumps({"format": "whyidle-comparison", "version": 1, "setting": {}, "cells": [cell]}))
        with pytest.raises(RecordError, match="not a readable comparison"):
            read_comparison(tmp_path)


OUT_OF_MEMORY = (
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB",
    "RuntimeError: [enforce fail at alloc_cpu.cpp:117] DefaultCPUAllocator: can't allocate memory",
    "OSError: [Errno 12] Cannot allocate memory",
    "RuntimeError: unable to mmap 4096 bytes from file </torch_1_2_3>",
    "RuntimeError: unable to write to file </torch_7_8_9>: No space left on device (28)",
    "RuntimeError: DataLoader worker (pid 5) is killed by signal: Bus error. It is possible ...",
    "ValueError: no more (worker 5 was ended by signal: Killed)",
    "RuntimeError: CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`",
)


def test_what_lacked_memory_is_known_by_what_it_says() -> None:
    assert [said for said in OUT_OF_MEMORY if not WITHOUT_MEMORY.search(said)] == []
    assert not WITHOUT_MEMORY.search("OSError: [Errno 28] No space left on device: 'log.txt'")


def test_json_of_the_earlier_name_reads_as_todays_wherever_it_stands(tmp_path: Path) -> None:
    result = {"format": "stallscope-tune", "version": 1, "binding_constraint": "stallscope"}
    (tmp_path / "tune.json").write_text(json.dumps({"format": "stallscope-tuning", "result": result}))
    assert read_json(tmp_path / "tune.json") == {
        "format": "whyidle-tuning",
        "result": result | {"format": "whyidle-tune"},
    }
    (tmp_path / "other.json").write_text('{"format": "stallscoped", "stallscope": [{"format": 1}]}')
    assert read_json(tmp_path / "other.json") == {"format": "stallscoped", "stallscope": [{"format": 1}]}


def test_what_goes_wrong_midway_leaves_the_old_file(tmp_path: Path) -> None:
    target = tmp_path / "kept"
    target.write_text("old")
    with pytest.raises(ValueError, match="midway"), replacing(target) as draft:
        draft.write(b"half")
        raise ValueError("midway")
    assert target.read_text() == "old"
    assert list(tmp_path.iterdir()) == [target]


def test_a_pipe_is_written_to_and_stays_one_and_only_a_link_that_the_user_named_is_written_through(
    tmp_path: Path,
) -> None:
    """As /dev/null must, which root could replace by a file."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    try:
        write_text(pipe, "through", named=True)
        assert os.read(reader, 100) == b"through"
    finally:
        os.close(reader)
    assert stat.S_ISFIFO(pipe.stat().st_mode)
    real, link = tmp_path / "real", tmp_path / "link"
    link.symlink_to(real)
    for named in (True, False):
        real.write_text("old")
        write_text(link, "new", named)
        assert (link.read_text(), link.is_symlink(), real.read_text()) == ("new", named, "new" if named else "old")


def test_a_draft_is_not_written_through_what_was_put_in_its_place(tmp_path: Path) -> None:
    victim, target = tmp_path / "victim", tmp_path / "run.json"
    victim.write_text("precious")
    (tmp_path / f".run.json.{os.getpid()}").symlink_to(victim)
    write_text(target, "{}")
    assert victim.read_text() == "precious"
    assert (target.is_symlink(), target.read_text()) == (False, "{}")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["run.json", "victim"]


def test_texts_can_be_shown_and_written() -> None:
    hostile = "a\x1b[31m\udce9\u202eb\tc\nd é \N{GRINNING FACE}"
    assert plain([{hostile: hostile}]) == [{plain(hostile): "a?[31m??b\tc\nd é \N{GRINNING FACE}"}]
    plain(hostile).encode()


MAIN = Call("<module>", "/home/u/train.py", 40, "main()")
LOOP = Call("main", "/home/u/train.py", 31, "for x, y in loader:")
ITEM = Call("Shards.__getitem__", "/home/u/data.py", 27, "with zipfile.ZipFile(self.path) as z:")

calls = st.builds(
    Call,
    function=st.text(st.characters(exclude_categories=("C", "Z")), max_size=20),
    file=st.text(st.characters(exclude_categories=("C", "Z")), max_size=20),
    line=st.integers(0, 2**31 - 1),
)


@given(told=st.lists(st.lists(calls, min_size=1, max_size=8), min_size=1, max_size=20))
def test_every_stack_comes_back_by_its_number(tmp_path_factory: object, told: list[list[Call]]) -> None:
    folder = tmp_path_factory.mktemp("run")
    names = StackNames(folder)
    numbers = [names.number(stack) for stack in told]
    # Processes that never meet give a stack the same number.
    assert [StackNames(folder).number(stack) for stack in told] == numbers
    table = read_stacks(folder)
    assert [table.stack(number) for number in numbers] == [tuple(stack) for stack in told]


def test_the_line_of_source_is_looked_up_once_and_kept(tmp_path: Path) -> None:
    asked: list[tuple[str, int]] = []

    def source(file: str, line: int) -> str:
        asked.append((file, line))
        return f"line {line}"

    names = StackNames(tmp_path, source)
    bare = Call("main", "/home/u/train.py", 31)
    numbers = [names.number([bare]) for _ in range(3)]
    assert asked == [("/home/u/train.py", 31)]
    assert read_stacks(tmp_path).stack(numbers[-1])[0].text == "line 31"
    assert len((tmp_path / STACKS).read_text().splitlines()) == 1
    number = names.number([Call("f\x1b[31m", "/home/\x07u.py", 3, "x = '\x1b[0m'")])
    (call,) = read_stacks(tmp_path).stack(number)
    assert not {"\x1b", "\x07"} & set(call.function + call.text + call.file)


@given(cut=st.integers(0, 2000), noise=st.binary(max_size=60))
def test_of_a_torn_file_the_whole_lines_are_read(tmp_path_factory: object, cut: int, noise: bytes) -> None:
    folder = tmp_path_factory.mktemp("run")
    names = StackNames(folder)
    numbers = [names.number([MAIN, Call("f", "/home/u/f.py", line)]) for line in range(10)]
    path = folder / STACKS
    whole = path.read_bytes()
    path.write_bytes(whole[:cut] + noise)
    table = read_stacks(folder)
    kept = whole[:cut].count(b"\n")
    for place, number in enumerate(numbers):
        if place + 2 <= kept:
            assert table.stack(number) == (MAIN, Call("f", "/home/u/f.py", place))


def test_a_damaged_table_that_goes_in_circles_ends(tmp_path: Path) -> None:
    (tmp_path / STACKS).write_text('{"call": 7, "from": 7, "function": "f", "file": "/f.py", "line": 1}\n')
    assert len(read_stacks(tmp_path).stack(7)) == stacks.MOST_DEPTH


def test_where_nothing_can_be_written_or_too_much_was_a_stack_has_no_number(tmp_path: Path) -> None:
    names = StackNames(tmp_path / "gone")
    assert names.number([MAIN]) == NOT_MEASURED
    assert read_stacks(tmp_path / "gone").stack(NOT_MEASURED) == ()
    (tmp_path / STACKS).write_bytes(b"\n" * stacks.MOST_BYTES)
    assert StackNames(tmp_path).number([MAIN]) == NOT_MEASURED


def test_names_are_the_same_for_all_writers_and_written_once(tmp_path: Path) -> None:
    one, two = Names(tmp_path), Names(tmp_path)
    number = one.number("Resize")
    assert [two.number("Resize"), one.number("Resize")] == [number] * 2
    other = two.number("Normalise")
    assert read_names(tmp_path) == {number: "Resize", other: "Normalise"}
    assert len((tmp_path / NAMES).read_text().splitlines()) == 2
    assert Names(tmp_path / "missing").number("Resize") == NOT_MEASURED


def test_names_cannot_harm_whoever_reads_them(tmp_path: Path) -> None:
    number = Names(tmp_path).number("a\tb\n\x1b[2Jc" + "x" * 1000 + "end")
    read = read_names(tmp_path)[number]
    assert len(read) == LONGEST_NAME
    assert read.endswith("end")
    assert "\x1b" not in (tmp_path / NAMES).read_text()
    (tmp_path / NAMES).write_text("1 one\n-2\ttwo\n\u0663\tthree\n9999999999999999999999\tfour\n\n5\tf\x1bve\n")
    assert read_names(tmp_path) == {5: "f?ve"}
