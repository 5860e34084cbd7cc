"""The confusion matrix in words and as JSON, on outcomes made by hand."""

from __future__ import annotations

import json

import pytest

from support.rendered import rendered
from whyidle.diagnosis_benchmark.confusion import JudgedRun, Named, confusion
from whyidle.diagnosis_benchmark.report import faults_json, faults_text

WIDTH = 100
SETTING = {
    "cpu_budget": 2.0,
    "repeats": 3,
    "machine": {"cpus": 4, "load": 0.25, "steal_pct": 1.5},
    "foreign_load": False,
}


def run(case: str, planted: tuple[str, ...], *named: tuple[str, float], true: float = 0.3) -> JudgedRun:
    findings = tuple(Named(cause, share, "critical") for cause, share in named)
    verdict = named[0][0] if named else "none"
    return JudgedRun(case, planted, verdict, findings, dict.fromkeys(planted, true), steps=76)


RUNS = [
    run("too_few_workers.middle", ("input.too_few_workers",), ("input.too_few_workers", 0.29)),
    run("too_few_workers.middle", ("input.too_few_workers",), ("input.cpu_exhausted", 0.29)),
    run("gc.severe", ("host.gc",), ("host.gc", 0.61), true=0.6),
    run("serial+boundary", ("input.serial", "host.boundary"), ("host.boundary", 0.2), ("input.serial", 0.28)),
    run("compute-bound", ()),
    run("noisy", (), ("input.foreign_load", 0.2)),
]
FAILED = [(f"cpu_quota.{severity}", "skipped", "needs a cgroup that can be written") for severity in ("mild", "severe")]


def shown(
    encoding: str = "utf-8",
    runs: list[JudgedRun] | None = None,
    failed: list[tuple[str, str, str]] = FAILED,
    width: int = WIDTH,
    **setting: object,
) -> list[str]:
    document = faults_text.document(confusion(RUNS if runs is None else runs), SETTING | setting, failed)
    return [line.rstrip() for line in rendered(document, width, encoding).splitlines()]


def line_of(lines: list[str], text: str) -> str:
    (line,) = [each for each in lines if text in each]
    return line


def test_the_first_line_says_the_machine_and_its_state() -> None:
    assert shown()[0] == "faults · 2 CPUs of 4, load 0.2 before, 1.5 % stolen, 3 rounds"
    beside = shown(repeats=1, foreign_load=True, cpu_budget=1.0, machine={"cpus": 1})[0]
    assert beside == "faults · 1 CPU, 1 round, beside a busy process of another session"


def test_what_was_named_instead_stands_in_its_row_and_the_row_stands_out() -> None:
    lines = shown()
    matrix = lines[: lines.index("What it cost in percent of the time: the truth, and what was reported (medians)")]
    wrong = line_of(matrix, "input.too_few_workers")
    assert wrong.split() == ["✗", "input.too_few_workers", "2", "1", "input.cpu_exhausted", "1"]
    assert line_of(matrix, "host.gc").split() == ["host.gc", "1", "1"]
    assert line_of(matrix, " none").split() == ["✗", "none", "2", "1", "input.foreign_load", "1"]


def test_shares_stand_beside_the_truth_with_their_distance() -> None:
    lines = shown()
    assert line_of(lines, "gc.severe").split() == ["gc.severe", "60.0", "61.0", "1.0", "1.0", "76"]
    assert line_of(lines, "too_few_workers.middle").split() == [
        *("✗", "too_few_workers.middle", "30.0", "29.0", "1.0", "1", "unnamed", "76")
    ]


def test_compounds_controls_and_what_did_not_run_have_sections_of_their_own() -> None:
    lines = shown()
    assert line_of(lines, "serial+boundary").split() == ["serial+boundary", "1", "of", "1"]
    of_it = [lines[lines.index(line_of(lines, "serial+boundary")) + n].split() for n in (1, 2)]
    assert of_it == [["input.serial", "30.0", "28.0", "0"], ["host.boundary", "30.0", "20.0", "1"]]
    noisy = ["✗", "noisy", "1", "0", "input.foreign_load", "1", "input.foreign_load", "1"]
    assert line_of(lines, "noisy").split() == noisy
    assert "  cpu_quota.mild, cpu_quota.severe: skipped: needs a cgroup that can be written" in lines
    assert line_of(lines, "Faults named first").startswith("  Faults named first: 2 of 3 (66.7 %, 95 % interval ")
    assert "  Shares within 5 points of the truth: 2 of 3" in line_of(lines, "Shares within")
    assert line_of(lines, "Their distance").endswith("median 1.0 points, worst 1.0; 1 not named at all")
    assert "1 of 1" in line_of(lines, "Compounds with both")
    assert "1 of 2" in line_of(lines, "Healthy runs")


def test_it_fits_the_width_however_much_was_confused() -> None:
    causes = [f"input.cause_number_{n}" for n in range(12)]
    lines = shown(runs=[run("input.too_few_workers.severe", ("input.too_few_workers",), (c, 0.3)) for c in causes])
    assert max(map(len, lines)) <= WIDTH
    text = " ".join(lines)
    assert all(f"{cause} 1" in " ".join(text.split()) for cause in causes)


def test_a_compound_that_got_another_name_says_which() -> None:
    causes = ("input.too_few_workers", "input.worker_restart")
    case = "compound.too_few_workers+worker_restart"
    lines = shown(runs=[run(case, causes, ("input.cpu_exhausted", 0.3)), run(case, causes, (causes[1], 0.3))], width=80)
    assert max(map(len, lines)) <= 80
    assert line_of(lines, case).split() == ["✗", case, "0", "of", "2"]
    assert line_of(lines, "input.worker_restart").split() == ["input.worker_restart", "30.0", "30.0", "1"]
    assert line_of(lines, "not planted").split() == ["input.cpu_exhausted,", "not", "planted", "1"]


def test_one_round_has_no_worst_of_its_errors() -> None:
    lines = shown(runs=[run("gc.severe", ("host.gc",), ("host.gc", 0.61), true=0.6)])
    assert "worst" not in line_of(lines, "  off by")
    assert line_of(lines, "gc.severe").split() == ["gc.severe", "60.0", "61.0", "1.0", "76"]
    assert "worst" in line_of(shown(), "  off by")


def test_of_many_cases_that_were_not_judged_for_one_reason_few_are_named() -> None:
    unrun = [(f"host.gc-{n}", "skipped", "not run: stopped by Ctrl-C") for n in range(40)]
    lines = shown(failed=[("host.sync-mild", "stopped", "stopped by Ctrl-C"), *unrun])
    assert "  host.sync-mild: stopped by Ctrl-C" in lines
    assert "  host.gc-0, host.gc-1 and 38 more: skipped: not run: stopped by Ctrl-C" in lines


@pytest.mark.parametrize(
    ("runs", "said"),
    [
        (1, "1 run of about 4 s: about 4 s"),
        (12, "12 runs of about 4 s: about 48 s"),
        (169, "169 runs of about 4 s: about 11 min"),
        (0, "nothing to run"),
    ],
)
def test_how_long_it_takes_is_said_before(runs: int, said: str) -> None:
    assert faults_text.ahead(runs, 4) == said


def test_an_output_without_block_characters_gets_ascii_signs() -> None:
    lines = shown("latin-1")
    assert line_of(lines, "noisy").split()[0] == "x"


def test_a_run_in_a_line_says_what_it_cost_and_whether_the_name_is_right() -> None:
    said = [faults_text.outcome(each) for each in RUNS]
    assert said[0] == (
        "planted input.too_few_workers, named input.too_few_workers; input.too_few_workers 29.0 %, in truth 30.0 %"
    )
    assert said[1].endswith("named input.cpu_exhausted (wrong); input.too_few_workers n/a %, in truth 30.0 %")
    assert said[4] == "planted nothing, named none"
    assert said[5] == "planted nothing, named input.foreign_load (wrong); input.foreign_load 20.0 %, critical"


def test_nothing_judged_says_so() -> None:
    lines = shown(runs=[])
    assert lines[-1] == "  Nothing was judged."
    assert "Healthy trainings" not in lines


def test_the_json_holds_the_same_figures() -> None:
    result = confusion(RUNS)
    told = json.loads(json.dumps(faults_json.matrix(result)))
    assert told["named_for"]["input.too_few_workers"] == {"input.too_few_workers": 1, "input.cpu_exhausted": 1}
    assert (told["faults_named_first"]["hits"], told["faults_named_first"]["of"]) == (2, 3)
    assert told["share_errors"]["unnamed"] == 1
    cells = {case.case: faults_json.of_case(case) for case in result.cases}
    gc = cells["gc.severe"]
    assert gc["named_first"] == "host.gc"
    assert gc["share_pct"] == {"true": pytest.approx(60), "reported": pytest.approx(61)}
    assert set(cells["serial+boundary"]["shares_pct"]) == {"input.serial", "host.boundary"}
    assert cells["compute-bound"]["share_pct"] == {"true": None, "reported": None}
