"""How long results of a large recording take to open: `python -m benchmarks.scale --data FOLDER`.

Three recordings are made up, once, in a folder that is kept (1.1 GB): a day of 864,000 steps with 16 workers, a job of
1,024 ranks, and a folder around 10,000 runs. Each command on them is a process of its own, interpreter start and
imports included; the files are in the page cache, and so is the bytecode of the package. Medians of `--rounds`, the
rounds of all commands in turn. Targets: 2 s for `report`, 3 s for the page and `diff`, 1 s for `live`, and 500 MB.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median

from benchmarks import machine

# Nothing large may be imported here: a child's peak memory counts what its parent held when it was started.

ROOT = Path(__file__).parents[1]
HOURS, DAY_WORKERS = 24.0, 16
RANKS = 1024
RUNS = 10_000
RUN_HOURS = 0.01
"""Of each of many runs: 360 steps."""
REFUSED = 2
"""Exit code where a folder holds several runs: what there is to choose from is said."""
MOST_MB = 500
WARM = "whyidle-scale-bytecode"


@dataclass(frozen=True)
class Case:
    """A command, and what it is to take."""

    name: str
    command: tuple[str, ...]
    """Of whyidle; paths are within the folder of the recordings, `OUT` is a file to write."""
    most_s: float | None
    """Seconds of wall time; `None`: only its memory is bounded."""
    ends: int = 0
    """Its exit code."""


CASES = (
    Case("interpreter and imports alone", ("report", "--help"), None),
    Case("day: report", ("report", "day"), 2),
    Case("day: report --json", ("report", "day", "--json", "-o", "OUT"), None),
    Case("day: page", ("report", "day", "--format", "html", "-o", "OUT"), 3),
    Case("day: diff with another day", ("diff", "day", "day-again"), 3),
    Case("day: live, first look", ("live", "day", "--once"), 1),
    Case("day: trace", ("report", "day", "--format", "trace", "-o", "OUT"), None),
    Case("day: steps as csv", ("report", "day", "--format", "csv", "-o", "OUT"), None),
    Case("day: steps as parquet", ("report", "day", "--format", "parquet", "-o", "OUT"), None),
    Case("1,024 ranks: report", ("report", "ranks"), 2),
    Case("1,024 ranks: page", ("report", "ranks", "--format", "html", "-o", "OUT"), 3),
    Case("1,024 ranks: live, first look", ("live", "ranks", "--once"), 1),
    Case("10,000 runs: report FOLDER", ("report", "runs"), 2, REFUSED),
    Case("10,000 runs: diff of two", ("diff", "runs/run-00000", "runs/run-09999"), 3),
    Case("10,000 runs: live, first look", ("live", "runs", "--once"), 1),
)


@dataclass(frozen=True)
class Taken:
    """What one call took."""

    wall_s: float
    cpu_s: float
    peak_mb: float
    """Of resident memory."""


def taken(case: Case, data: Path, environ: dict[str, str]) -> Taken:
    """Run it once.

    Raises:
        SystemExit: it ended with another code than it should.
    """
    out = data / "out"
    named = {"OUT": out, **{path.name: path for path in data.iterdir()}}
    words = [str(named.get(word, data / word if "/" in word else word)) for word in case.command]
    command = [sys.executable, "-m", "whyidle", *words]
    begin = time.monotonic()
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=environ)
    _, status, used = os.wait4(process.pid, 0)
    wall_s = time.monotonic() - begin
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode != case.ends:
        raise SystemExit(f"{' '.join(command)} ended with {process.returncode} instead of {case.ends}")
    out.unlink(missing_ok=True)
    return Taken(wall_s, used.ru_utime + used.ru_stime, used.ru_maxrss * 1024 / 1e6)


def make(what: str, folder: Path) -> None:
    """Write one of the recordings."""
    if what == "day":
        sys.path.insert(0, str(ROOT / "tests"))
        from support import long_run

        long_run.make(folder, HOURS, DAY_WORKERS)
    elif what == "day-again":
        _again(folder.with_name("day"), folder, 1)
    elif what == "ranks":
        from benchmarks.ranks import generate

        generate(folder, RANKS)
    else:
        _many(folder)


def _many(folder: Path) -> None:
    """Runs that share their record files: what is looked for among many is in each one's own `run.json`."""
    sys.path.insert(0, str(ROOT / "tests"))
    from support import long_run

    folder.mkdir()
    first = long_run.make(folder / "run-00000", RUN_HOURS, 2)
    for number in range(1, RUNS):
        _again(first, folder / f"run-{number:05}", number)


def _again(run: Path, folder: Path, number: int) -> None:
    """The same run under another name, `number` minutes later; its record files are links."""
    folder.mkdir()
    for path in run.glob("*.rec"):
        os.link(path, folder / path.name)
    told = json.loads((run / "run.json").read_text())
    told["id"] = folder.name
    told["clock"]["time_ns"] += number * 60 * 10**9
    told["started_at"] = time.strftime("%Y-%m-%dT%H:%M:%S+0000", time.gmtime(told["clock"]["time_ns"] // 10**9))
    (folder / "run.json").write_text(json.dumps(told))


def prepare(data: Path) -> None:
    """Make the recordings that are not there yet, each in a process of its own."""
    data.mkdir(parents=True, exist_ok=True)
    for what in ("day", "day-again", "ranks", "runs"):
        if (data / what).exists():
            continue
        begin = time.monotonic()
        # Under another name until it is whole; a day is linked to by the name it will have.
        draft = data / f"{what}.draft"
        subprocess.run([sys.executable, "-m", __spec__.name, "--make", what, draft], check=True, cwd=ROOT)
        draft.rename(data / what)
        print(f"{what} was made in {time.monotonic() - begin:.0f} s", flush=True)


def measured(cases: list[Case], data: Path, rounds: int) -> dict[str, list[Taken]]:
    """All rounds of each case, by its name; one more before them, in which bytecode and page cache become warm."""
    environ = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    environ["PYTHONPYCACHEPREFIX"] = str(data / WARM)
    found: dict[str, list[Taken]] = {case.name: [] for case in cases}
    for number in range(rounds + 1):
        for case in cases:
            one = taken(case, data, environ)
            if number:
                found[case.name].append(one)
    return found


def said(case: Case, rounds: list[Taken]) -> str:
    """A row of the table: medians of time, the most memory, and whether each target was met."""
    wall_s, cpu_s = (median(getattr(one, name) for one in rounds) for name in ("wall_s", "cpu_s"))
    peak_mb = max(one.peak_mb for one in rounds)
    target = f"{case.most_s:g} s, {MOST_MB} MB" if case.most_s is not None else f"{MOST_MB} MB"
    late = case.most_s is not None and wall_s > case.most_s
    missed = [what for what, is_missed in (("time", late), ("memory", peak_mb > MOST_MB)) if is_missed]
    verdict = f"missed: {', '.join(missed)}" if missed else "met"
    return f"| {case.name} | {wall_s:.2f} | {cpu_s:.2f} | {peak_mb:.0f} | {target} | {verdict} |"


def main() -> None:
    if sys.argv[1:2] == ["--make"]:
        make(sys.argv[2], Path(sys.argv[3]))
        return
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--data", type=Path, required=True, metavar="FOLDER", help="where the recordings are kept")
    parser.add_argument("--rounds", type=int, default=3, metavar="N", help="calls of each command (default: 3)")
    parser.add_argument("--only", default="", metavar="TEXT", help="commands whose names hold this text")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write all rounds there")
    options = parser.parse_args()
    data = options.data.absolute()
    prepare(data)
    cases = [case for case in CASES if options.only in case.name]
    print(machine())
    found = measured(cases, data, options.rounds)
    print("| what | wall s | CPU s | peak MB | target | |\n|---|---|---|---|---|---|")
    for case in cases:
        print(said(case, found[case.name]))
    if options.json is not None:
        options.json.write_text(json.dumps({name: [asdict(one) for one in each] for name, each in found.items()}))


if __name__ == "__main__":
    main()
