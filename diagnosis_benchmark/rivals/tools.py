"""The tools that are compared: how each is run, as its documentation says, and what it cannot be given."""

from __future__ import annotations

import ast
import difflib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from whyidle.scenarios.faults.case import Case

from .environment import free_port

PROGRAMS = Path(__file__).with_name("programs")
BARE = "bare"
WHYIDLE, TRACEML, LOADTUNE, FOURNEX, GPU_IDLE = "whyidle", "TraceML", "loadtune", "fournex", "gpu-idle"

LOADTUNE_STEPS = 50
"""A trial's, as in its README's example of the Python interface; ten more come before that do not count."""
LOADTUNE_WARMUP = 10
GPU_IDLE_CONTROL = "control.compute"

Commands = list[list[str]]
"""Run one after another; only the first is timed as the training's."""


@dataclass(frozen=True)
class Tool:
    """One tool."""

    name: str
    package: str
    """At PyPI; whyidle is the one of this checkout."""
    program: str
    commands: Callable[[Path, Case], Commands]
    """(interpreter, case) -> what to run in the run's folder."""
    started: str
    """How a user starts it."""
    observes: bool = True
    """It watches a training of the user's; otherwise it runs one of its own."""
    profiled: tuple[int, int] | None = None
    """The steps that it watches, if not all."""
    note: str = ""
    """What a reader of its figures has to know."""

    def cannot(self, case: Case) -> str:
        """Why it cannot be given a case; empty: it can."""
        return CANNOT[self.name](case) if self.name in CANNOT else ""


def _script(python: Path, name: str) -> str:
    return str(python.with_name(name))


def _bare(python: Path, case: Case) -> Commands:
    return [_launched(python, "train.py", case)]


def _launched(python: Path, program: str, case: Case) -> list[str]:
    ranks = case.plan.ranks
    if ranks == 1:
        return [str(python), str(PROGRAMS / program)]
    launcher = ["-m", "torch.distributed.run", f"--nproc-per-node={ranks}", f"--master-port={free_port()}"]
    return [str(python), *launcher, str(PROGRAMS / program)]


def _whyidle(python: Path, case: Case) -> Commands:
    ours = [str(python), "-m", "whyidle"]
    return [
        [*ours, "run", "--no-live", "--out", "run", "--", *_launched(python, "train.py", case)],
        [*ours, "report", "run", "--format", "json", "-o", "report.json"],
    ]


def _traceml(python: Path, case: Case) -> Commands:
    command = [_script(python, "traceml"), "run", str(PROGRAMS / "train_traceml.py"), "--mode", "summary"]
    command += ["--logs-dir", "logs", "--run-name", "run"]
    command += ["--aggregator-port", str(free_port()), "--master-port", str(free_port())]
    return [[*command, *([f"--nproc-per-node={case.plan.ranks}"] if case.plan.ranks > 1 else [])]]


def _loadtune(python: Path, case: Case) -> Commands:
    command = [_script(python, "loadtune"), "tune", str(PROGRAMS / "workload_loadtune.py"), "--fast", "--no-plots"]
    command += ["--steps", str(LOADTUNE_STEPS), "--warmup", str(LOADTUNE_WARMUP)]
    return [[*command, "--workers", str(case.plan.loader.workers), "--save-raw", "raw.json"]]


def _fournex(python: Path, _case: Case) -> Commands:
    frx = _script(python, "frx")
    collect = [frx, "collect", "--name", "rivals", "--run-id", "run", "--out", "frx", "--no-zip", "--"]
    return [[*collect, str(python), str(PROGRAMS / "train_fournex.py")], [frx, "analyze", "frx/run"]]


def _gpu_idle(python: Path, _case: Case) -> Commands:
    train = [str(python), str(PROGRAMS / "train_gpu_idle.py")]
    return [train, [_script(python, "gpu-idle"), "trace.json"], [_script(python, "gpu-idle"), "trace.json", "--json"]]


def _loadtune_cannot(case: Case) -> str:
    if case.plan.data.first_worker_only:
        return "takes no iterable dataset"
    if case.plan.data.new_shape_every:
        return "draws samples in random order, so that no batch is of a shape of its own"
    if "host.boundary" in case.causes:
        return "its workload is one step: nothing comes between epochs"
    return _one_process(case)


def _gpu_idle_cannot(case: Case) -> str:
    if case.name != GPU_IDLE_CONTROL and not any(cause.startswith("input.") for cause in case.causes):
        return (
            f"without a GPU knows of the DataLoader only ({GPU_IDLE_CONTROL} shows what it says of a healthy training)"
        )
    return ""


def _one_process(case: Case) -> str:
    return "knows one process only" if case.plan.ranks > 1 else ""


CANNOT: Mapping[str, Callable[[Case], str]] = {
    LOADTUNE: _loadtune_cannot,
    FOURNEX: _one_process,
    GPU_IDLE: _gpu_idle_cannot,
}

NO_GPU = (
    "needs a GPU: all that it says rests on how busy that was. Without one it still tells how long the training was in "
    "its DataLoader, which counts here; the rest does not"
)

ALONE = Tool(BARE, "", "train.py", _bare, "`python train.py`")
TOOLS: Mapping[str, Tool] = {
    tool.name: tool
    for tool in (
        Tool(WHYIDLE, "", "train.py", _whyidle, "`whyidle run -- python train.py`"),
        Tool(TRACEML, "traceml-ai", "train_traceml.py", _traceml, "`traceml run train.py`"),
        Tool(LOADTUNE, "loadtune", "workload_loadtune.py", _loadtune, "`loadtune tune workload.py --fast`", False),
        Tool(FOURNEX, "fournex", "train_fournex.py", _fournex, "`frx collect -- python train.py`, `frx analyze`"),
        Tool(GPU_IDLE, "gpu-idle", "train_gpu_idle.py", _gpu_idle, "`gpu-idle trace.json`", True, (10, 39), NO_GPU),
    )
}


@dataclass(frozen=True)
class Changes:
    """Lines of code that a training's script needs for a tool."""

    new: int
    gone: int
    indented: int
    """Moved into a block, and otherwise as they were."""


def changes(tool: Tool) -> Changes:
    """What a tool's program has that the plain one has not; comments and docstrings do not count."""
    plain, theirs = (_code(PROGRAMS / name) for name in (ALONE.program, tool.program))
    stripped = [line.strip() for line in plain], [line.strip() for line in theirs]
    new = gone = indented = 0
    for kind, a, b, c, d in difflib.SequenceMatcher(None, *stripped, autojunk=False).get_opcodes():
        if kind == "equal":
            indented += sum(one != other for one, other in zip(plain[a:b], theirs[c:d], strict=True))
        else:
            gone, new = gone + b - a, new + d - c
    return Changes(new, gone, indented)


def _code(path: Path) -> list[str]:
    source = path.read_text()
    described = ast.parse(source).body[0].end_lineno  # what the program is, in words
    lines = source.splitlines()[described:]
    return [line for line in lines if line.strip() and not line.strip().startswith("#")]
