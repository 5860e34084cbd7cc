"""Tools that programs with a fault in their own code are given to: what each names there, a cause, lines, or both.

The programs are not changed, except that TraceML and torch's profiler (for gpu-idle) are told where a step ends, as
their documentation asks for (`programs/stepped.py`). fournex and loadtune are left out: the one wants the phases of
each step marked by hand, the other a workload of one step written anew for every program.
"""

from __future__ import annotations

import importlib.metadata
import json
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from .environment import free_port
from .tool import PROGRAMS, Commands, Meaning, script
from .tools import gpu_idle, traceml, whyidle

STEPPED = PROGRAMS / "stepped.py"
MOST_LINES = 3
"""Of a ranking, as many as whyidle shows."""

Ranking = tuple[int, ...]
"""Numbers of lines of the program, the one that takes most first."""


@dataclass(frozen=True)
class SaidOfProgram:
    """A tool's verdict on one run of a program."""

    words: tuple[str, ...]
    """Its own terms for what it found; none: it found nothing, or has no terms for causes."""
    rankings: tuple[Ranking, ...]
    """Its lines: one ranking, or where it tells processes apart one for the training and one for its workers."""
    sentence: str
    """What a user reads."""


@dataclass(frozen=True)
class ProgramTool:
    """One tool, as it is used on a program that is there."""

    name: str
    started: str
    """How a user starts it, for the table."""
    commands: Callable[[Path, Path], Commands]
    """(interpreter, program) -> what to run in the run's folder. The interpreter's environment has the tool."""
    read: Callable[[Path, Path], SaidOfProgram]
    """(the run's folder, program) -> what it said. Raises OSError, ValueError or KeyError: it left nothing readable."""
    meaning: Callable[[str], Meaning] | None = None
    """Of a word; `None`: it names no causes."""
    names_lines: bool = True
    package: str = ""
    """At PyPI; empty: the environment has it anyway."""
    version: str = ""

    @property
    def requirement(self) -> str:
        """For pip."""
        return f"{self.package}=={self.version}"


def _whyidle_commands(python: Path, program: Path) -> Commands:
    ours = [str(python), "-m", "whyidle"]
    return [
        [*ours, "run", "--no-live", "--out", "run", "--", str(python), str(program)],
        [*ours, "report", "run", "--format", "json", "-o", "report.json"],
    ]


def _whyidle_read(folder: Path, program: Path) -> SaidOfProgram:
    said = whyidle.TOOL.read(folder)
    where = json.loads((folder / "report.json").read_text())["verdict"].get("where") or []
    timed = [line for line in where if line["share_pct"] is not None] or where
    place = f"/{program.parent.name}/{program.name}"
    ranking = tuple(line["line"] if line["file"].endswith(place) else 0 for line in timed)
    return SaidOfProgram(said.words, (ranking,), said.sentence)


def _py_spy(python: Path) -> str:
    """Beside the interpreter; or where an environment has it whose packages that interpreter sees."""
    beside = Path(script(python, "py-spy"))
    if not beside.exists():
        packages = importlib.metadata.distributions(name="py-spy")  # none where the environment to be has none yet
        files = (file for package in packages for file in package.files or ())
        beside = next((Path(str(file.locate())) for file in files if file.name == "py-spy"), beside)
    return str(beside)


def _py_spy_commands(python: Path, program: Path) -> Commands:
    record = [
        _py_spy(python),
        "record",
        "--subprocesses",
        "--full-filenames",
        "--format",
        "raw",
        "--output",
        "stacks.txt",
    ]
    return [[*record, "--", str(python), str(program)]]


_PROCESS = re.compile(r"\Aprocess \d+")
_WORKER = re.compile(r"\A_worker_loop \(")


def _py_spy_read(folder: Path, program: Path) -> SaidOfProgram:
    """The innermost line of the program in each stack. Of a worker's only below the worker's loop: a fork begins with
    the calls that the training stood in."""
    of_training: Counter[int] = Counter()
    of_workers: Counter[int] = Counter()
    line_of = re.compile(rf" \({re.escape(str(program))}:(\d+)\)\Z")
    for told in (folder / "stacks.txt").read_text(errors="replace").splitlines():
        stack, _, count = told.rpartition(" ")
        frames = stack.split(";")
        is_child = sum(_PROCESS.match(frame) is not None for frame in frames) > 1
        loops = [at for at, frame in enumerate(frames) if _WORKER.match(frame)]
        mine = frames[loops[-1] + 1 :] if loops else frames
        found = next((match for frame in reversed(mine) if (match := line_of.search(frame))), None)
        if found is not None:
            (of_workers if is_child else of_training)[int(found[1])] += int(count)
    if not of_training and not of_workers:
        raise ValueError("it saw no line of the program")
    rankings = [_ranked(lines) for lines in (of_training, of_workers) if lines]
    shown = [
        f"{who}: {_shares(lines, program)}"
        for who, lines in (("the training", of_training), ("its other processes", of_workers))
        if lines
    ]
    return SaidOfProgram((), tuple(rankings), "; ".join(shown))


def _scalene_commands(python: Path, program: Path) -> Commands:
    return [[script(python, "scalene"), "run", "--cpu-only", "-o", "profile.json", str(program)]]


def _scalene_read(folder: Path, program: Path) -> SaidOfProgram:
    """Its three columns of time together: Python, native, system."""
    files = json.loads((folder / "profile.json").read_text())["files"]
    lines: Counter[int] = Counter()
    for each in files[str(program)]["lines"]:
        took = sum(each[column] for column in ("n_cpu_percent_python", "n_cpu_percent_c", "n_sys_percent"))
        lines[each["lineno"]] = round(1000 * took)
    lines = +lines
    if not lines:
        raise ValueError("it saw no line of the program")
    return SaidOfProgram((), (_ranked(lines),), _shares(lines, program))


def _traceml_commands(python: Path, program: Path) -> Commands:
    command = [script(python, "traceml"), "run", str(STEPPED), "--mode", "summary", "--logs-dir", "logs"]
    command += ["--run-name", "run", "--aggregator-port", str(free_port()), "--master-port", str(free_port())]
    return [[*command, "--args", "traceml", str(program)]]


def _traceml_read(folder: Path, _program: Path) -> SaidOfProgram:
    said = traceml.TOOL.read(folder)
    return SaidOfProgram(said.words, (), said.sentence)


def _gpu_idle_commands(python: Path, program: Path) -> Commands:
    reader = script(python, "gpu-idle")
    stepped = [str(python), str(STEPPED), "gpu-idle", str(program)]
    return [stepped, [reader, "trace.json"], [reader, "trace.json", "--json"]]


def _gpu_idle_read(folder: Path, _program: Path) -> SaidOfProgram:
    said = gpu_idle.TOOL.read(folder)
    return SaidOfProgram(said.words, (), said.sentence)


def _ranked(lines: Counter[int]) -> Ranking:
    return tuple(line for line, _ in lines.most_common(MOST_LINES))


def _shares(lines: Counter[int], program: Path) -> str:
    source = program.read_text().splitlines()
    return ", ".join(
        f"{program.name}:{line} {source[line - 1].strip()} ({100 * count / lines.total():.0f} %)"
        for line, count in lines.most_common(MOST_LINES)
    )


def by_name(tools: Sequence[ProgramTool]) -> Mapping[str, ProgramTool]:
    return {tool.name: tool for tool in tools}


OURS = ProgramTool(
    whyidle.TOOL.name,
    "`whyidle run -- python program.py`",
    _whyidle_commands,
    _whyidle_read,
    whyidle.TOOL.meaning,
)
PROGRAM_TOOLS = by_name(
    (
        OURS,
        ProgramTool(
            "py-spy",
            "`py-spy record --subprocesses -- python program.py`",
            _py_spy_commands,
            _py_spy_read,
            package="py-spy",
            version="0.4.3",
        ),
        ProgramTool(
            "Scalene",
            "`scalene run --cpu-only program.py`",
            _scalene_commands,
            _scalene_read,
            package="scalene",
            version="2.4.0",
        ),
        ProgramTool(
            traceml.TOOL.name,
            "`traceml run program.py`, with its `init` and a `trace_step` around the loop's body",
            _traceml_commands,
            _traceml_read,
            traceml.TOOL.meaning,
            names_lines=False,
            package=traceml.TOOL.package,
            version=traceml.TOOL.version,
        ),
        ProgramTool(
            gpu_idle.TOOL.name,
            "`gpu-idle trace.json`, of 30 steps under torch's profiler",
            _gpu_idle_commands,
            _gpu_idle_read,
            gpu_idle.TOOL.meaning,
            names_lines=False,
            package=gpu_idle.TOOL.package,
            version=gpu_idle.TOOL.version,
        ),
    )
)
