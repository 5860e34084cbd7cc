"""The benchmark of the rivals: how it reads and judges what they said, and that its training is what it claims."""

from __future__ import annotations

import dataclasses
import json
import marshal
import pickle
import re
from pathlib import Path

import pytest

from whyidle.errors import WhyidleError
from whyidle_bench.__main__ import PARTS, main
from whyidle_bench.cases.case import Case
from whyidle_bench.cases.registry import CASES
from whyidle_bench.cases.truth import Stamp, write_truth
from whyidle_bench.rivals import cost, tables
from whyidle_bench.rivals.cases import chosen
from whyidle_bench.rivals.judge import ALARM, EXACT, FAMILY, NEEDS_GPU, QUIET, SILENT, WRONG, judged
from whyidle_bench.rivals.registry import OURS, TOOLS, adapter
from whyidle_bench.rivals.result import FAILED, NOT_THERE, place, results
from whyidle_bench.rivals.run import PLAN, RECORD, RivalRun, lost_share
from whyidle_bench.rivals.tool import ALONE, BARE, Said, changes
from whyidle_bench.rivals.tools import fournex, gpu_idle, loadtune, traceml

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
        (WHYIDLE, ("input.handoff, minor",), "control.compute", QUIET),
        (WHYIDLE, ("input.handoff",), "control.compute", ALARM),
        (TRACEML, ("INPUT_BOUND",), "input.cpu_exhausted-middle", FAMILY),
        (TRACEML, ("INPUT_BOUND", "HIGH_CPU"), "input.cpu_exhausted-middle", EXACT),
        (TRACEML, ("INPUT_BOUND",), "host.gil-middle", WRONG),
        (TRACEML, ("RESIDUAL_HEAVY",), "host.step_gap-middle", EXACT),
        (TRACEML, ("RESIDUAL_HEAVY",), "host.gc-middle", FAMILY),
        (TRACEML, ("INPUT_STRAGGLER",), "rank.straggler-middle", EXACT),
        (TRACEML, ("INPUT_BOUND",), "rank.straggler-middle", FAMILY),
        (TRACEML, ("COMPUTE_BOUND",), "host.boundary-middle", SILENT),
        (TRACEML, ("INPUT_BOUND",), "host.boundary-middle", FAMILY),
        (TRACEML, ("INPUT_BOUND",), "host.boundary.save-middle", WRONG),
        (TRACEML, ("COMPUTE_BOUND",), "control.compute", QUIET),
        (TRACEML, ("RESIDUAL_HEAVY",), "control.compute", ALARM),
        (LOADTUNE, ("input-bound", "recommends prefetch"), "input.straggler-middle", EXACT),
        (LOADTUNE, ("mildly contended",), "input.prefetch_depth-middle", FAMILY),
        (LOADTUNE, ("mildly contended",), "host.gil-middle", SILENT),
        (LOADTUNE, ("mildly contended", "suggests more workers"), "control.compute", QUIET),
        (LOADTUNE, ("compute-bound", "recommends no workers"), "control.compute", ALARM),
        (LOADTUNE, ("compute-bound", "recommends no workers"), "input.overkill-middle", EXACT),
        (FOURNEX, ("launch_bound",), "input.serial-middle", NEEDS_GPU),
        (FOURNEX, ("launch_bound",), "control.compute", NEEDS_GPU),
        (FOURNEX, (), "input.serial-middle", SILENT),
        (FOURNEX, ("launch_bound", "shape_instability"), "device.shape_churn-middle", EXACT),
        (FOURNEX, ("input_bound",), "device.shape_churn-middle", WRONG),
        (FOURNEX, (), "control.compute", QUIET),
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


def _left(
    at: Path,
    case: Case,
    tool: str,
    stamps: list[Stamp],
    recorded: str | None = None,
    begin_s: float = 1.0,
    code: int = 0,
) -> None:
    """A run's folder as `run` leaves it, with the tool's own files as they were recorded."""
    at.mkdir(parents=True)
    if recorded is not None:
        for path in (RECORDED / recorded / tool).rglob("*.*"):
            target = at / path.relative_to(RECORDED / recorded / tool)
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(path.read_bytes())
    (at / PLAN).write_bytes(pickle.dumps(case))
    write_truth(at, case, stamps)
    record = RivalRun(case.name, tool, 0, (5.0,), (code,), begin_s, 0.5)
    (at / RECORD).write_text(json.dumps(dataclasses.asdict(record)))


def test_loadtunes_share_is_that_of_its_first_trial(tmp_path: Path) -> None:
    # Sixty steps of the baseline; then it tries something better.
    later = [_shifted(stamp, 60 * 50 * MS) for stamp in _stamps(0, 20, 60)]
    _left(tmp_path / "run", SERIAL, LOADTUNE, [*_stamps(30, 20, 60), *later])
    assert lost_share(SERIAL, TOOLS[LOADTUNE], tmp_path / "run") == pytest.approx(0.6, abs=0.02)


def _shifted(stamp: Stamp, by_ns: int) -> Stamp:
    return stamp._replace(begin_ns=stamp.begin_ns + by_ns, end_ns=stamp.end_ns + by_ns)


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
    assert added.begin_s is not None
    assert added.begin_s.median == pytest.approx(0.5)


@pytest.fixture
def example(tmp_path: Path) -> Path:
    """The adapter that the benchmark's README shows."""
    shown = (Path(__file__).parents[2] / "diagnosis_benchmark" / "README.md").read_text()
    (code,) = re.findall(r"```python\n(.*?)```", shown, re.DOTALL)
    path = tmp_path / "my_tool.py"
    path.write_text(code)
    return path


def test_the_adapter_of_the_readme_is_read_and_judged_as_any_tool(example: Path, tmp_path: Path) -> None:
    tool = adapter(example)
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


@pytest.mark.parametrize(
    ("content", "says"), [("TOOL = 3", "has no TOOL"), (None, "no Python file"), ("{ours}", "called whyidle")]
)
def test_a_file_that_has_no_tool_of_its_own_is_refused(content: str | None, says: str, tmp_path: Path) -> None:
    path = tmp_path / "mine.py"
    if content is not None:
        ours = "from whyidle_bench.rivals.tools.whyidle import TOOL"
        path.write_text(content.format(ours=ours))
    with pytest.raises(WhyidleError, match=says):
        adapter(path)


@pytest.mark.parametrize("part", PARTS)
def test_every_part_has_help_with_an_example(part: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main([part, "--help"])
    assert ended.value.code == 0
    assert f"example: whyidle-bench {part}" in capsys.readouterr().out
