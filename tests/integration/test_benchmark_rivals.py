"""The benchmark of the rivals: how it reads and judges what they said, and that its training is what it claims."""

from __future__ import annotations

import ast
import dataclasses
import json
import marshal
import pickle
import re
import runpy
from pathlib import Path
from typing import Any

import pytest

from whyidle.errors import WhyidleError
from whyidle_bench.__main__ import PARTS, main
from whyidle_bench.cases.case import Case
from whyidle_bench.cases.registry import CASES
from whyidle_bench.cases.truth import Stamp, write_truth
from whyidle_bench.rivals import cost, tables, user_programs
from whyidle_bench.rivals.cases import chosen
from whyidle_bench.rivals.judge import ALARM, EXACT, FAMILY, NEEDS_GPU, QUIET, SILENT, WRONG, judged
from whyidle_bench.rivals.program_tools import PROGRAM_TOOLS, STEPPED, SaidOfProgram
from whyidle_bench.rivals.registry import OURS, TOOLS, adapter
from whyidle_bench.rivals.result import FAILED, NOT_THERE, place, results
from whyidle_bench.rivals.run import PLAN, RECORD, RivalRun, lost_share
from whyidle_bench.rivals.tool import ALONE, BARE, Said, changes
from whyidle_bench.rivals.tools import fournex, gpu_idle, loadtune, traceml
from whyidle_bench.user_code.cases import BROKEN, UserProgram, all_programs, read

RECORDED = Path(__file__).parents[1] / "data" / "rivals"
"""What tools left of the middle `input.serial`, `input.straggler` and `device.shape_churn`, `control.compute`."""
SERIAL, COMPUTE = CASES["input.serial-middle"], CASES["control.compute"]
MS = 1_000_000
WHYIDLE, TRACEML, LOADTUNE = OURS.name, traceml.TOOL.name, loadtune.TOOL.name
FOURNEX, GPU_IDLE = fournex.TOOL.name, gpu_idle.TOOL.name


@pytest.mark.parametrize(
    ("tool", "recorded", "words"),
    [
        (WHYIDLE, "serial", ("input.serial",)),
        (WHYIDLE, "compute", ("input.handoff, minor",)),
        (TRACEML, "serial", ("INPUT_BOUND",)),
        (TRACEML, "compute", ("NO_CLEAR_PERFORMANCE_BOTTLENECK",)),
        (LOADTUNE, "serial", ("input-bound", "recommends workers", "recommends persistent")),
        (LOADTUNE, "compute", ("compute-bound",)),
        (LOADTUNE, "straggler", ("input-bound", "recommends prefetch", "recommends persistent")),
        (FOURNEX, "serial", ("input_bound",)),
        (FOURNEX, "compute", ("launch_bound",)),
        (FOURNEX, "shapes", ("launch_bound", "shape_instability")),
        (GPU_IDLE, "serial", ("dataloader, num_workers=0",)),
        (GPU_IDLE, "compute", ("smallbatch",)),
    ],
)
def test_what_a_tool_left_is_read_in_its_own_words(tool: str, recorded: str, words: tuple[str, ...]) -> None:
    assert TOOLS[tool].read(RECORDED / recorded / tool).words == words


@pytest.mark.parametrize(
    ("tool", "words", "case", "level"),
    [
        (WHYIDLE, ("input.serial",), "input.serial-middle", EXACT),
        (WHYIDLE, ("input.storage",), "input.serial-middle", FAMILY),
        (WHYIDLE, ("host.gc",), "input.serial-middle", WRONG),
        (WHYIDLE, ("input.handoff",), "control.compute", ALARM),
        (TRACEML, ("INPUT_BOUND",), "input.cpu_exhausted-middle", FAMILY),
        (TRACEML, ("INPUT_BOUND", "HIGH_CPU"), "input.cpu_exhausted-middle", EXACT),
        (TRACEML, ("INPUT_STRAGGLER",), "rank.straggler-middle", EXACT),
        (TRACEML, ("RESIDUAL_HEAVY",), "host.step_gap-middle", EXACT),
        (LOADTUNE, ("input-bound", "recommends prefetch"), "input.straggler-middle", EXACT),
        (TRACEML, ("INPUT_BOUND",), "host.gil-middle", WRONG),
        (TRACEML, ("COMPUTE_BOUND",), "host.boundary-middle", SILENT),
        (TRACEML, ("RESIDUAL_HEAVY",), "control.compute", ALARM),
        (LOADTUNE, ("mildly contended",), "input.prefetch_depth-middle", FAMILY),
        (LOADTUNE, ("compute-bound", "recommends no workers"), "control.compute", ALARM),
        (LOADTUNE, ("compute-bound", "recommends no workers"), "input.overkill-middle", EXACT),
        (FOURNEX, ("launch_bound",), "input.serial-middle", NEEDS_GPU),
        (FOURNEX, ("launch_bound", "shape_instability"), "device.shape_churn-middle", EXACT),
        (GPU_IDLE, ("smallbatch", "dataloader"), "input.serial-middle", FAMILY),
    ],
)
def test_words_are_judged_by_the_best_that_can_be_made_of_them(
    tool: str, words: tuple[str, ...], case: str, level: str
) -> None:
    assert judged(TOOLS[tool], Said(words, ""), CASES[case]) == level


def test_faults_that_need_a_gpu_are_shown_to_nobody() -> None:
    names = chosen((), everything=True)
    parts = {"input", "host", "rank", "control", "device", "run"}
    assert {case.name.partition(".")[0] for case in names.cases} == parts
    assert {cause for case in names.cases for cause in case.causes if "device" in cause} == {"device.shape_churn"}
    assert "needs a GPU" in names.skipped["copy.pageable-middle"]
    assert {"host.sync-middle", "host.launch-middle", "device.throttled-middle"} <= set(names.skipped)
    assert not any(name.startswith(("input.serial", "host.gc")) for name in names.skipped)


def test_the_lines_that_a_tool_needs_are_counted() -> None:
    assert changes(TOOLS[WHYIDLE]) == changes(ALONE)
    assert changes(ALONE).new == changes(ALONE).indented == 0
    traceml = changes(TOOLS[TRACEML])
    # Its import, `init` and `trace_step`, in which the loop's body is put; comments are no code.
    assert (traceml.new, traceml.gone) == (3, 0)
    assert traceml.indented >= 4
    assert changes(TOOLS[LOADTUNE]).new > changes(TOOLS[FOURNEX]).new > traceml.new


def _stamps(waits_ms: int, computes_ms: int, steps: int = 40) -> list[Stamp]:
    stamps, now = [], 0
    for _ in range(steps):
        stamps.append(Stamp("fetch", now, now + waits_ms * MS))
        now += waits_ms * MS
        stamps.append(Stamp("compute", now, now + computes_ms * MS))
        now += computes_ms * MS
    return stamps


def _left(at: Path, case: Case, tool: str, stamps: list[Stamp], recorded: str | None = None, **more: Any) -> None:
    """A run's folder as `run` leaves it, with the tool's own files as they were recorded."""
    at.mkdir(parents=True)
    if recorded is not None:
        for path in (RECORDED / recorded / tool).rglob("*.*"):
            target = at / path.relative_to(RECORDED / recorded / tool)
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(path.read_bytes())
    (at / PLAN).write_bytes(pickle.dumps(case))
    write_truth(at, case, stamps)
    record = RivalRun(case.name, tool, 0, (5.0,), (more.get("code", 0),), more.get("begin_s", 1.0), 0.5)
    (at / RECORD).write_text(json.dumps(dataclasses.asdict(record)))


def test_loadtunes_share_is_that_of_its_first_trial(tmp_path: Path) -> None:
    # Sixty steps of the baseline; then it tries something better.
    shift = 60 * 50 * MS
    later = [s._replace(begin_ns=s.begin_ns + shift, end_ns=s.end_ns + shift) for s in _stamps(0, 20, 60)]
    _left(tmp_path / "run", SERIAL, LOADTUNE, [*_stamps(30, 20, 60), *later])
    assert lost_share(SERIAL, TOOLS[LOADTUNE], tmp_path / "run") == pytest.approx(0.6, abs=0.02)


def test_runs_are_judged_only_where_the_fault_was_there_and_controls_where_they_were_healthy(
    tmp_path: Path,
) -> None:
    _left(place(tmp_path, SERIAL.name, TRACEML, 0), SERIAL, TRACEML, _stamps(30, 20), "serial")
    _left(place(tmp_path, SERIAL.name, TRACEML, 1), SERIAL, TRACEML, _stamps(1, 20), "serial")
    _left(place(tmp_path, SERIAL.name, FOURNEX, 0), SERIAL, FOURNEX, _stamps(30, 20), "serial", code=3)
    _left(place(tmp_path, SERIAL.name, GPU_IDLE, 0), SERIAL, GPU_IDLE, _stamps(30, 20))
    _left(place(tmp_path, COMPUTE.name, TRACEML, 0), COMPUTE, TRACEML, _stamps(1, 20), "compute")
    _left(place(tmp_path, COMPUTE.name, LOADTUNE, 0), COMPUTE, LOADTUNE, _stamps(30, 20, 90), "compute")
    fault, control = results(tmp_path, list(TOOLS.values()))
    assert [each.level for each in fault.of(TRACEML)] == [FAMILY, NOT_THERE]
    assert [each.level for each in fault.of(FOURNEX)] == [FAILED]
    assert fault.of(FOURNEX)[0].sentence == "exit code 3"
    assert [each.level for each in fault.of(GPU_IDLE)] == [FAILED]  # it left nothing
    assert [each.level for each in control.of(TRACEML)] == [QUIET]
    assert [each.level for each in control.of(LOADTUNE)] == [NOT_THERE]


def test_the_table_says_where_a_rival_did_better(tmp_path: Path) -> None:
    straggler = CASES["input.straggler-middle"]
    stamps = [stamp._replace(tag="slow") for stamp in _stamps(30, 20, 90)]
    _left(place(tmp_path, straggler.name, WHYIDLE, 0), straggler, WHYIDLE, stamps, "serial")
    _left(place(tmp_path, straggler.name, LOADTUNE, 0), straggler, LOADTUNE, stamps, "straggler")
    tools = [TOOLS[WHYIDLE], TOOLS[LOADTUNE]]
    found = list(results(tmp_path, tools))
    lines = list(tables.faults(found, tools, {"copy.link-middle": "needs a GPU"}))
    assert "| input.straggler-middle | part | **exact** | 60 (60 to 60) |" in lines
    assert "- input.straggler-middle: loadtune did better than whyidle." in lines
    assert "- copy.link-middle: needs a GPU." in lines


def test_what_a_tool_adds_is_counted_against_the_bare_run_of_its_round(tmp_path: Path) -> None:
    # Rounds differ by far more than the tool adds.
    for number, bare_ms in enumerate((10, 30, 20)):
        for tool, ms, begin in ((BARE, bare_ms, 2.0 + number), (TRACEML, bare_ms + 1, 2.5 + number)):
            case = cost.cost_case(1.0)
            _left(cost.place(tmp_path, 1.0, number, tool), case, tool, _stamps(0, ms, 50), begin_s=begin)
    (added,), bare, rounds = cost.costs(tmp_path, [TOOLS[TRACEML]])
    assert rounds == 3
    assert bare[1.0] == pytest.approx(20_000)
    assert added.step_us[1.0].median == pytest.approx(1000)
    assert added.step_us[1.0].low == added.step_us[1.0].high
    assert added.begin_s.median == pytest.approx(0.5)


def test_the_adapter_of_the_readme_is_read_and_judged_as_any_tool(tmp_path: Path) -> None:
    shown = (Path(__file__).parents[2] / "diagnosis_benchmark" / "README.md").read_text()
    (code,) = re.findall(r"```python\n(.*?)```", shown, re.DOTALL)
    (tmp_path / "my_tool.py").write_text(code)
    tool = adapter(tmp_path / "my_tool.py")
    assert changes(tool) == changes(ALONE)
    for case, waits, waited in ((SERIAL, 30, 6.0), (COMPUTE, 1, 0.2)):
        at = place(tmp_path, case.name, tool.name, 0)
        _left(at, case, tool.name, _stamps(waits, 20))
        # What cProfile writes: calls, calls but those within others, own seconds, seconds with all that is called.
        profile = {
            ("lib/dataloader.py", 7, "__next__"): (40, 40, waited, waited, {}),
            ("train.py", 1, "<module>"): (1, 1, 10 - waited, 10.0, {}),
        }
        (at / "profile.pstats").write_bytes(marshal.dumps(profile))
    serial, compute = results(tmp_path, [OURS, tool])
    assert [(each.level, each.sentence) for each in serial.of(tool.name)] == [
        (FAMILY, "60 % of the time in the DataLoader.")
    ]
    assert [each.level for each in compute.of(tool.name)] == [QUIET]
    assert "| input.serial-middle | part | 60 (60 to 60) |" in list(tables.faults([serial], [tool], {}))
    assert "| cProfile | waits | - | input |" in list(tables.words([OURS, tool]))


def test_a_file_that_has_no_tool_of_its_own_is_refused(tmp_path: Path) -> None:
    path, ours = tmp_path / "mine.py", "from whyidle_bench.rivals.tools.whyidle import TOOL"
    with pytest.raises(WhyidleError, match="no Python file"):
        adapter(path)
    for content, says in (("TOOL = 3", "has no TOOL"), (ours, "called whyidle")):
        path.write_text(content)
        with pytest.raises(WhyidleError, match=says):
            adapter(path)


@pytest.mark.parametrize("part", PARTS)
def test_every_part_has_help_with_an_example(part: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main([part, "--help"])
    assert ended.value.code == 0
    assert f"example: whyidle-bench {part}" in capsys.readouterr().out


# Programs with a fault in their own code, under other tools

ZIPPED, CHECKPOINT, SLOWING = (
    read(name) for name in ("zipped_structures", "checkpoint_each_short_epoch", "csv_rewritten_each_step")
)
PROGRAM = ZIPPED.program(BROKEN)
(RIGHT,) = ZIPPED.numbers
_, PY_SPY, SCALENE, _, _ = PROGRAM_TOOLS


def _stack(*frames: str, count: int, processes: int = 1) -> str:
    started = [f'process {number}:"python {PROGRAM}"' for number in range(1, processes + 1)]
    return f"{';'.join((*started, *frames))} {count}"


def _at(line: int, function: str = "main") -> str:
    return f"{function} ({PROGRAM}:{line})"


def test_of_py_spy_the_programs_innermost_line_counts_by_process(tmp_path: Path) -> None:
    forked = (_at(91), "_worker_loop (/usr/lib/torch/utils/data/_utils/worker.py:375)")
    stacks = [
        _stack(_at(91), "__next__ (/usr/lib/torch/utils/data/dataloader.py:7)", count=50),
        _stack(_at(94), count=80),
        _stack(*forked, _at(RIGHT, "__getitem__"), "open (/usr/lib/zipfile.py:12)", count=30, processes=2),
        _stack(*forked, _at(41, "__getitem__"), count=20, processes=2),
        # A worker that does nothing of the program's is not where the training stood when it was forked.
        _stack(*forked, "send (/usr/lib/multiprocessing/reduction.py:149)", count=900, processes=2),
    ]
    (tmp_path / "stacks.txt").write_text("\n".join(stacks) + "\n")
    said = PROGRAM_TOOLS[PY_SPY].read(tmp_path, PROGRAM)
    assert said.rankings == ((94, 91), (RIGHT, 41))
    assert f"broken.py:{RIGHT} {ZIPPED.lines[0]} (60 %)" in said.sentence


def test_of_scalene_all_kinds_of_time_count_together(tmp_path: Path) -> None:
    def line(number: int, python: float, native: float, system: float) -> dict[str, float]:
        shares = {"n_cpu_percent_python": python, "n_cpu_percent_c": native, "n_sys_percent": system}
        return {"lineno": number, **shares}

    lines = [line(91, 6.0, 0.0, 30.0), line(94, 20.0, 5.0, 0.0), line(1, 0.0, 0.0, 0.0)]
    (tmp_path / "profile.json").write_text(json.dumps({"files": {str(PROGRAM): {"lines": lines}}}))
    assert PROGRAM_TOOLS[SCALENE].read(tmp_path, PROGRAM).rankings == ((91, 94),)


def test_of_whyidle_the_lines_of_the_verdict_count_as_in_its_own_table(tmp_path: Path) -> None:
    where = [
        {"file": str(PROGRAM), "line": 79, "share_pct": None},
        {"file": "/usr/lib/zipfile.py", "line": RIGHT, "share_pct": 50.0},
        {"file": str(PROGRAM), "line": RIGHT, "share_pct": 20.0},
    ]
    verdict = {"cause": ZIPPED.cause, "severity": "major", "title": "It waits.", "where": where}
    (tmp_path / "report.json").write_text(json.dumps({"verdict": verdict}))
    said = PROGRAM_TOOLS[WHYIDLE].read(tmp_path, PROGRAM)
    assert said.rankings == ((0, RIGHT),)
    answer = user_programs.judged(PROGRAM_TOOLS[WHYIDLE], said, ZIPPED, 1.0)
    assert (answer.level, answer.line_first, answer.line_named) == (EXACT, False, True)


@pytest.mark.parametrize(
    ("tool", "words", "program", "level"),
    [
        (WHYIDLE, ("input.cpu_exhausted",), ZIPPED, EXACT),
        (WHYIDLE, ("host.gc",), ZIPPED, WRONG),
        (TRACEML, ("INPUT_BOUND",), CHECKPOINT, WRONG),
        (TRACEML, ("RESIDUAL_HEAVY",), SLOWING, FAMILY),
        (TRACEML, ("COMPUTE_BOUND",), ZIPPED, SILENT),
        (GPU_IDLE, ("smallbatch",), ZIPPED, NEEDS_GPU),
        (PY_SPY, (), ZIPPED, user_programs.NO_CAUSES),
    ],
)
def test_words_are_judged_by_what_is_true_of_the_program(
    tool: str, words: tuple[str, ...], program: UserProgram, level: str
) -> None:
    assert user_programs.judged(PROGRAM_TOOLS[tool], SaidOfProgram(words, (), ""), program, 1.0).level == level


@pytest.mark.parametrize(
    ("rankings", "first", "among"),
    [
        (((94, 91), (RIGHT, 41)), True, True),
        (((94, RIGHT), (41,)), False, True),
        (((94, 91, 92, RIGHT),), False, False),
    ],
)
def test_the_first_line_of_either_kind_of_process_may_be_right(
    rankings: tuple[tuple[int, ...], ...], first: bool, among: bool
) -> None:
    answer = user_programs.judged(PROGRAM_TOOLS[PY_SPY], SaidOfProgram((), rankings, ""), ZIPPED, 1.0)
    assert (answer.line_first, answer.line_named) == (first, among)


def test_a_run_that_was_stopped_goes_on_and_is_told_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    made, figures = [], tmp_path / "figures.json"

    def execute(command: list[str], folder: Path, *_: object, **__: object) -> int:
        """Leaves what py-spy leaves; the second time it is interrupted."""
        made.append(command[-1])
        (folder / "stacks.txt").write_text(_stack(_at(RIGHT), count=9))
        if len(made) == 2:
            raise KeyboardInterrupt
        return 0

    monkeypatch.setattr(user_programs, "execute", execute)
    monkeypatch.setattr("whyidle_bench.rivals.compare_tools.environment", lambda place, needed: place)
    command = ["rivals", "--user-code", "--cases", ZIPPED.name, "--tools", PY_SPY, "--repeats", "2"]
    main([*command, "--out", str(tmp_path / "kept")])
    assert "stopped: the tables show what was run until then" in capsys.readouterr().err
    main([*command, "--out", str(tmp_path / "kept")])
    assert made == 3 * [str(PROGRAM)], "the first of two, the second broken off, the second again"
    capsys.readouterr()
    main([*command, "--from", str(tmp_path / "kept"), "--json", str(figures)])
    assert len(made) == 3
    assert "| *line first* | | 2 of 2 (34 to 100 %) |" in capsys.readouterr().out
    assert json.loads(figures.read_text())["halves"]["before"]["rates"][PY_SPY]["line_first"]["hits"] == 2


def test_what_failed_is_no_hit(tmp_path: Path) -> None:
    tool = PROGRAM_TOOLS[SCALENE]
    for repeat, codes in enumerate(([3], [0])):  # it ended with an error; it left nothing
        at = user_programs.place(tmp_path, ZIPPED, tool, repeat)
        at.mkdir(parents=True)
        (at / user_programs.RECORD).write_text(json.dumps({"exit_codes": codes, "seconds": [1.0]}))
    found = user_programs.judgements(tmp_path, ZIPPED, [tool])
    assert [each.level for each in found] == [FAILED, FAILED]
    assert found[0].sentence == "exit code 3"
    rate = user_programs.as_json([user_programs.ProgramRuns(ZIPPED, found)], [tool])["before"]["rates"][SCALENE][
        "line_first"
    ]
    assert (rate["hits"], rate["of"]) == (0, 2)


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--half", "before"], "--half is of the programs that --user-code gives"),
        (["--user-code", "--all"], "--adapter and --all are of planted faults"),
        (["--user-code", "--tools", "fournex"], "unknown tool 'fournex': they are whyidle, py-spy, Scalene"),
        (["--user-code", "--cases", "gremlins"], "no program is called gremlins"),
    ],
)
def test_options_that_do_not_fit_are_one_message(
    words: list[str], says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["rivals", *words]) == 2
    assert says in capsys.readouterr().err


def test_every_program_has_one_training_loop() -> None:
    training_loops = runpy.run_path(str(STEPPED))["training_loops"]
    sources = [program.program(BROKEN).read_text() for program in all_programs()]
    assert sources
    assert {len(training_loops(ast.parse(source))) for source in sources} == {1}
