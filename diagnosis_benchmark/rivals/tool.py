"""What the benchmark has to know of a tool: how it is run, what it said, and what its words mean.

A tool is one object, `TOOL`, in one file: those in `tools/`, or any other that `--adapter` names.
"""

from __future__ import annotations

import ast
import difflib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from whyidle_bench.cases.case import Case

from .environment import free_port

PROGRAMS = Path(__file__).with_name("programs")
PLAIN = PROGRAMS / "train.py"
BARE = "bare"

Commands = list[list[str]]
"""Run one after another; only the first is timed as the training's."""


@dataclass(frozen=True)
class Said:
    """A tool's verdict on one run."""

    words: tuple[str, ...]
    """Its own terms for what it found; none: it found nothing."""
    sentence: str
    """What a user reads."""


@dataclass(frozen=True)
class Meaning:
    """Of one word of a tool's."""

    exact: frozenset[str] = frozenset()
    """Causes that it names."""
    families: frozenset[str] = frozenset()
    """Parts of the training that it names, by the first part of a code."""
    alarms: bool = True
    """It asks for something to be changed."""
    needs_gpu: bool = False
    """Without a GPU the tool says this because its figures are missing: it counts neither for it nor against it."""


def names(*exact: str, part: str = "", alarms: bool = True) -> Meaning:
    """Of a word that names these causes (`input.serial`), and so their parts; or a part (`input`) without a cause."""
    parts = {code.partition(".")[0] for code in exact} | ({part} if part else set())
    return Meaning(frozenset(exact), frozenset(parts), alarms)


NOTHING = Meaning(alarms=False)
GPU = Meaning(alarms=False, needs_gpu=True)


def _anything(_case: Case) -> str:
    return ""


def one_process(case: Case) -> str:
    """For `Tool.cannot`, of a tool that does not follow a training of several ranks."""
    return "knows one process only" if case.plan.ranks > 1 else ""


@dataclass(frozen=True)
class Tool:
    """One tool.

    Meanings are decided from the tool's documentation and sources, before any run, and generously. A word that lists
    several remedies at once for whatever it found (more workers, prefetching or faster storage) names the part of the
    training and no cause in it. One that says what is special about this run (no workers, the processor used up, a
    setting that was tried and is faster) names the cause, also where it might mean two.
    """

    name: str
    started: str
    """How a user starts it, for the table."""
    commands: Callable[[Path, Case], Commands]
    """(interpreter, case) -> what to run in the run's folder. The interpreter's environment has the tool."""
    read: Callable[[Path], Said]
    """What it said of the run in this folder. Raises OSError, ValueError or KeyError: it left nothing readable."""
    words: Mapping[str, Meaning] | None = None
    """All that it may say. `None`: its words are whyidle's cause codes, with `, minor` after what asks for nothing."""
    program: Path = PLAIN
    """The training with the changes to its code that the tool asks for."""
    package: str = ""
    """At PyPI; empty: the environment has it anyway, as it has all that this interpreter has."""
    version: str = ""
    cannot: Callable[[Case], str] = _anything
    """Why it cannot be given a case; empty: it can."""
    own_loop: tuple[int, int] | None = None
    """(warm-up, steps) of the first trial of a tool that watches no training but runs one itself, its samples in an
    order of its own. What a fault cost is judged by that trial."""
    profiled: tuple[int, int] | None = None
    """The steps that it watches, if not all."""
    note: str = ""
    """What a reader of its figures has to know."""

    @property
    def requirement(self) -> str:
        """For pip."""
        return f"{self.package}=={self.version}"

    def meaning(self, word: str) -> Meaning:
        """
        Raises:
            ValueError: the tool's documentation and sources have no such word.
        """
        if self.words is None:
            code, _, minor = word.partition(", ")
            return names(code, alarms=not minor)
        if word not in self.words:
            raise ValueError(f"{self.name} is not known to say {word!r}")
        return self.words[word]


def script(python: Path, name: str) -> str:
    """A command that a package has put beside the interpreter."""
    return str(python.with_name(name))


def launched(python: Path, program: Path, case: Case) -> list[str]:
    """A program as users start it: by torchrun where it has several ranks."""
    ranks = case.plan.ranks
    if ranks == 1:
        return [str(python), str(program)]
    launcher = ["-m", "torch.distributed.run", f"--nproc-per-node={ranks}", f"--master-port={free_port()}"]
    return [str(python), *launcher, str(program)]


ALONE = Tool(
    BARE,
    "`python train.py`",
    lambda python, case: [launched(python, PLAIN, case)],
    lambda _folder: Said((), ""),
)
"""The training under no tool."""


@dataclass(frozen=True)
class ScriptChanges:
    """Lines of code that a training's script needs for a tool."""

    new: int
    gone: int
    indented: int
    """Moved into a block, and otherwise as they were."""


def changes(tool: Tool) -> ScriptChanges:
    """What a tool's program has that the plain one has not; comments and docstrings do not count."""
    plain, theirs = (_code(path) for path in (PLAIN, tool.program))
    stripped = [line.strip() for line in plain], [line.strip() for line in theirs]
    new = gone = indented = 0
    for kind, a, b, c, d in difflib.SequenceMatcher(None, *stripped, autojunk=False).get_opcodes():
        if kind == "equal":
            indented += sum(one != other for one, other in zip(plain[a:b], theirs[c:d], strict=True))
        else:
            gone, new = gone + b - a, new + d - c
    return ScriptChanges(new, gone, indented)


def _code(path: Path) -> list[str]:
    source = path.read_text()
    described = ast.parse(source).body[0].end_lineno  # what the program is, in words
    lines = source.splitlines()[described:]
    return [line for line in lines if line.strip() and not line.strip().startswith("#")]
