"""Follows what each program's report advises first: a setting by `tune --prove`, code by the program's other form."""

from __future__ import annotations

import contextlib
import json
import statistics
import subprocess
import sys
from collections.abc import Iterator
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
NOT_TRIED = "it could not be tried within a run"
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


def advises_settings(report: dict[str, Any]) -> bool:
    """Whether the first advice of any finding is a setting of the loader."""
    return any(_settings(finding) for finding in _findings(report))


def prove(program: UserProgram, folder: Path) -> None:
    """Try the first advice that is a setting of the loader within one run; what was tried already is left."""
    at = folder / program.name / "proof"
    if (at / PROOF).exists():
        return
    at.mkdir(parents=True, exist_ok=True)
    command = [sys.executable, "-m", "whyidle", "tune", "--prove", "--no-live", "--budget", str(PROOF_S)]
    command += ["--out", str((at / "tune").resolve()), "--json", str((at / PROOF).resolve())]
    execute([*command, "--", sys.executable, str(program.program(BROKEN))], Path.cwd(), at / "output.txt")


def followed(program: UserProgram, folder: Path) -> Iterator[Followed]:
    """What the first advice of the report promised, and what came; and the same of each further finding's first advice
    that could be followed. Nothing where no report could be made, or nothing is advised."""
    report = look(program, folder)
    proof = _proof(program, folder)
    proven = proof is not None and proof["measured"] is not None and proof["advice"] is not None
    for number, finding in enumerate(_findings(report) if report is not None else ()):
        cause, change = finding["cause"] or "none", finding["next"][0]
        if _settings(finding):
            if number == 0 and not (proven and proof is not None and proof["first"]):
                yield _made(program, cause, change, NOT_TRIED, None, first=True)
            continue
        # Other kinds may be right too; that is the one that the other form has.
        mended = not program.settings and change.get("kind", "") == program.remedy
        if mended and (number == 0 or cause in program.causes):
            measured = gained(program, folder, FIXED, cause)
            yield _made(program, cause, change, CODE, measured, first=number == 0)
            # The other form mends one thing: further advice of its kind is the same advice again.
            break
        if number == 0:
            yield _made(program, cause, change, NOT_THIS, None, first=True)
    if proven and proof is not None:
        # Both are of one run: the report within it is as any other.
        measured = float(proof["measured"]["value"])
        first = bool(proof["first"]) and report is not None and _settings(next(iter(_findings(report)), {"next": []}))
        yield _made(program, proof["cause"], proof["advice"], SETTINGS, measured, first=bool(first))


def removed(program: UserProgram, folder: Path) -> Removed | None:
    """What the vanishing of the first line brings; `None` where the report names none of the program's lines first."""
    report = look(program, folder)
    lines = [] if report is None else report["verdict"].get("where") or []
    if report is None or not lines or GONE not in program.forms or not is_right(program, lines[0]):
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


def _findings(report: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Those that advise something, the verdict first, which is the first of them or no finding."""
    verdict = report["verdict"]
    others = [each for each in report.get("findings") or () if each["cause"] != verdict["cause"]]
    return (each for each in (verdict, *others) if each["next"])


def _settings(finding: dict[str, Any]) -> bool:
    """Whether its first advice is a setting of the loader."""
    return bool(finding["next"] and finding["next"][0].get("settings"))


def _made(
    program: UserProgram, cause: str, change: dict[str, Any], how: str, measured: float | None, first: bool
) -> Followed:
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
        first,
    )


def _promise(told: dict[str, float]) -> Promise:
    return Promise(told["value"], told["low"], told["high"])
