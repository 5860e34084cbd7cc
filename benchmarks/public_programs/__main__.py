"""Whether whyidle says of public training programs what was found of them by hand: a row a program.

Each is run bare and under `run`, unmodified, with data made up here: nothing is downloaded. One whose packages are not
installed is left out, and said to be. Exit code 1 where a program's exit code or losses differ between the two, or
where steps, batch size, verdict or line are not as they were checked (`programs.py`). With `--prove` the
first advice on the loader is tried instead, and held against what it promises.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import platform
import shutil
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from .programs import PROGRAMS, Program

LIMIT_S = 600
SHOWN = "\n  "
SURE_OF_LINES_PCT = 20.0
"""Share of a verdict from which enough looks fall into it, ten a second, for a line to be named in runs so short."""


@dataclass(frozen=True)
class Run:
    """What a program did, bare or recorded."""

    exit_code: int
    text: str
    """What it printed, stdout and stderr."""
    wall_s: float


def lacking(program: Program) -> list[str]:
    """Packages that it needs and that are not here."""
    return [name for name in program.packages if importlib.util.find_spec(name) is None]


def ran(program: Program, folder: Path, *whyidle: str) -> Run:
    """The program, run in a folder of its own with its data; under a command of whyidle's where one is given."""
    folder.mkdir(parents=True)
    program.make(folder)
    scripts = str(Path(sys.executable).parent)
    home = folder.parent / "home"
    environment = os.environ | {
        "PATH": os.pathsep.join((scripts, os.environ.get("PATH", os.defpath))),
        "OMP_NUM_THREADS": "1",
        "HF_HUB_OFFLINE": "1",
        "HF_HOME": str(home / "hf"),
        "YOLO_CONFIG_DIR": str(home / "yolo"),
        "YOLO_OFFLINE": "true",
        "FASTAI_HOME": str(home / "fastai"),
        "TORCH_HOME": str(home / "torch"),
        "MPLCONFIGDIR": str(home / "matplotlib"),
    }
    command = [sys.executable if program.command[0] == "python" else program.command[0], *program.command[1:]]
    if whyidle:
        command = [sys.executable, "-m", "whyidle", *whyidle, "--", *command]
    begun = time.monotonic()
    done = subprocess.run(
        command,
        cwd=folder,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=LIMIT_S,
        check=False,
    )
    return Run(done.returncode, done.stdout, time.monotonic() - begun)


def report_of(recording: Path) -> dict[str, Any]:
    command = [sys.executable, "-m", "whyidle", "report", str(recording), "--json"]
    found: dict[str, Any] = json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
    return found


def disagreements(program: Program, bare: Run, recorded: Run, report: dict[str, Any]) -> list[str]:
    """What is not as it was checked, each as a sentence."""
    window, verdict = report["window"], report["verdict"]
    own = program.counted(recorded.text)
    said = [
        ("exit codes, bare and recorded", (bare.exit_code, recorded.exit_code), (0, 0)),
        ("steps by its own log", own, program.steps),
        ("steps by the report", steps_of(report), program.steps),
        ("batch size", window["batch_size"], program.batch_size),
    ]
    found = [f"{what}: {seen}, expected {expected}" for what, seen, expected in said if seen != expected]
    printed = program.printed.findall(bare.text)
    if not printed or printed != program.printed.findall(recorded.text):
        found.append(
            f"losses: {len(printed)} printed bare, and not the same recorded" if printed else "no losses printed"
        )
    if verdict["cause"] not in program.causes:
        found.append(f"verdict: {verdict['cause']}, expected {' or '.join(sorted(program.causes))}")
    lines = [f"{place['file']} in {place['function']}" for place in verdict.get("where") or () if place["samples"]]
    if not lines and (verdict["share_pct"] or 0) >= SURE_OF_LINES_PCT:
        found.append("line: none is named")
    found += [f"line: {line}" for line in lines if program.lines is None or not program.lines.search(line)]
    return found


def steps_of(report: dict[str, Any]) -> int:
    return int((report["window"]["steps"] or 0) + (report["window"]["warmup_steps"] or 0))


def row(program: Program, bare: Run, recorded: Run, report: dict[str, Any], wrong: list[str]) -> list[str]:
    verdict = report["verdict"]
    where = [place for place in verdict.get("where") or () if place["samples"]]
    share = verdict["share_pct"]
    return [
        program.name,
        f"{steps_of(report)} / {program.counted(recorded.text)}",
        str(report["window"]["batch_size"]),
        "same" if bare.exit_code == recorded.exit_code else f"{bare.exit_code}, {recorded.exit_code}",
        "same" if program.printed.findall(bare.text) == program.printed.findall(recorded.text) else "differs",
        f"{verdict['cause']}{'' if share is None else f' {share:.0f} %'}",
        f"{'/'.join(Path(where[0]['file']).parts[-2:])}:{where[0]['line']}" if where else "-",
        "no" if wrong else "yes",
        f"{bare.wall_s:.0f} s, {recorded.wall_s:.0f} s",
    ]


def proven(program: Program, at: Path) -> list[str]:
    """A row: what the first advice on the loader promises, and what came of it within one run."""
    told = at / "proof.json"
    done = ran(program, at / "prove", "tune", "--prove", "--no-live", "--out", str(at / "tune"), "--json", str(told))
    (at / "prove.txt").write_text(done.text)
    if not told.exists():
        return [program.name, "-", "-", "-", done.text.strip().splitlines()[-1]]
    proof = json.loads(told.read_text())
    advice = proof["advice"] or {"change": "none is a setting of the loader", "speedup": None}
    promised, measured = (
        "n/a" if each is None else f"{each['value']:.2f} ({each['low']:.2f} to {each['high']:.2f})"
        for each in (advice["speedup"], proof["measured"])
    )
    kept = {True: "kept", False: "not kept"}.get(proof["kept"], proof["why_not"] or "its interval reaches into it")
    return [program.name, f"{proof['cause'] or 'none'}: {advice['change']}", promised, measured, kept]


PROOF_HEAD = ["program", "advice", "promised (90 %)", "measured (95 %)", "promise"]
HEAD = ["program", "steps (own)", "batch", "exit code", "losses", "verdict", "line", "as checked", "bare, recorded"]


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.public_programs", description=__doc__)
    parser.add_argument("--only", metavar="WORD", help="programs whose name has this word")
    parser.add_argument("--prove", action="store_true", help="try the first advice on the loader instead")
    parser.add_argument("--keep", type=Path, metavar="DIR", help="keep data, outputs and recordings here")
    arguments = parser.parse_args()
    chosen = [program for program in PROGRAMS if arguments.only is None or arguments.only in program.name]
    print(f"torch {torch.__version__}, Python {platform.python_version()}, {os.cpu_count()} CPUs", flush=True)
    folder = arguments.keep or Path(tempfile.mkdtemp(prefix="public-programs-"))
    rows, failed, done = [PROOF_HEAD if arguments.prove else HEAD], [], 0
    try:
        for program in chosen:
            missing = lacking(program)
            if missing:
                print(f"{program.name}: left out, as {', '.join(missing)} is not installed", flush=True)
                continue
            at = folder / program.name.replace(" ", "-")
            shutil.rmtree(at, ignore_errors=True)
            if arguments.prove:
                rows.append(proven(program, at))
                done += 1
                continue
            bare, recorded = (
                ran(program, at / "bare"),
                ran(program, at / "run", "run", "--no-live", "--out", str(at / "recording")),
            )
            (at / "bare.txt").write_text(bare.text)
            (at / "run.txt").write_text(recorded.text)
            report = report_of(at / "recording")
            wrong = disagreements(program, bare, recorded, report)
            rows.append(row(program, bare, recorded, report, wrong))
            failed += [f"{program.name}: {each}" for each in wrong]
            done += 1
            print(f"{program.name}: {'; '.join(wrong) or 'as checked'}", flush=True)
    finally:
        if arguments.keep is None:
            shutil.rmtree(folder, ignore_errors=True)
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    print("\n" + "\n".join("  ".join(cell.ljust(n) for cell, n in zip(line, widths, strict=True)) for line in rows))
    print(f"\n{done} programs, {len(failed)} disagreements" + "".join(SHOWN + each for each in failed))
    return 1 if failed or not done else 0


if __name__ == "__main__":
    sys.exit(main())
