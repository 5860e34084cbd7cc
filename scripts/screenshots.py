"""Makes the pictures in docs/img of runs made here: `python scripts/screenshots.py`; `--only NAME,…` draws some again.

Needs chromium and tmux. Records a few short runs into runs/pictures (some five minutes; what is there already is
used again) and draws terminals as tmux shows them and pages as chromium does.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from screenshots_drawing import ROOT, Missing, chromium, drawn, environment, phone, saved, shot, terminal

IMAGES = ROOT / "docs" / "img"
RUN_JSON = "run.json"
Picture = Callable[[Path], None]


def made(runs: Path) -> None:
    """The runs that the pictures show, unless they were made before."""
    photos, voc = runs / "photos", runs / "voc"
    steps: list[tuple[Path, list[str]]] = [
        (photos, ["data", "convnets", "--out", str(photos), "--images", "240"]),
        (voc, ["data", "ssd", "--out", str(voc), "--images", "192"]),
        (runs / "before", ["run", "--no-live", "--out", str(runs / "before"), "--", *training(photos, 0)]),
        (runs / "after", ["run", "--no-live", "--out", str(runs / "after"), "--", *training(photos, 2)]),
        (
            runs / "ssd",
            ["compare", "ssd", "--data", str(voc), "--device", "emulated:v100", "--batch-sizes", "8,16"]
            + ["--pipelines", "naive,caffe,workers,prefetch", "--epochs", "3", "--limit", "160"]
            + ["--repeats", "2", "--no-live", "--out", str(runs / "ssd")],
        ),
        (
            runs / "watched",
            ["compare", "ssd", "--data", str(voc), "--device", "emulated:v100", "--batch-sizes", "16"]
            + ["--pipelines", "workers", "--workers", "1", "--epochs", "10", "--repeats", "1", "--no-live"]
            + ["--out", str(runs / "watched")],
        ),
        (
            runs / "tune",
            ["tune", "ssd", "--data", str(voc), "--device", "emulated:v100", "--pipelines", "workers,threads"]
            + ["--batch-size", "16", "--budget", "120", "--no-live", "--out", str(runs / "tune")],
        ),
    ]
    for folder, command in steps:
        if not folder.exists():
            print(f"whyidle {' '.join(command)}", flush=True)
            try:
                whyidle(*command)
            except BaseException:
                # What is half done is not used again.
                shutil.rmtree(folder, ignore_errors=True)
                raise


def training(photos: Path, workers: int, epochs: int = 3) -> list[str]:
    return [
        "python",
        "docs/photos.py",
        str(photos.relative_to(ROOT)),
        "--workers",
        str(workers),
        "--epochs",
        str(epochs),
    ]


def whyidle(*command: str, width: int = 100) -> str:
    """What a command prints, colours included."""
    done = subprocess.run(
        ["whyidle", *command],
        cwd=ROOT,
        env=environment() | {"COLUMNS": str(width), "FORCE_COLOR": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise Missing(f"whyidle {' '.join(command)} ended with {done.returncode}: {done.stderr.strip()[-400:]}")
    return done.stdout


def live(runs: Path) -> None:
    """The live view, of a recording that has ended."""
    run = _watched(runs).relative_to(ROOT)
    with terminal(f"whyidle live {run}", 110, 34) as screen:
        time.sleep(8)
        drawn(screen(), 110, IMAGES / "live.png")


def report(runs: Path) -> None:
    """A run's page: laptop light and dark, phone."""
    page = runs / "report.html"
    whyidle("report", str(_watched(runs)), "--format", "html", "-o", str(page))
    saved(shot(page, 1280, 900), IMAGES / "report.png")
    saved(shot(page, 1280, 900, dark=True), IMAGES / "report-dark.png")
    saved(phone(page, 390, 844), IMAGES / "report-phone.png")


def _watched(runs: Path) -> Path:
    """A run that is long enough for a verdict."""
    return next((runs / "watched").glob(f"*/{RUN_JSON}")).parent


def compare(runs: Path) -> None:
    page = runs / "compare.html"
    whyidle("report", str(runs / "ssd"), "--format", "html", "-o", str(page))
    saved(shot(page, 1280, 1000), IMAGES / "compare.png")


def tune(runs: Path) -> None:
    page = runs / "tune.html"
    whyidle("report", str(runs / "tune"), "--format", "html", "-o", str(page))
    saved(shot(page, 1280, 1000), IMAGES / "tune.png")


def diff(runs: Path) -> None:
    _text(["diff", str((runs / "before").relative_to(ROOT)), str((runs / "after").relative_to(ROOT))], "diff.png")


def doctor(_: Path) -> None:
    _text(["doctor"], "doctor.png")


def _text(command: list[str], name: str) -> None:
    said = whyidle(*command)
    drawn(f"$ whyidle {' '.join(command)}\n{said}".replace(str(ROOT), "~/whyidle"), 110, IMAGES / name)


PICTURES: dict[str, Picture] = {each.__name__: each for each in (live, report, compare, tune, diff, doctor)}


def main() -> int:
    parser = argparse.ArgumentParser(description="Makes the pictures in docs/img of runs made here.")
    parser.add_argument("--only", metavar="A,B", help=f"of {', '.join(PICTURES)}")
    parser.add_argument("--runs", type=Path, default=ROOT / "runs" / "pictures", help="folder of the runs")
    asked = parser.parse_args()
    wanted = asked.only.split(",") if asked.only else list(PICTURES)
    if unknown := set(wanted) - PICTURES.keys():
        parser.error(f"no such picture: {', '.join(sorted(unknown))}. There are {', '.join(PICTURES)}")
    runs: Path = asked.runs.absolute()
    runs.mkdir(parents=True, exist_ok=True)
    failed = []
    try:
        chromium()
        if shutil.which("tmux") is None:
            raise Missing("tmux is not installed (Debian, Ubuntu: apt install tmux)")
        made(runs)
        for name in wanted:
            try:
                PICTURES[name](runs)
            except Missing as error:
                failed.append(name)
                print(f"  {name}: {error}", file=sys.stderr)
    except Missing as error:
        print(f"screenshots: {error}", file=sys.stderr)
        return 2
    return int(bool(failed))


if __name__ == "__main__":
    sys.exit(main())
