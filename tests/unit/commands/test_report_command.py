"""What `report`, `roofline` and the command line itself say, also of mistakes, where they wrote, and how a run that
they look at is named."""

from __future__ import annotations

import json
from datetime import datetime
from pathlib import Path

import pytest

from support.jobs import Rank, record
from support.runs import mistaken
from whyidle.commands.main import main
from whyidle.commands.verbs import VERBS
from whyidle.errors import WhyidleError
from whyidle.record.latest import note_latest
from whyidle.record.run import create_run, refuse_recorded, update_run, write_image_files
from whyidle.report.words.code import LONGEST, command_line
from whyidle.scenarios import roofline
from whyidle.scenarios.planted import Step, train
from whyidle.scenarios.voc.generate import compose


@pytest.fixture
def recorded(tmp_path: Path) -> Path:
    train(tmp_path / "run", [[Step()] * 40])
    return tmp_path / "run"


@pytest.mark.parametrize("format_", ["text", "json", "markdown", "csv", "trace"])
def test_after_writing_to_a_file_its_path_is_said(
    format_: str, recorded: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "out"
    assert main(["report", str(recorded), "--format", format_, "-o", str(file)]) == 0
    assert file.stat().st_size > 0
    told = capsys.readouterr()
    assert (told.out, told.err.splitlines()[-1]) == ("", f"written: {file}")
    if format_ != "trace":
        assert main(["report", str(recorded), "--format", format_, "-o", "-"]) == 0
        assert "written" not in capsys.readouterr().err


def test_a_folder_that_is_a_file_is_refused(recorded: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "my.py").write_text("pass")
    told = mistaken(capsys, "report", recorded, "--format", "csv", "-o", f"{tmp_path / 'my.py'}/")
    assert "my.py: Not a directory. Name another" in told
    assert (tmp_path / "my.py").read_text() == "pass"


@pytest.mark.parametrize(
    ("words", "way_out"),
    [
        ("compre ssd", "Did you mean compare?"),
        ("run --epochs 3 -- python my.py", "--epochs. Options of the training go after --."),
        ("tune --epochs 3 -- python my.py", "Options of the training go after --."),
        ("xyzzy", "unknown verb 'xyzzy'. Verbs: run, attach"),
        *(
            (f"report x --format trace --from {each}", f"'{each}' is no second")
            for each in ("nan", "inf", "1e300", "soon")
        ),
        ("roofline nowhere/photos", "nowhere/photos does not exist"),
        ("roofline no-such", "unknown scenario 'no-such'"),
        ("roofline ssd --size 32", "--size is an option of folders"),
        ("roofline {photos} --net a", "--net is an option of scenarios"),
        ("roofline {empty}", "hold no JPEG files"),
        ("roofline ssd --store tape", "no store 'tape'"),
    ],
)
def test_a_slip_is_answered_with_what_was_meant(
    words: str, way_out: str, photos: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert way_out in mistaken(capsys, *words.format(photos=photos, empty=tmp_path).split())
    assert "options of the training" not in mistaken(capsys, "report", "--zzzz", "x").lower()


def test_a_folders_name_is_no_line_of_its_own_in_an_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("w\n::error::hi", "w\n  ::error::hi", "w\n##[error]hi", "w\x1b[31m"):
        (tmp_path / name).mkdir()
        assert main(["report", str(tmp_path / name)]) == 2
        with pytest.raises(SystemExit):
            main(["report", "--format", name])
        told = capsys.readouterr().err
        assert "hi" in told or "31m" in told
        assert not any(line.lstrip().startswith(("::", "##")) for line in told.splitlines())
        assert "\x1b" not in told


@pytest.mark.parametrize("change", [{"plan": {"steps": 10**400}}, {"host": {"cpus": -(2**64)}}])
def test_a_number_that_nothing_can_compute_with_is_damage(
    change: dict[str, object], recorded: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    description = json.loads((recorded / "run.json").read_text()) | change
    (recorded / "run.json").write_text(json.dumps(description))
    assert "not a number of whyidle's" in mistaken(capsys, "live", recorded, "--once")


@pytest.mark.parametrize("form", ["text", "html"])
def test_names_are_no_markup_of_the_console(form: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    record(tmp_path / "job", [Rank(host="[/x] :boom: a"), Rank(host="[red]b")], 60)
    assert main(["report", str(tmp_path / "job"), "--format", form, "-o", "-"]) == 0
    assert "[/x] :boom: a" in capsys.readouterr().out


@pytest.mark.parametrize("format_", ["text", "json", "html", "markdown", "csv", "parquet", "trace"])
def test_no_format_takes_the_place_of_what_was_recorded(
    format_: str, recorded: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "link").symlink_to(recorded / "run.json")
    before = {path: path.read_bytes() for path in recorded.iterdir()}
    for target in (recorded / "run.json", tmp_path / "link", next(recorded.glob("step-*.rec"))):
        told = mistaken(capsys, "report", recorded, "--format", format_, "-o", target)
        assert f"{target} is a file of a recording, which would be lost. Name another file." in told
    assert {path: path.read_bytes() for path in recorded.iterdir()} == before


def test_every_file_of_a_recording_is_kept_and_what_was_made_of_it_is_not(recorded: Path) -> None:
    later = ("names.tsv", "process-0-17.json", "devices.json")
    for path in (*recorded.iterdir(), *(recorded / name for name in later)):
        with pytest.raises(WhyidleError, match="a file of a recording"):
            refuse_recorded(path)
    for name in ("report.html", "steps.csv", "trace.json.gz", "report.json", "x/run.json"):
        refuse_recorded(recorded / name)


def test_a_report_of_the_newest_run_says_on_stderr_which_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    run = tmp_path / "run\x1b[2J"
    train(run, [[Step()] * 40])
    note_latest(run)
    assert main(["report", "--json"]) == 0
    told = capsys.readouterr()
    assert json.loads(told.out)["format"] == "whyidle-report"
    assert told.err == f"whyidle: the newest recording: {tmp_path}/run?[2J\n"
    assert main(["report", str(run), "--json"]) == 0
    assert "newest" not in capsys.readouterr().err


def test_where_the_newest_run_is_gone_that_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    note_latest(tmp_path / "gone")
    for verb in (["report"], ["live", "--once"]):
        assert main(verb) == 2
        said = capsys.readouterr().err
        assert f"the newest recording, {tmp_path}/gone, is not there any more. Name the folder of another" in said


@pytest.fixture(scope="module")
def photos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("photos")
    compose(folder, 8, 0)
    return folder


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(roofline.measured, "__defaults__", (0.0,))


@pytest.mark.parametrize("augmented", [True, False])
def test_of_a_folder_every_part_is_told(photos: Path, augmented: bool, capsys: pytest.CaptureFixture[str]) -> None:
    options = ["--size", "32", "--rounds", "2", "--device", "cpu", *([] if augmented else ["--no-augment"])]
    assert main(["roofline", str(photos), *options, "--json", "-"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["format"], told["size"], told["dataset"]["samples"]) == ("whyidle-roofline", 32, 8)
    assert told["place"] == {"net": None, "store": "files", "augment": augmented}
    making = [part for part in told["parts"] if part["kind"] == "making"]
    assert [part["name"] for part in making] == ["read", "decode", "draw", "colours", "resize", "normalise"]
    assert told["limit"] == pytest.approx(1 / sum(1 / part["all_cores"]["median"] for part in making))
    assert main(["roofline", str(photos), *options]) == 0
    assert "Limit: " in capsys.readouterr().out


def test_of_a_run_it_is_of_its_files(photos: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = tmp_path / "run"
    create_run(run, {})
    assert main(["roofline", str(run)]) == 2
    assert "recorded no JPEG files" in capsys.readouterr().err
    write_image_files(run, [str(path) for path in sorted(photos.rglob("*.jpg"))[:5]])
    assert main(["roofline", str(run), "--rounds", "1", "--device", "cpu", "--json", str(tmp_path / "out.json")]) == 0
    assert json.loads((tmp_path / "out.json").read_text())["dataset"]["samples"] == 5


def test_of_a_scenario_it_is_of_its_samples_as_augmented(photos: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["roofline", "ssd", "--data", str(photos), "--rounds", "1", "--device", "cpu", "--json", "-"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["place"]["augment"] is True
    assert "colours" in [part["name"] for part in told["parts"]]
    assert told["dataset"]["stand_in"]


def test_whyidle_alone_lists_its_verbs_with_an_example_each(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 0
    shown = capsys.readouterr().out
    assert [name for name, verb in VERBS.items() if f"  {name} " not in shown or verb.example not in shown] == []


EPOCHS = ["--epochs", "20", "--batch-size", "8"]


@pytest.mark.parametrize(
    ("parts", "line"),
    [
        (["/opt/venv/bin/python", "train.py", *EPOCHS], "python train.py --epochs 20 --batch-size 8"),
        (["/v/bin/python3", "/v/bin/torchrun", "train.py"], "python3 torchrun train.py"),
        (["python", "a/train.py"], "python a/train.py"),
        (["python", f"/{'long/' * 20}train.py", *EPOCHS], "python train.py --epochs 20 --batch-size 8"),
        (["./"], "./"),
        (None, "run"),
        (["python", "train.py", *(["--flag"] * 50)], f"python train.py {'--flag ' * 50}"[: LONGEST - 1] + "…"),
    ],
)
def test_a_command_loses_the_folders_of_programs(parts: list[str] | None, line: str) -> None:
    assert command_line(parts) == line


def test_a_folder_of_runs_lists_the_newest_ten(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for number in range(12):
        folder = tmp_path / f"run{number:02}"
        record(folder, [Rank()], 5, world_size=None)
        began = datetime(2026, 1, 2, 3, number).astimezone().timestamp()
        clock = {"time_ns": int(began * 1e9), "monotonic_ns": 0}
        update_run(folder, {"clock": clock, "command": ["python", f"t{number}.py"]})
    # Two that do not say when they began.
    update_run(tmp_path / "run09", {"clock": {"time_ns": 10**40}})
    update_run(tmp_path / "run00", {"clock": {"time_ns": "soon"}})
    assert main(["report", str(tmp_path)]) == 2
    lines = capsys.readouterr().err.splitlines()
    assert "holds 12 runs" in lines[0]
    assert f"whyidle report {tmp_path / 'run11'}" in lines[0]
    assert [line.split()[2] for line in lines[1:-1]] == [f"run{number:02}" for number in (11, 10, *range(8, 0, -1))]
    assert lines[1].split() == ["2026-01-02", "03:11", "run11", "python", "t11.py"]
    assert lines[-1].strip() == "and 2 more"
