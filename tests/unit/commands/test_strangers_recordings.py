"""Recordings of others: what lies in a folder leads nowhere else, and what is damaged is called so."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from golden.others import attached_workers, tuned_script
from golden.singles import with_stacks
from support.crafted import amend
from support.planted_runs import Making, serial
from whyidle.commands import roofline
from whyidle.commands.main import main
from whyidle.errors import WhyidleError
from whyidle.record.attached import COUNTED_STACKS
from whyidle.record.files import read_json
from whyidle.record.image_files import IMAGE_FILES
from whyidle.record.names import NAMES
from whyidle.record.notices import TRAINING_NOTICES
from whyidle.record.reader import read_all
from whyidle.record.run import DEVICES, RUN_JSON, open_run, runs_within, update_run
from whyidle.record.schema import EVENT, HEADER_BYTES, HOST, NOT_MEASURED, EventKind
from whyidle.record.stacks import STACKS
from whyidle.terminal import child

SECRET = "told to nobody"
READING: tuple[tuple[str, ...], ...] = (
    ("report", "run"),
    ("report", "run", "--json"),
    ("report", "run", "--format", "html", "-o", "page.html"),
    ("report", "run", "--format", "markdown"),
    ("report", "run", "--format", "trace", "-o", "trace.json"),
    ("report", "run", "--format", "speedscope", "-o", "profile.json"),
    ("live", "run", "--once"),
    ("check", "run", "--max-stall", "90"),
    ("diff", "run", "sound"),
    ("compare", "run", "sound"),
)
FILES = (RUN_JSON, NAMES, TRAINING_NOTICES, STACKS, DEVICES, "process-*.json", "step-*.rec", "host-*.rec")


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    base = tmp_path_factory.mktemp("built")
    with_stacks(base)
    (base / "run" / NAMES).write_text("1\tone\n")
    (base / "run" / TRAINING_NOTICES).write_text("A notice.\n")
    (base / "run" / DEVICES).write_text('{"devices": []}')
    return base


@pytest.fixture
def at(built: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder to be in, with a run to spoil and a sound one."""
    shutil.copytree(built / "run", tmp_path / "at" / "run")
    shutil.copytree(built / "run", tmp_path / "at" / "sound")
    monkeypatch.chdir(tmp_path / "at")
    monkeypatch.delenv("WHYIDLE_DEBUG", raising=False)
    return tmp_path / "at"


def _a_pipe(path: Path) -> None:
    os.mkfifo(path)


def _a_link(path: Path) -> None:
    outside = path.parents[2] / "outside"
    outside.write_text(f"{SECRET}\n7\t{SECRET}\n" + json.dumps({"call": 7, "text": SECRET}))
    path.symlink_to(outside)


def _all_zeros(path: Path) -> None:
    path.symlink_to("/dev/zero")


def _itself(path: Path) -> None:
    path.symlink_to(path.name)


def _a_folder(path: Path) -> None:
    path.mkdir()


@pytest.mark.timeout(300)
@pytest.mark.parametrize("put", [_a_pipe, _a_link, _all_zeros, _itself, _a_folder])
@pytest.mark.parametrize("name", FILES)
def test_what_is_no_file_is_neither_waited_for_nor_followed(
    put: Callable[[Path], None], name: str, at: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    paths = sorted((at / "run").glob(name)) or [at / "run" / name.replace("*", "0-1")]
    for path in paths:
        path.unlink(missing_ok=True)
        put(path)
    # All kinds of commands over all cases.
    third = READING[(FILES.index(name) + 3 * (put is _a_pipe)) % len(READING)]
    for argv in (READING[0], READING[6], third):
        code = main(argv)
        printed = capsys.readouterr()
        assert code in (0, 1, 2), argv
        assert SECRET not in printed.out + printed.err, argv
        assert code != 2 or printed.err.count("whyidle: ") == 1, argv
    assert not any(SECRET in path.read_text(errors="replace") for path in at.iterdir() if path.is_file())
    if name in (NAMES, TRAINING_NOTICES):
        assert main(["report", "run"]) == 2
        assert f"{paths[0].name} is damaged: it is a" in capsys.readouterr().err


def test_a_folder_that_the_user_names_may_be_a_link(at: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (at / "named").symlink_to(at / "sound")
    assert main(["report", "named"]) == 0
    assert main(["report", "sound", "--json", "-o", "saved.json"]) == 0
    (at / "saved").symlink_to(at / "saved.json")
    assert main(["check", "run", "--max-regression", "50", "--against", "saved", "--noise", "3"]) == 0, (
        capsys.readouterr()
    )


def test_runs_within_a_folder_are_no_links(at: Path) -> None:
    (at / "around").mkdir()
    (at / "around" / "linked").symlink_to(at / "sound")
    shutil.move(at / "run", at / "around" / "own")
    assert runs_within(at / "around") == [at / "around" / "own"]
    cell = {"pipeline": "naive", "batch_size": 8, "status": "ok", "error": None, "runs": ["linked"]}
    content = {"format": "whyidle-comparison", "version": 1, "setting": {}, "cells": [cell]}
    (at / "around" / "comparison.json").write_text(json.dumps(content))
    for form in ("text", "json", "html", "markdown"):
        assert main(["report", "around", "--format", form]) == 2


def test_the_first_stretch_of_a_tuning_is_no_link(tmp_path: Path, at: Path, capsys: pytest.CaptureFixture[str]) -> None:
    tuned_script(tmp_path)
    first = tmp_path / "tuned" / "first-stretch"
    update_run(first, {"host": {"name": SECRET}})
    assert main(["report", str(tmp_path / "tuned"), "--format", "html", "-o", "-"]) == 0
    assert SECRET in capsys.readouterr().out
    shutil.move(first, tmp_path / "moved")
    first.symlink_to(tmp_path / "moved")
    assert main(["report", str(tmp_path / "tuned"), "--format", "html", "-o", "-"]) == 0
    assert SECRET not in capsys.readouterr().out


def test_image_files_that_are_pipes_are_none(at: Path) -> None:
    os.mkfifo(at / "pipe.jpg")
    (at / "run" / IMAGE_FILES).write_text(json.dumps({"files": [str(at / "pipe.jpg")]}))
    with pytest.raises(WhyidleError, match="no JPEG files are known"):
        roofline._files(roofline_arguments("run"))


def roofline_arguments(what: str) -> object:
    from whyidle.commands.main import parser

    return parser("roofline").parse_args(["roofline", what])


def test_a_sparse_file_asks_for_no_memory(at: Path) -> None:
    """In a process of its own, with little memory to be had."""
    whole = [len(open_run(at / "run").records(kind)) for kind in (HOST,)]
    for path in (at / "run").glob("*.rec"):
        os.truncate(path, 1 << 38)
    code = (
        "import resource, sys; resource.setrlimit(resource.RLIMIT_AS, (3 << 30, 3 << 30)); from pathlib import Path\n"
        "from whyidle.record.run import open_run; from whyidle.record.schema import HOST\n"
        "from whyidle.record.reader import Follower\n"
        "run = open_run(Path('run')); print(len(run.records(HOST)))\n"
        "print(len(Follower(run.files(HOST)[0].path).new()))"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=at, capture_output=True, text=True, check=False)
    assert (done.stdout.split(), done.stderr) == ([str(whole[0])] * 2, "")


def test_a_file_larger_than_any_is_damaged(at: Path, capsys: pytest.CaptureFixture[str]) -> None:
    os.truncate(at / "run" / TRAINING_NOTICES, 1 << 29)
    assert main(["report", "run"]) == 2
    assert "training-notices.txt is damaged: it is larger than any" in capsys.readouterr().err


def test_numbers_that_nothing_measures_are_not_measured(at: Path) -> None:
    (path,) = (at / "run").glob("host-*.rec")
    raw = bytearray(path.read_bytes())
    size = HOST.record_bytes
    for place, value in (("tree_cpu_ns", 2**62), ("tree_processes", -(2**50)), ("main_cpu_ns", 7)):
        at_byte = HEADER_BYTES + size + HOST.offset(place)
        raw[at_byte : at_byte + 8] = value.to_bytes(8, "little", signed=True)
    infinite = HEADER_BYTES + size + HOST.offset("machine_busy_pct")
    raw[infinite : infinite + 8] = np.float64(np.inf).tobytes()
    path.write_bytes(raw)
    records = read_all(open_run(at / "run").files(HOST), HOST)
    assert [int(records[name][1]) for name in ("tree_cpu_ns", "tree_processes", "main_cpu_ns")] == [
        NOT_MEASURED,
        NOT_MEASURED,
        7,
    ]
    assert np.isnan(records["machine_busy_pct"][1])
    assert not np.isnan(records["machine_busy_pct"][0])


@pytest.mark.parametrize("value", [10**9, -1])
@pytest.mark.parametrize("what", EventKind.COUNTS)
def test_more_workers_than_any_loader_has_are_not_measured(what: int, value: int, at: Path) -> None:
    (path,) = (at / "run").glob("event-*.rec")
    raw = bytearray(path.read_bytes())
    for name, number in (("what", what), ("value", value)):
        place = HEADER_BYTES + EVENT.offset(name)
        raw[place : place + 8] = number.to_bytes(8, "little", signed=True)
    path.write_bytes(raw)
    assert int(open_run(at / "run").records(EVENT)["value"][0]) == NOT_MEASURED


def test_numbers_of_json_are_finite(tmp_path: Path) -> None:
    (tmp_path / "x").write_text("[1.5, NaN, -Infinity, 1e999, 7]")
    assert read_json(tmp_path / "x") == [1.5, None, None, None, 7]


@pytest.mark.timeout(300)
def test_a_replay_of_times_that_never_end_is_given_up(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = serial(tmp_path / "run", 60, 20, Making())

    def spoil(steps: np.ndarray) -> None:
        steps["cpu_ns"][30] = 2**59
        steps["optimizer_end_ns"][31] = 2**59

    amend(run, spoil)
    assert main(["report", str(run), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["window"]["steps"] > 0


@pytest.mark.parametrize(("key", "argv"), list(zip(("device", "host", "clock", "ended") * 3, READING, strict=False)))
def test_what_a_recording_makes_raise_is_one_message(
    key: str, argv: tuple[str, ...], at: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    update_run(at / "run", {key: "x"})
    code = main(argv)
    said = capsys.readouterr().err
    if code == 2:
        assert said.count("whyidle: ") == 1
        assert "run is damaged (AttributeError: " in said or "run or sound is damaged (" in said
        monkeypatch.setenv("WHYIDLE_DEBUG", "1")
        with pytest.raises(AttributeError):
            main(argv)
    else:
        assert code in (0, 1)


def test_the_report_says_where_a_damaged_recording_failed(at: Path, capsys: pytest.CaptureFixture[str]) -> None:
    update_run(at / "run", {"device": "x"})
    assert main(["report", "run"]) == 2
    said = capsys.readouterr().err
    assert said.startswith("whyidle: run is damaged (AttributeError: 'str' object has no attribute 'get', at ")
    assert ".py:" in said
    assert "WHYIDLE_DEBUG=1" in said


@pytest.mark.parametrize("content", [{}, [1], {"shared": {"frames": []}, "profiles": 3}])
def test_counted_stacks_of_nonsense_are_damaged(
    content: object, tmp_path: Path, at: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    attached_workers(tmp_path)
    for path in (tmp_path / "run").glob("stack-*.rec"):
        path.unlink()
    (tmp_path / "run" / COUNTED_STACKS).write_text(json.dumps(content))
    assert main(["report", str(tmp_path / "run")]) == 2
    assert "is damaged (" in capsys.readouterr().err


@pytest.mark.parametrize("argv", READING)
def test_recorded_texts_are_no_commands_to_ci_services(
    argv: tuple[str, ...], at: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    texts = ("\n::error::told", "\n  ::error::told", "\u2028::error::told", "##[error]told", "##vso[task]told")
    every = "".join(texts)
    told = [json.loads(line) for line in (at / "run" / STACKS).read_text().splitlines()]
    hostile = (each | {"text": texts[n % 5], "function": texts[n % 3]} for n, each in enumerate(told))
    (at / "run" / STACKS).write_text("\n".join(map(json.dumps, hostile)))
    (at / "run" / TRAINING_NOTICES).write_text(every)
    update_run(at / "run", {"command": ["python", every], "device": {"kind": "cpu", "title": every}})
    update_run(at / "run", {"ended": {"status": "failed", "error": every}})
    main(argv)
    printed = capsys.readouterr()
    if "--json" not in argv:
        for line in (printed.out + printed.err).splitlines():
            assert not line.lstrip().startswith("::")
            assert "##[" not in line
            assert "##vso[" not in line


# The report of `run`.


def _for_ever() -> None:
    while True:
        time.sleep(0.01)


def test_a_report_that_takes_too_long_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(child, "MOST_SECONDS", 1)
    with pytest.raises(WhyidleError, match="more than 1 s"):
        child.in_bounds(_for_ever)


def test_a_report_of_too_much_memory_is_ended(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(child, "MOST_BYTES", 1 << 28)

    def fill() -> None:
        try:
            np.ones(1 << 29, dtype=np.int8)
        except MemoryError:
            (tmp_path / "refused").touch()

    child.in_bounds(fill)
    assert (tmp_path / "refused").exists()


@pytest.mark.parametrize(
    "report",
    [
        "time.sleep(600)",
        "signal.raise_signal(signal.SIGSEGV)",
        "raise MemoryError",
        "raise ValueError('x')",
        "bytes(3 << 30)",
    ],
)
def test_the_exit_code_of_the_command_is_handed_on_whatever_becomes_of_the_report(report: str, tmp_path: Path) -> None:
    code = (
        "import signal, sys, time\nfrom whyidle.commands import main, run\nfrom whyidle.terminal import child\n"
        f"child.MOST_SECONDS = 2\ndef report(*_):\n    {report}\nrun._report = report\n"
        "sys.exit(main.main(['run', '--out', 'r', '--', 'sh', '-c', 'exit 7']))"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 7
    told = [line for line in done.stderr.splitlines() if "no report" in line]
    assert len(told) == 1, done.stderr
    assert "`whyidle report r` makes one" in told[0]


def test_ctrl_c_ends_the_report_and_hands_on_the_exit_code(tmp_path: Path) -> None:
    code = (
        "import sys, time\nfrom whyidle.commands import main, run\n"
        "def report(*_):\n    print('begun', flush=True)\n    time.sleep(600)\nrun._report = report\n"
        "sys.exit(main.main(['run', '--out', 'r', '--', 'sh', '-c', 'exit 7']))"
    )
    program = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)\n" + code
    with subprocess.Popen(
        [sys.executable, "-c", program],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        process_group=0,
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "begun\n"
        os.killpg(process.pid, 2)
        _, said = process.communicate()
    assert process.returncode == 7
    assert "Traceback" not in said


def test_sockets_are_no_files(at: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (at / "run" / TRAINING_NOTICES).unlink()
    with socket.socket(socket.AF_UNIX) as bound:
        bound.bind(f"run/{TRAINING_NOTICES}")
    assert main(["report", "run"]) in (0, 2)
