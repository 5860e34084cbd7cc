"""Recordings of others: what lies in a folder leads nowhere else, and what is damaged is called so."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from golden.others import TUNINGS
from support.crafted import amend
from support.planted_runs import Making, hosted, pooled, serial, until
from support.planted_stacks import plant_stacks
from whyidle.commands import roofline
from whyidle.commands.main import main, parser
from whyidle.errors import WhyidleError
from whyidle.record.files import read_json
from whyidle.record.notices import TRAINING_NOTICES
from whyidle.record.reader import read_all
from whyidle.record.run import DEVICES, IMAGE_FILES, RUN_JSON, open_run, runs_within, update_run
from whyidle.record.schema import EVENT, HEADER_BYTES, HOST, NOT_MEASURED, EventKind, Kind
from whyidle.record.stacks import NAMES, STACKS
from whyidle.scenarios.planted import MS, PlantedWorkers, Step

SECRET = "told to nobody"
READING: tuple[tuple[str, ...], ...] = (
    ("report", "run"),
    ("report", "run", "--json"),
    ("report", "run", "--format", "html", "-o", "page.html"),
    ("report", "run", "--format", "markdown"),
    ("report", "run", "--format", "trace", "-o", "trace.json"),
    ("live", "run", "--once"),
    ("check", "run", "--max-stall", "90"),
    ("diff", "run", "sound"),
    ("compare", "run", "sound"),
)
FILES = (RUN_JSON, NAMES, TRAINING_NOTICES, STACKS, DEVICES, "process-*.json", "step-*.rec", "host-*.rec")


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A healthy run, which is read in no time, and one of which lines are named."""
    base = tmp_path_factory.mktemp("built")
    pooled(base / "run", [[Step(before_ns=4 * MS, host_ns=3 * MS)] * 45], PlantedWorkers(2, 2))
    serial(base / "slow", 45, 20, Making())
    for run in (base / "run", base / "slow"):
        hosted(run, 2.0, 8)
        plant_stacks(run, end_ns=until(run))
        (run / NAMES).write_text("1\tone\n")
        (run / TRAINING_NOTICES).write_text("A notice.\n")
        (run / DEVICES).write_text('{"devices": []}')
    return base


@pytest.fixture
def at(built: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder to be in, with runs to spoil and a sound one."""
    for made, name in (("run", "run"), ("run", "sound"), ("slow", "slow")):
        shutil.copytree(built / made, tmp_path / "at" / name)
    monkeypatch.chdir(tmp_path / "at")
    monkeypatch.delenv("WHYIDLE_DEBUG", raising=False)
    return tmp_path / "at"


def _a_socket(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as bound:
        bound.bind(os.path.relpath(path))


def _a_link(path: Path) -> None:
    outside = path.parents[2] / "outside"
    outside.write_text(f"{SECRET}\n7\t{SECRET}\n" + json.dumps({"call": 7, "text": SECRET}))
    path.symlink_to(outside)


ODD = {
    "a pipe": os.mkfifo,
    "a socket": _a_socket,
    "a link": _a_link,
    "all zeros": lambda path: path.symlink_to("/dev/zero"),
    "itself": lambda path: path.symlink_to(path.name),
    "a folder": Path.mkdir,
}


@pytest.mark.timeout(300)
@pytest.mark.parametrize("put", ODD.values(), ids=ODD)
@pytest.mark.parametrize("name", FILES)
def test_what_is_no_file_is_neither_waited_for_nor_followed(
    put: Callable[[Path], None], name: str, at: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    paths = sorted((at / "run").glob(name)) or [at / "run" / name.replace("*", "0-1")]
    for path in paths:
        path.unlink(missing_ok=True)
        put(path)
    # All kinds of commands over all cases.
    for argv in (READING[0], READING[5], READING[(FILES.index(name) + 3 * (put is os.mkfifo)) % len(READING)]):
        code = main(argv)
        printed = capsys.readouterr()
        assert code in (0, 1, 2), argv
        assert SECRET not in printed.out + printed.err, argv
        assert code != 2 or printed.err.count("whyidle: ") == 1, argv
    assert not any(SECRET in path.read_text(errors="replace") for path in at.iterdir() if path.is_file())
    if name in (NAMES, TRAINING_NOTICES) and put is not _a_socket:
        assert main(["report", "run"]) == 2
        assert f"{paths[0].name} is damaged: it is a" in capsys.readouterr().err


def test_a_folder_that_the_user_names_may_be_a_link(at: Path) -> None:
    (at / "named").symlink_to(at / "sound")
    assert main(["report", "named"]) == 0
    assert main(["report", "sound", "--json", "-o", "saved.json"]) == 0
    (at / "saved").symlink_to(at / "saved.json")
    assert main(["check", "run", "--max-regression", "50", "--against", "saved", "--noise", "3"]) == 0


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
    TUNINGS["tuned-script"](tmp_path)
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
    with pytest.raises(WhyidleError, match="recorded no JPEG files"):
        roofline._files(parser("roofline").parse_args(["roofline", "run"]))


def test_a_sparse_file_asks_for_no_memory(at: Path) -> None:
    """In a process of its own, with little memory to be had."""
    whole = len(open_run(at / "run").records(HOST))
    for path in (at / "run").glob("*.rec"):
        os.truncate(path, 1 << 38)
    code = (
        "import resource, sys; resource.setrlimit(resource.RLIMIT_AS, (3 << 30, 3 << 30)); from pathlib import Path\n"
        "from whyidle.record.run import open_run; from whyidle.record.schema import HOST\n"
        "run = open_run(Path('run')); print(len(run.records(HOST)))\n"
        "print(sum(map(len, run.files(HOST)[0].chunks())))"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=at, capture_output=True, text=True, check=False)
    assert (done.stdout.split(), done.stderr) == ([str(whole)] * 2, "")


def test_a_file_larger_than_any_is_damaged(at: Path, capsys: pytest.CaptureFixture[str]) -> None:
    os.truncate(at / "run" / TRAINING_NOTICES, 1 << 29)
    assert main(["report", "run"]) == 2
    assert "training-notices.txt is damaged: it is larger than any" in capsys.readouterr().err


def _overwritten(run: Path, kind: Kind, record: int, field: str, value: bytes) -> None:
    (path,) = run.glob(f"{kind.name}-*.rec")
    with path.open("r+b") as file:
        file.seek(HEADER_BYTES + record * kind.record_bytes + kind.offset(field))
        file.write(value)


def test_numbers_that_nothing_measures_are_not_measured(at: Path) -> None:
    for place, value in (("tree_cpu_ns", 2**62), ("tree_processes", -(2**50)), ("main_cpu_ns", 7)):
        _overwritten(at / "run", HOST, 1, place, value.to_bytes(8, "little", signed=True))
    _overwritten(at / "run", HOST, 1, "machine_busy_pct", np.float64(np.inf).tobytes())
    records = read_all(open_run(at / "run").files(HOST), HOST)
    read = [int(records[name][1]) for name in ("tree_cpu_ns", "tree_processes", "main_cpu_ns")]
    assert read == [NOT_MEASURED, NOT_MEASURED, 7]
    assert np.isnan(records["machine_busy_pct"][:2]).tolist() == [False, True]


@pytest.mark.parametrize("value", [10**9, -1])
@pytest.mark.parametrize("what", EventKind.COUNTS)
def test_more_workers_than_any_loader_has_are_not_measured(what: int, value: int, at: Path) -> None:
    for name, number in (("what", what), ("value", value)):
        _overwritten(at / "run", EVENT, 0, name, number.to_bytes(8, "little", signed=True))
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
    assert code == 2 or argv != READING[0]
    if code == 2:
        assert said.count("whyidle: ") == 1
        assert "run is damaged (AttributeError: 'str' object has no attribute 'get', at " in said or "sound is" in said
        assert "WHYIDLE_DEBUG=1" in said
        monkeypatch.setenv("WHYIDLE_DEBUG", "1")
        with pytest.raises(AttributeError):
            main(argv)
    else:
        assert code in (0, 1)


@pytest.mark.parametrize("argv", READING)
def test_texts_are_no_commands_to_ci(argv: tuple[str, ...], at: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shutil.rmtree(at / "run")
    (at / "slow").rename(at / "run")
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


SLEEPS = "time.sleep(600)"
CTRL_C = "os.killpg(0, signal.SIGINT); time.sleep(600)"


@pytest.mark.parametrize(
    "report",
    [
        SLEEPS,
        "signal.raise_signal(signal.SIGSEGV)",
        "raise MemoryError",
        "raise ValueError('x')",
        "bytes(3 << 30)",
        CTRL_C,
    ],
)
def test_the_exit_code_of_the_command_is_handed_on_whatever_becomes_of_the_report(report: str, tmp_path: Path) -> None:
    code = (
        "import os, signal, sys, time\nfrom whyidle.commands import main, run\nfrom whyidle.terminal import child\n"
        f"signal.signal(2, signal.default_int_handler)\nchild.MOST_SECONDS = {2 if report == SLEEPS else 200}\n"
        f"def report(*_):\n    {report}\nrun._report = report\n"
        "sys.exit(main.main(['run', '--out', 'r', '--', 'sh', '-c', 'exit 7']))"
    )
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False, process_group=0)
    assert done.returncode == 7
    assert "Traceback" not in done.stderr
    told = [line for line in done.stderr.splitlines() if "no report" in line]
    assert ["`whyidle report r` makes one" in line for line in told] == [True] * (report != CTRL_C)
