"""Limits that a run is held to, and runs that it is checked against; runs that did not end, or lack a rank, pass none.
Checks as JUnit, annotations and Markdown."""

from __future__ import annotations

import json
import math
import re
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from rich.console import Console

import support.recent_runs as recent_runs
from golden.others import limited_run
from support.crafted import amend
from support.jobs import Rank, record
from support.pairs import SOME, crowded, noisy
from whyidle.analyse.diff.check import Asked, LimitCheck, against_runs, lost_of
from whyidle.analyse.diff.difference import Difference
from whyidle.analyse.diff.sides import Side, side_of
from whyidle.analyse.run.analysis import analyse
from whyidle.analyse.statistics import Estimate
from whyidle.commands.check import junit_xml, workflow_commands
from whyidle.commands.main import main
from whyidle.record.files import read_json, write_json
from whyidle.record.run import Run, create_run, open_run, update_run
from whyidle.report.contract import run as contract
from whyidle.report.documents.checks import check_document
from whyidle.report.render import markdown, print_document
from whyidle.scenarios.planted import MS
from whyidle.terminal.console import json_text

pytestmark = pytest.mark.usefixtures("own_folder")


MADE: dict[str, dict[str, Any]] = {
    **{"base": {}, "other": {}, "failed": {"ended": {"status": "failed", "exit_code": 3}}, "short": {"steps": 20}},
    **{"slower": {"compute_ms": 40}, "little": {"compute_ms": 21}, "faster": {"compute_ms": 5}},
    **{f"base{number}": {} for number in range(3)},
    **{f"slow{number}": {"compute_ms": 22.5} for number in range(3)},
    **{name: {"workers": 0, "fetch_ms": fetch_ms} for name, fetch_ms in (("waits", 30), ("waits-not", 0.1))},
    "unknown": {"steps": 20, "samples": None},
}
"""Runs by name, with what is not usual about each."""
STALL = "--max-stall 99"
AGAINST = f"{STALL} --max-regression 50 --against base"
RATES = {"nan": math.nan, "huge": 1e301, "yes": True, "text": "80", "none": None}


def check(*words: str | Path) -> int:
    return main(["check", *map(str, words)])


def told(capsys: pytest.CaptureFixture[str], *words: str | Path) -> dict[str, dict[str, object]]:
    """The checks by name."""
    check(*words, "--json")
    found = json.loads(capsys.readouterr().out)
    assert (found["format"], found["version"]) == ("whyidle-check", 1)
    return {each["name"]: each for each in found["checks"]}


@pytest.fixture(scope="module")
def planted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return limited_run(tmp_path_factory.mktemp("check") / "run")


@pytest.fixture
def own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In a folder without a configuration, and in nobody's CI."""
    monkeypatch.delenv("GITHUB_ACTIONS", raising=False)
    monkeypatch.delenv("GITHUB_STEP_SUMMARY", raising=False)
    monkeypatch.chdir(tmp_path)


def report_of(run: Path) -> Path:
    """Its JSON, saved beside it."""
    saved = run.with_suffix(".json")
    assert main(["report", str(run), "--json", "-o", str(saved)]) == 0
    return saved


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of those runs and of reports: of some of them, of other devices, without a rate."""
    folder = tmp_path_factory.mktemp("made")
    for name, how in MADE.items():
        noisy(folder / name, SOME(1), run_noise=0, step_noise=0, **how)
    for name, status in (("crashed", "failed"), ("empty", "ok")):
        create_run(folder / name, {"ended": {"status": status}})
    whole = {name: json.loads(report_of(folder / name).read_text()) for name in ("base", "short", "other", "failed")}
    whole["base"]["run"]["device"]["name"] = "Another One"
    (folder / "elsewhere.json").write_text(json.dumps(whole["base"]))
    reports = {name: {"run": "x", "window": {"samples_per_s": rate}} for name, rate in RATES.items()}
    for name, report in (reports | {"emulated": {"run": {"device": {"kind": "emulated"}}}}).items():
        (folder / f"{name}.json").write_text(json.dumps({"format": "whyidle-report", **report}))
    return folder


REGRESSIONS = [
    ("slower", 3, "base", 1, ""),
    ("slower", 60, "base", 0, ""),
    ("little", 2, "base", 0, "no more than healthy runs differ"),
    ("little", 2, "base --noise 0.5", 1, ""),
    ("faster", 3, "base", 0, r"none \([0-9.]+ % more throughput\).*surely within the limit"),
    ("slow0", 3, "base0", 0, ""),
    ("slow0 slow1 slow2", 3, "base0 --against base1 --against base2", 1, ""),
    ("base0 base1", 3, "base0", 2, "names the checked run itself"),
    *(("base", 5, f"short{end}", 1, f"short{end} has 19 steps") for end in ("", ".json")),
    ("base", 5, "short --allow-missing", 1, ""),
    ("base", 5, "short --allow-short", 0, ""),
    ("base", 5, "short --min-steps 10", 0, ""),
    *(("base", 90, f"other{end}", 0, "^(?!.*did not end)") for end in ("", ".json")),
    *(("base", 90, f"failed{end}", 0, f"{end}: it did not end") for end in ("", ".json")),
    ("slower", 5, "base.json", 1, ""),
    ("base", 5, "base.json", 0, ""),
    ("base", 5, "elsewhere.json", 0, "Its device was Another One"),
    ("slower", 5, "emulated.json", 2, "emulated and measured times are not compared"),
    *(("base", 5, f"{name}.json", 1, "not measured") for name in RATES),
]
"""Runs, a limit, what they are held against (a run, its repeats, its report); exit code, words."""


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        *(
            (f"{runs} --max-regression {limit} --against {against}", code, said)
            for runs, limit, against, code, said in REGRESSIONS
        ),
        ("waits --forbid input.serial", 1, ""),
        ("waits --forbid input", 1, ""),
        ("waits --forbid copy,input.storage", 0, ""),
        ("waits --max-severity major", 1, ""),
        ("waits --max-severity none", 1, ""),
        ("waits-not --forbid input.serial", 0, ""),
        ("short --max-boundary 50", 1, ""),
        ("short --max-boundary 50 --min-steps 10", 0, ""),
        ("unknown --min-samples-per-s 1 --allow-short", 1, ""),
        ("short --forbid input --min-steps 10", 1, "No verdict"),
        *(
            (f"{runs} {AGAINST}", 1, r"crashed: it did not end well \(failed\)")
            for runs in ("other crashed", "crashed other")
        ),
        (f"crashed {AGAINST}", 1, "not end well"),
        (f"base crashed {STALL}", 1, "2 of 3 checks fail: ended, min-steps. .*crashed: too few to tell anything"),
        (f"base empty {STALL}", 1, ""),
        (f"base empty {STALL} --allow-short", 0, ""),
        (f"base empty {STALL} --min-steps 1", 1, ""),
    ],
)
def test_a_check_holds_or_says_what_does_not_and_a_regression_fails_that_healthy_runs_do_not_show(
    made: Path, words: str, code: int, said: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(made)
    assert check(*words.split()) == code
    assert re.search(said, " ".join("".join(capsys.readouterr()).split()))


@pytest.mark.parametrize(
    ("flag", "low", "high"),
    [
        ("max-stall", 5, 80),
        ("max-input", 5, 40),
        ("max-copy", 2, 40),
        ("max-sync", 1, 40),
        ("max-host", 1, 40),
        ("max-boundary", 1, 20),
        ("min-samples-per-s", 1, 10_000),
        ("min-utilisation", 50, 70),
        ("min-busy", 20, 90),
        ("min-au", 20, 99),
        ("min-steps", 30, 1000),
    ],
)
def test_every_limit_passes_and_fails(
    planted: Path, flag: str, low: float, high: float, capsys: pytest.CaptureFixture[str]
) -> None:
    passing, failing = (high, low) if flag.startswith("max") else (low, high)
    assert check(planted, f"--{flag}", str(passing)) == 0
    assert check(planted, f"--{flag}", str(failing)) == 1
    assert f"checks fail: {flag}" in capsys.readouterr().out
    measured = told(capsys, planted, f"--{flag}", str(failing))[flag]["measured"]
    assert isinstance(measured, float)
    assert low < measured < high


def test_hooks_that_cost_too_much_and_records_that_were_lost_fail(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = noisy(tmp_path / "run", SOME(1))
    assert check(run, "--max-overhead", "1", "--max-dropped", "0") == 0
    amend(run, lambda steps: steps["overhead_ns"].fill(5 * MS))
    monkeypatch.setattr(Run, "dropped", lambda self: 3)
    for limits, code in ((("overhead", 1), 1), (("dropped", 0), 1), (("dropped", 3), 0)):
        assert check(run, f"--max-{limits[0]}", str(limits[1])) == code


def test_figures_of_a_job_are_those_of_its_report(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    job = recent_runs.training(tmp_path / "job", 1, seconds=8)
    report = json.loads(json_text(contract.report(analyse(open_run(job)))))
    limits = {
        "min-busy": report["device"]["busy_pct"],
        "min-au": report["device"]["au_pct"],
        "min-utilisation": report["device"]["utilisation_pct"],
        "max-overhead": report["quality"]["overhead_pct"],
    }
    found = told(capsys, job, *(word for name in limits for word in (f"--{name}", "50")))
    assert {name: found[name]["measured"] for name in limits} == pytest.approx(limits)
    ranks = report["ranks_detail"]
    assert len({rank["device"]["au_pct"] for rank in ranks}) == 2


def test_the_configuration_holds_and_flags_win(planted: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "pyproject.toml").write_text("[tool.whyidle.check]\nmax-stall = 1\n")
    below = tmp_path / "a" / "b"
    below.mkdir(parents=True)
    monkeypatch.chdir(below)
    assert check(planted) == 1
    assert check(planted, "--max-stall", "90") == 0
    other = tmp_path / "other.toml"
    other.write_text('[tool.whyidle.check]\nmax-stall = 90\nforbid = ["rank"]\n')
    assert check(planted, "--config", other) == 0


def test_a_run_of_the_configuration_is_found_from_its_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    noisy(tmp_path / "base", SOME(1), run_noise=0)
    slower = noisy(tmp_path / "slower", SOME(2), run_noise=0, compute_ms=40)
    (tmp_path / "pyproject.toml").write_text('[tool.whyidle.check]\nmax-regression = 5\nagainst = "base"\n')
    (tmp_path / "a").mkdir()
    monkeypatch.chdir(tmp_path / "a")
    assert check(slower) == 1
    assert "Throughput lost" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("table", "said"),
    [
        ("max-stal = 1", "'max-stal' is not known. Known: max-stall"),
        ('max-stall = "1"', "'1' is not a number from 0 to 100"),
        ("max-stall = 101", "101 is not a number from 0 to 100"),
        ("max-stall = true", "True is not a number"),
        ("max-stall = nan", "nan is not a number"),
        ("forbid = [1]", "[1] is not a list of causes"),
        ('forbid = ["input.serail"]', "input.serail is not known"),
        ('max-severity = "critical"', "'critical' is not one of none, minor, major"),
        ("max-regression = 5", "needs --against RUN"),
        ('against = "base"', "needs --max-regression PCT"),
        ("max-stall = 1\nallow-short = 1", "1 is neither true nor false"),
        ("max-stall = 1\nnoise = 0", "above 0"),
        ("max-stall", "is not TOML"),
        ("", "nothing to check"),
    ],
)
def test_a_mistake_in_the_configuration_is_said(
    planted: Path, tmp_path: Path, table: str, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "pyproject.toml").write_text(f"[tool.whyidle.check]\n{table}\n")
    assert check(planted) == 2
    assert said in capsys.readouterr().err


@pytest.mark.parametrize(
    ("ranks", "world_size", "said"),
    [
        ([Rank(), Rank(steps=40)], 2, "rank 1 did not end the recording: killed, or left by os._exit"),
        ([Rank(steps=40)], None, "rank 0 did not end the recording: killed, or left by os._exit"),
        ([Rank(), Rank()], 4, "nothing of ranks 2 and 3 was recorded"),
        ([Rank(), Rank(), Rank()], 3, "no step of rank 2 was recorded"),
    ],
)
def test_a_job_without_one_of_its_ranks_does_not_pass(
    tmp_path: Path, ranks: list[Rank], world_size: int | None, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    record(tmp_path / "job", ranks, steps=60, world_size=world_size)
    for third in (tmp_path / "job").glob("step-2-*.rec"):
        third.unlink()
    assert check(tmp_path / "job", "--max-stall", "99") == 1
    told_so = capsys.readouterr().out
    assert "checks fail: ended." in told_so
    assert said in told_so
    assert check(tmp_path / "job", "--max-stall", "99", "--allow-unfinished") == 0


def leaving(job: Path, command: list[str], argv: list[str], said: dict[str, object] | None = None) -> Path:
    """The run's command ended with 0; its trainings, of which all are told to have these arguments, ended nothing."""
    update_run(job, {"command": command, "ended": {"status": "ok", "error": None, "exit_code": 0}})
    for file in job.glob("process-*.json"):
        write_json(file, read_json(file) | {"command": argv} | (said or {}))
    return job


PYTHON = "/usr/bin/python3.11"


@pytest.mark.parametrize(
    ("command", "argv", "said", "passes"),
    [
        ([PYTHON, "train.py", "a"], ["train.py", "a"], {}, True),
        ([PYTHON, "-u", "train.py"], ["train.py"], {}, True),
        ([PYTHON, "-m", "train", "a"], ["/there/train.py", "a"], {}, True),
        (["./train.py", "a"], ["./train.py", "a"], {}, True),
        (["torchrun", "train.py"], ["train.py"], {"local_rank": 0}, True),
        (["bash", "-c", "python train.py; true"], ["train.py"], {}, False),
        ([PYTHON, "-m", "launcher", "train.py"], ["train.py"], {}, False),
        ([PYTHON, "launcher.py"], ["train.py"], {}, False),
    ],
)
def test_a_training_that_leaves_by_os_exit_ended_where_its_command_tells_so(
    tmp_path: Path, command: list[str], argv: list[str], said: dict[str, object], passes: bool
) -> None:
    record(tmp_path / "run", [Rank(steps=60)], steps=60, world_size=None)
    run = leaving(tmp_path / "run", command, argv, said)
    assert check(run, "--max-stall", "99") == (0 if passes else 1)
    notes = analyse(open_run(run)).notes
    assert any("did not end the recording: killed, or left by os._exit" in note for note in notes) == (not passes)


def test_ranks_that_leave_by_os_exit_ended_where_none_ran_fewer_steps(tmp_path: Path) -> None:
    for name, last, code in (("left", 60, 0), ("stopped", 40, 1)):
        record(tmp_path / name, [Rank(steps=60), Rank(steps=last)], steps=60)
        leaving(tmp_path / name, ["torchrun", "train.py"], ["train.py"])
        assert check(tmp_path / name, "--max-stall", "99") == code


@pytest.mark.parametrize(("said", "passes"), [({}, True), ({"local_rank": 0}, False)])
def test_a_single_training_lacks_no_rank_that_only_its_environment_tells_of(
    tmp_path: Path, said: dict[str, object], passes: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    record(tmp_path / "run", [Rank()], steps=60, world_size=4)
    run = leaving(tmp_path / "run", [PYTHON, "train.py"], ["train.py"], said)
    assert check(run, "--max-stall", "99") == (0 if passes else 1)
    assert ("name the folder around the hosts' run folders" in capsys.readouterr().out) == (not passes)
    assert main(["report", str(run), "--full"]) == 0
    assert "4 ranks" in capsys.readouterr().out


def test_a_job_ended_when_all_hosts_did(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    job = tmp_path / "job"
    record(job, [Rank(host="n0"), Rank(host="n1")], steps=60, apart=True)
    assert check(job, "--max-stall", "99") == 0
    update_run(job / "n1", {"ended": {"status": "failed"}})
    assert check(job, "--max-stall", "99") == 1
    assert f"({job / 'n1'}: " in capsys.readouterr().out
    assert check(job, "--max-stall", "99", "--allow-unfinished") == 0


def lost(low: float, mean: float, high: float, *allow: str) -> LimitCheck:
    """7 % is what one run against one shows by chance; the limit is 5."""
    slower, value, faster = (1 - loss / 100 for loss in (high, mean, low))
    asked = Asked({"max-regression": 5.0}, allow=frozenset(allow))
    return lost_of(Estimate(value, slower, faster), 7.0, "runs/main", asked)


@pytest.mark.parametrize(
    ("low", "mean", "high", "status"),
    [
        (60, 70, 80, "failed"),
        (-20, 70, 90, "unclear"),
        (2, 12, 20, "unclear"),
        (6, 12, 18, "failed"),
        (-5, 6.5, 16, "passed"),
        (-8, 3, 13, "passed"),
        (-300, 3, 80, "unclear"),
        (-300, -238, -100, "passed"),
        (-900, -238, 70, "unclear"),
        (-5, 1, 4, "passed"),
    ],
)
def test_what_noise_leaves_open_is_no_pass(low: float, mean: float, high: float, status: str) -> None:
    found = lost(low, mean, high)
    assert (found.status, found.holds) == (status, status == "passed")
    assert ("--allow-noisy" in found.note and "repeat" in found.note) == (status == "unclear")
    allowed = lost(low, mean, high, "noisy")
    assert allowed.holds == (status != "failed")
    assert allowed.status == status


def test_a_loss_that_a_busy_machine_may_make_is_unclear(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    base, slower = crowded(tmp_path / "base", SOME(1)), crowded(tmp_path / "slower", SOME(2), compute_ms=40)
    ask = (slower, "--max-regression", "5", "--against", base)
    assert check(*ask, "--junit", "check.xml", "--github") == 1
    said = capsys.readouterr().out
    assert "1 of 3 checks fail: max-regression (unclear)." in said
    assert "::error title=whyidle check max-regression::" in said
    (failure,) = ElementTree.parse("check.xml").iter("failure")
    assert failure.get("type") == "unclear"
    found = told(capsys, *ask)["max-regression"]
    assert (found["status"], found["allowed"]) == ("unclear", False)
    assert check(*ask, "--noise", "2") == 1
    assert "FAIL  Throughput lost" in capsys.readouterr().out


def test_healthy_pairs_rarely_fail_and_regressions_rarely_pass(tmp_path: Path) -> None:
    """Runs of one setting that differ by 3 %, and the same at two thirds of the speed."""
    rng = SOME(5)
    healthy = [side_of("A", [noisy(tmp_path / f"h{n}", rng, steps=60, run_noise=0.03)]) for n in range(40)]
    slow = [side_of("B", [noisy(tmp_path / f"s{n}", rng, steps=60, run_noise=0.03, compute_ms=40)]) for n in range(10)]

    def passes(a: Side, b: Side) -> bool:
        return against_runs(Difference(a, b), "A", Asked({"max-regression": 5.0})).holds

    alarms = [not passes(a, b) for a, b in zip(healthy[::2], healthy[1::2], strict=True)]
    alarms += [not passes(b, a) for a, b in zip(healthy[::2], healthy[1::2], strict=True)]
    assert sum(alarms) <= 0.1 * len(alarms)
    assert not any(passes(a, b) for a, b in zip(healthy, slow, strict=False))


def test_against_a_report_no_more_is_claimed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    base, slower = (noisy(tmp_path / name, SOME(n), run_noise=0, compute_ms=n) for name, n in (("a", 20), ("b", 22)))
    saved = report_of(base)
    reach = []
    for against in (base, saved):
        note = told(capsys, slower, "--max-regression", "5", "--against", against)["max-regression"]["note"]
        ends = re.findall(r"([0-9.]+) % (less|more)", str(note))[:2]
        low, high = (float(value) * (1 if way == "less" else -1) for value, way in ends)
        reach.append(high - low)
    assert reach[1] >= 0.8 * reach[0]


def test_nothing_that_a_run_holds_begins_a_line(capsys: pytest.CaptureFixture[str]) -> None:
    """In GitHub's log a line of `::` would be a command."""
    print_document(check_document("run\n::a::", "device\n::b::", hostile_checks()), Console(highlight=False))
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 2 + len(hostile_checks())
    assert not any(line.startswith("::") for line in lines)


HOSTILE = 'r<u>&"n\x1b[31m\x00\ud800'


def hostile_checks() -> list[LimitCheck]:
    return [
        LimitCheck("max-stall", HOSTILE, "failed", False, 12.0, 10.0, True, "%", "a, b: 50 %\n::error::forged"),
        LimitCheck("min-au", "AU", "not measured", False, None, 10.0, False, "%", HOSTILE),
        LimitCheck("min-busy", "busy", "not measured", True, None, 10.0, False, "%"),
        LimitCheck("max-copy", "copy", "passed", False, 1.0, 10.0, True, "%"),
    ]


def test_junit_is_well_formed_whatever_a_run_holds() -> None:
    text = junit_xml(HOSTILE, hostile_checks(), {"device": HOSTILE})
    suites = ElementTree.fromstring(text.encode())
    suite = suites.find("testsuite")
    assert (suite.get("tests"), suite.get("failures"), suite.get("skipped")) == ("4", "2", "1")
    cases = [(case.get("name"), *(child.tag for child in case)) for case in suite.findall("testcase")]
    failed = [("max-stall", "failure"), ("min-au", "failure")]
    assert cases == [*failed, ("min-busy", "skipped"), ("max-copy", "system-out")]
    properties = {each.get("name"): each.get("value") for each in suite.iter("property")}
    assert properties["device"] == 'r<u>&"n?[31m??'


def test_annotations_hold_one_command_a_line() -> None:
    lines = list(workflow_commands("run", hostile_checks()))
    assert [line.split(" ", 1)[0] for line in lines] == ["::error", "::error", "::warning"]
    assert "50 %25%0A::error::forged" in lines[0]
    assert all("\n" not in line for line in lines)


def test_markdown_shows_no_markup_of_a_run_makes_no_link_of_a_note_and_shows_all_of_it() -> None:
    text = markdown(check_document("run|<b>", None, hostile_checks()))
    assert not re.search("<u>|<b>", text)
    rows = [line for line in text.splitlines() if line.startswith("| ")]
    assert all(row.replace("\\|", "").count("|") == 6 for row in rows)
    note = f"@torvalds #12 GH-12 http://a.b www.c.d {'word ' * 100}the way out"
    ended = LimitCheck("ended", "ended", "failed", False, "no", "yes", note=note)
    text = markdown(check_document("run", None, [ended]))
    assert not re.search(r"@\w|(?<!&)#\d|GH-\d|://|www\.", text)
    assert "the way out" in text


def test_github_gets_annotations_and_a_summary_by_itself(
    planted: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    summary = tmp_path / "summary.md"
    summary.write_text("before\n")
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(summary))
    assert check(planted, "--max-stall", "1", "--json") == 1
    assert summary.read_text().startswith("before\n###")
    both = capsys.readouterr()
    assert json.loads(both.out)["passed"] is False
    assert "::error" in both.err


def test_a_junit_file_replaces_an_earlier_one(
    planted: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file, mine = tmp_path / "check.xml", tmp_path / "notes.xml"
    file.touch()
    assert check(planted, "--max-stall", "1", "--junit", file) == 1
    assert check(planted, "--max-stall", "90", "--junit", file) == 0
    assert not any(case.find("failure") is not None for case in ElementTree.parse(file).iter("testcase"))
    assert check(planted, "--max-stall", "1", "--junit", tmp_path / "no" / "check.xml") == 2
    assert "cannot write" in capsys.readouterr().err
    mine.write_text("<notes/>")
    for other, why in ((mine, "is not a JUnit of an earlier check"), (planted / "run.json", "which would be lost")):
        before = other.read_text()
        assert check(planted, "--max-stall", "90", "--junit", other) == 2
        assert why in capsys.readouterr().err
        assert other.read_text() == before
