"""Programs with a fault in their own code under other tools: how these are run, read, and judged."""

from __future__ import annotations

import ast
import importlib.util
import json
from pathlib import Path
from types import ModuleType

import pytest

from whyidle_bench.__main__ import main
from whyidle_bench.rivals import user_programs
from whyidle_bench.rivals.judge import EXACT, FAMILY, NEEDS_GPU, SILENT, WRONG
from whyidle_bench.rivals.program_tools import PROGRAM_TOOLS, STEPPED, SaidOfProgram
from whyidle_bench.rivals.result import FAILED
from whyidle_bench.rivals.user_programs import NO_CAUSES, ProgramRuns, as_json, judged, place
from whyidle_bench.user_code.cases import BROKEN, UserProgram, all_programs, read

ZIPPED, CHECKPOINT, SLOWING = (
    read(name) for name in ("zipped_structures", "checkpoint_each_short_epoch", "csv_rewritten_each_step")
)
PROGRAM = ZIPPED.program(BROKEN)
(RIGHT,) = ZIPPED.numbers
RECORDED = Path(__file__).parents[1] / "data" / "rivals"
WHYIDLE, PY_SPY, SCALENE, TRACEML, GPU_IDLE = PROGRAM_TOOLS


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
    answer = judged(PROGRAM_TOOLS[WHYIDLE], said, ZIPPED, 1.0)
    assert (answer.level, answer.line_first, answer.line_named) == (EXACT, False, True)


@pytest.mark.parametrize(("tool", "words"), [(TRACEML, ("INPUT_BOUND",)), (GPU_IDLE, ("dataloader, num_workers=0",))])
def test_tools_that_name_no_lines_are_read_as_of_planted_faults(tool: str, words: tuple[str, ...]) -> None:
    said = PROGRAM_TOOLS[tool].read(RECORDED / "serial" / tool, PROGRAM)
    assert (said.words, said.rankings) == (words, ())
    assert judged(PROGRAM_TOOLS[tool], said, ZIPPED, 1.0).line_first is None


@pytest.mark.parametrize(
    ("tool", "words", "program", "level"),
    [
        (WHYIDLE, ("input.cpu_exhausted",), ZIPPED, EXACT),
        (WHYIDLE, ("input.serial",), ZIPPED, FAMILY),
        (WHYIDLE, ("host.gc",), ZIPPED, WRONG),
        (TRACEML, ("INPUT_BOUND", "HIGH_CPU"), ZIPPED, EXACT),
        (TRACEML, ("INPUT_BOUND",), CHECKPOINT, WRONG),
        (TRACEML, ("RESIDUAL_HEAVY",), SLOWING, FAMILY),
        (TRACEML, ("COMPUTE_BOUND",), ZIPPED, SILENT),
        (GPU_IDLE, ("smallbatch",), ZIPPED, NEEDS_GPU),
        (PY_SPY, (), ZIPPED, NO_CAUSES),
    ],
)
def test_words_are_judged_by_what_is_true_of_the_program(
    tool: str, words: tuple[str, ...], program: UserProgram, level: str
) -> None:
    assert judged(PROGRAM_TOOLS[tool], SaidOfProgram(words, (), ""), program, 1.0).level == level


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
    answer = judged(PROGRAM_TOOLS[PY_SPY], SaidOfProgram((), rankings, ""), ZIPPED, 1.0)
    assert (answer.line_first, answer.line_named) == (first, among)


class _Tools:
    """Stands in for what starts tools: it leaves what py-spy leaves, or is interrupted."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.made = 0
        self.interrupted_at: int | None = None
        monkeypatch.setattr(user_programs, "execute", self._execute)
        monkeypatch.setattr("whyidle_bench.rivals.compare_tools.environment", lambda place, needed: place)

    def _execute(self, command: list[str], folder: Path, output: Path, environment: object, longest_s: float) -> int:
        self.made += 1
        assert command[-1] == str(PROGRAM)
        (folder / "stacks.txt").write_text(_stack(_at(RIGHT), count=9))
        if self.made == self.interrupted_at:
            raise KeyboardInterrupt
        return 0


def test_a_run_that_was_stopped_goes_on_and_is_told_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    tools, figures = _Tools(monkeypatch), tmp_path / "figures.json"
    command = ["rivals", "--user-code", "--cases", ZIPPED.name, "--tools", PY_SPY, "--repeats", "2"]
    tools.interrupted_at = 2
    main([*command, "--out", str(tmp_path / "kept")])
    assert "stopped: the tables show what was run until then" in capsys.readouterr().err
    main([*command, "--out", str(tmp_path / "kept")])
    assert tools.made == 3, "the first of two, the second broken off, the second again"
    capsys.readouterr()
    main([*command, "--from", str(tmp_path / "kept"), "--json", str(figures)])
    assert tools.made == 3
    assert "| *line first* | | 2 of 2 (34 to 100 %) |" in capsys.readouterr().out
    assert json.loads(figures.read_text())["halves"]["before"]["rates"][PY_SPY]["line_first"]["hits"] == 2


def test_what_failed_is_no_hit(tmp_path: Path) -> None:
    tool = PROGRAM_TOOLS[SCALENE]
    for repeat, codes in enumerate(([3], [0])):  # it ended with an error; it left nothing
        at = place(tmp_path, ZIPPED, tool, repeat)
        at.mkdir(parents=True)
        (at / user_programs.RECORD).write_text(json.dumps({"exit_codes": codes, "seconds": [1.0]}))
    found = user_programs.judgements(tmp_path, ZIPPED, [tool])
    assert [each.level for each in found] == [FAILED, FAILED]
    assert found[0].sentence == "exit code 3"
    rate = as_json([ProgramRuns(ZIPPED, found)], [tool])["before"]["rates"][SCALENE]["line_first"]
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


@pytest.fixture(scope="module")
def stepped() -> ModuleType:
    spec = importlib.util.spec_from_file_location("stepped", STEPPED)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_every_program_has_one_training_loop(stepped: ModuleType) -> None:
    sources = [program.program(BROKEN).read_text() for program in all_programs()]
    assert sources
    assert {len(stepped.training_loops(ast.parse(source))) for source in sources} == {1}
