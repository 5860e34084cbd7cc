"""One run of a training under a tool: started in a folder of its own, which keeps all that was said, and read again."""

from __future__ import annotations

import contextlib
import json
import os
import pickle
import time
import warnings
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass, replace
from multiprocessing import get_context
from pathlib import Path

from whyidle_bench.cases.case import Case
from whyidle_bench.cases.machine import confine
from whyidle_bench.cases.sizes import fitted
from whyidle_bench.cases.truth import Stamp, exposed_ns, read_stamps, true_share

from ..execute import execute
from .cases import as_shuffled
from .tool import PROGRAMS, Tool

RECORD = "run.json"
PLAN, BEGAN, FOLDER = "plan.pickle", "began.json", "RIVALS_FOLDER"
"""As in `programs/parts.py`."""
WARM_SHARE, WARM_STEPS = 0.05, 5
"""Of the steps, at most so many at the begin do not count for the truth, as they do not for whyidle's window."""
WASTE = ("fetch", "host", "boundary")


@dataclass(frozen=True)
class RivalRun:
    """How a run went; the rest is in its folder."""

    case: str
    tool: str
    repeat: int
    seconds: tuple[float, ...]
    """Of each command."""
    exit_codes: tuple[int, ...]
    begin_s: float | None
    """From the first command's start to the first step's batch."""
    end_s: float | None
    """From the last stamp of the training to the first command's end."""

    @property
    def failed(self) -> bool:
        return any(self.exit_codes)


def fit(case: Case, folder: Path) -> bytes:
    """The case with sizes that give what it asks for on this machine, as the programs read it."""
    plan = case.plan
    if plan.data.handover_ms or plan.step.of_handover:
        folder.mkdir(parents=True, exist_ok=True)
        with ProcessPoolExecutor(1, get_context("spawn")) as alone:
            case = alone.submit(_fitted, case, folder).result()
    return pickle.dumps(case)


def _fitted(case: Case, folder: Path) -> Case:
    # Torch's, about more workers than CPUs: that may be what is planted.
    warnings.simplefilter("ignore", UserWarning)
    confine(case.plan.machine.cpus)
    return replace(case, plan=fitted(case.plan, folder))


def run(tool: Tool, case: Case, repeat: int, folder: Path, python: Path, plan: bytes) -> RivalRun:
    """Train under a tool, or under none, and keep what it left in the folder."""
    folder.mkdir(parents=True)
    (folder / PLAN).write_bytes(plan)
    environment = os.environ | {FOLDER: str(folder.resolve())}
    # So that programs that lie elsewhere find `parts` too.
    environment["PYTHONPATH"] = os.pathsep.join(filter(None, (str(PROGRAMS), os.environ.get("PYTHONPATH"))))
    seconds, codes, began, ended = [], [], time.monotonic(), 0.0
    for number, command in enumerate(tool.commands(python, case)):
        begin = time.monotonic()
        codes.append(execute(command, folder, folder / f"output-{number}.txt", environment))
        seconds.append(time.monotonic() - begin)
        ended = ended or time.monotonic()
        if codes[-1]:
            break
    first, last = _first_and_last_s(folder)
    record = RivalRun(
        case.name,
        tool.name,
        repeat,
        tuple(seconds),
        tuple(codes),
        first - began if first else None,
        ended - last if last else None,
    )
    (folder / RECORD).write_text(json.dumps(asdict(record), indent=1))
    return record


def read(folder: Path) -> RivalRun:
    """What `run` has recorded."""
    told = json.loads((folder / RECORD).read_text())
    told["seconds"], told["exit_codes"] = tuple(told["seconds"]), tuple(told["exit_codes"])
    return RivalRun(**told)


def lost_share(case: Case, tool: Tool, folder: Path) -> float | None:
    """The share of the run's time that the fault cost; of a healthy training all that was not computing.

    `None` if the training said nothing.
    """
    with contextlib.suppress(OSError, ValueError, KeyError):
        stamps = read_stamps(folder)
        window = _window(stamps, tool)
        if window is not None:
            begin, end = window
            if not case.causes:
                return sum(exposed_ns(stamps, (), begin, end, part, "every") for part in WASTE) / (end - begin)
            shown = as_shuffled(case) if tool.own_loop is not None else case
            return sum(true_share(stamps, (), window, shown).values())
    return None


def step_us(folder: Path, steps: tuple[int, int] | None) -> float | None:
    """Mean time of these steps, by default of all but a tenth at the begin; `None` if the training said nothing."""
    with contextlib.suppress(OSError, ValueError, KeyError):
        starts = _starts(read_stamps(folder))
        low, high = steps or (len(starts) // 10, len(starts) - 1)
        if low < high < len(starts):
            return (starts[high] - starts[low]) / (high - low) / 1e3
    return None


def _window(stamps: Sequence[Stamp], tool: Tool) -> tuple[int, int] | None:
    starts = _starts(stamps)
    if not starts:
        return None
    if tool.own_loop is not None:
        # Its first trial: the configuration of the case.
        warmup, steps = tool.own_loop
        starts = [*starts, stamps[-1].end_ns]
        return starts[warmup], starts[min(warmup + steps, len(starts) - 1)]
    warm = min(WARM_STEPS, round(WARM_SHARE * len(starts)))
    return starts[warm], max(stamp.end_ns for stamp in stamps)


def _starts(stamps: Sequence[Stamp]) -> list[int]:
    """When each step began to wait for its batch."""
    return [each.begin_ns for each in stamps if each.what == "fetch" or each.tag == "gil"]


def _first_and_last_s(folder: Path) -> tuple[float | None, float | None]:
    with contextlib.suppress(OSError, ValueError, KeyError):
        first = json.loads((folder / BEGAN).read_text())["first_step_ns"] / 1e9
        return first, max(stamp.end_ns for stamp in read_stamps(folder)) / 1e9
    return None, None
