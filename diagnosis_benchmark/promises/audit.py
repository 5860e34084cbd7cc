"""Follows the first advice of each program's report: a setting by `tune --prove`, code by the program's other form."""

from __future__ import annotations

import contextlib
import json
import statistics
import subprocess
import sys
from pathlib import Path
from typing import Any

from ..execute import execute
from ..user_code import trials
from ..user_code.cases import BROKEN, FIXED, GONE, UserProgram
from ..user_code.judge import is_right
from .judge import CODE, SETTINGS, Followed, Promise, Removed

PROOF = "proof.json"
PROOF_S = 40
LOOKED = "report.json"
NOT_THIS = "for another change than the program's other form has"


def look(program: UserProgram, folder: Path) -> dict[str, Any] | None:
    """The report of the broken form's first round, kept as it was when the advice was followed."""
    at = trials.place(folder, program, BROKEN)
    with contextlib.suppress(OSError, ValueError):
        return dict(json.loads((at / LOOKED).read_text()))
    return refresh(program, folder)


def refresh(program: UserProgram, folder: Path) -> dict[str, Any] | None:
    """The same by today's rules."""
    at = trials.place(folder, program, BROKEN)
    told = trials.report(at)
    if told is not None:
        (at / LOOKED).write_text(json.dumps(told))
    return told


def settings_advised(report: dict[str, Any]) -> dict[str, Any]:
    """What the first advice sets of the loader; empty where it is none, or another change."""
    changes = report["verdict"]["next"]
    return dict(changes[0].get("settings") or {}) if changes else {}


def prove(program: UserProgram, folder: Path) -> None:
    """Try the first advice on the loader within one run; what was tried already is left."""
    at = folder / program.name / "proof"
    if (at / PROOF).exists():
        return
    at.mkdir(parents=True, exist_ok=True)
    command = [sys.executable, "-m", "whyidle", "tune", "--prove", "--no-live", "--budget", str(PROOF_S)]
    command += ["--out", str((at / "tune").resolve()), "--json", str((at / PROOF).resolve())]
    execute([*command, "--", sys.executable, str(program.program(BROKEN))], Path.cwd(), at / "output.txt")


def followed(program: UserProgram, folder: Path) -> Followed | None:
    """What the first advice promised, and what came; `None` where no report could be made or nothing is advised."""
    report = look(program, folder)
    if report is None or not report["verdict"]["next"]:
        return None
    verdict = report["verdict"]
    cause, change = verdict["cause"] or "none", verdict["next"][0]
    if settings_advised(report):
        proof = _proof(program, folder)
        if proof is None or proof["measured"] is None or not proof["first"]:
            return _made(program, cause, change, "it could not be tried within a run", None)
        # Both are of one run: the report within it is as any other.
        return _made(program, proof["cause"], proof["advice"], SETTINGS, float(proof["measured"]["value"]))
    if change.get("kind", "") not in program.remedies or program.settings:
        return _made(program, cause, change, NOT_THIS, None)
    return _made(program, cause, change, CODE, gained(program, folder, FIXED, cause))


def removed(program: UserProgram, folder: Path) -> Removed | None:
    """What the vanishing of the first line brings; `None` where the report names none of the program's lines first."""
    report = look(program, folder)
    lines = [] if report is None else report["verdict"].get("where") or []
    if report is None or not lines or not program.program(GONE).exists() or not is_right(program, lines[0]):
        return None
    measured = gained(program, folder, GONE, report["verdict"]["cause"] or "")
    if measured is None or lines[0].get("without") is None:
        return None
    return Removed(program.name, lines[0]["code"], _promise(lines[0]["without"]), measured)


def gained(program: UserProgram, folder: Path, form: str, cause: str) -> float | None:
    """The rate of another form over that of the broken one, the median over rounds; by their own clocks, but where the
    finding is about the whole run, or about what grows all along it. `None`: not measured."""
    ratios = []
    for number in range(trials.rounds(folder, program)):
        broken, other = (trials.place(folder, program, each, number) for each in (BROKEN, form))
        if cause == "run.startup":
            pair = _seconds(other), _seconds(broken)
        elif cause == "run.slowing":
            pair = _recorded(broken), _recorded(other)
        else:
            pair = trials.rate(broken / trials.OUTPUT), trials.rate(other / trials.OUTPUT)
        if pair[0] and pair[1]:
            ratios.append(pair[1] / pair[0])
    return statistics.median(ratios) if ratios else None


def _seconds(at: Path) -> float | None:
    report = trials.report(at)
    seconds = None if report is None else (report.get("run") or {}).get("duration_s")
    return float(seconds) if seconds else None


def _recorded(at: Path) -> float | None:
    """Steps a second of the recording."""
    report = trials.report(at)
    window = None if report is None else report.get("window")
    return window["steps"] / window["wall_s"] if window else None


def _proof(program: UserProgram, folder: Path) -> dict[str, Any] | None:
    with contextlib.suppress(OSError, ValueError, subprocess.SubprocessError):
        return dict(json.loads((folder / program.name / "proof" / PROOF).read_text()))
    return None


def _made(program: UserProgram, cause: str, change: dict[str, Any], how: str, measured: float | None) -> Followed:
    told = change.get("speedup")
    return Followed(
        program.name,
        cause,
        change.get("kind", ""),
        change["change"],
        how,
        None if told is None else _promise(told),
        bool(change.get("to_try")),
        measured,
    )


def _promise(told: dict[str, float]) -> Promise:
    return Promise(told["value"], told["low"], told["high"])
