"""Every command line in README and documentation: the parser takes it, and (slow) it runs, in small."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from golden.comparisons import COMPARISONS
from golden.singles import BUILDERS
from support.idx_files import make_set
from support.runs import ended
from whyidle.commands.main import parser
from whyidle.commands.run import spelled_out

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
NEEDS = {
    "data of a network's": r"data (fashion-mnist|cost|convnets)|compare (cost|convnets)",
    "a program of the page's own, which test_own_scenario runs": r"flowers\.py|mine\.py",
    "several hosts": r"--nnodes|/shared/|job7",
    "a GPU, or hours": r"--device cuda|dali-gpu|--as-published",
    "limits in a file, a run that read JPEG files, or a notebook": r"check runs/ci --json$|roofline runs/|\.ipynb",
    "that the newest recording of this machine is a test's": r"^whyidle (report|live|live --once)$",
}
"""What a line needs that is not here → which lines."""
SLOW = (Path(__file__).with_name("programs") / "slow.py").read_text()
TRAIN = f"""{SLOW}
if __name__ == "__main__":
    train(1000 if "for-ever" in sys.argv else 3, lambda: DataLoader(Slow(160, 0.005), batch_size=4))
"""


def lines(page: Path) -> Iterator[str]:
    """The commands of a page's blocks, without comments and what a pipe does with them."""
    for block in re.findall(r"^```\w*\n(.*?)^```", page.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL):
        for line in block.replace("\\\n", " ").splitlines():
            command = re.split(r"\s+[#|>]", line.strip().removeprefix("$ "))[0]
            if command.startswith("whyidle ") and not re.search(r"\[|…|\b(SCENARIO|PID)\b", command):
                yield " ".join(command.split())


COMMANDS = sorted({line for page in PAGES for line in lines(page)})


@pytest.mark.parametrize("command", COMMANDS)
def test_the_parser_takes_it(command: str) -> None:
    _, verb, *words = shlex.split(command)
    parser(verb).parse_args([verb, *(spelled_out(words) if verb == "run" else words)])


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with all that the lines name: recordings, a comparison, programs, images."""
    folder, made = tmp_path_factory.mktemp("place"), tmp_path_factory.mktemp("made")
    BUILDERS["too-few-workers"](made)
    COMPARISONS["compare-loaders"](made)
    for name in sorted(set(re.findall(r"\bruns/[\w./*-]+|\bRUN\b|\bCOMPARISON\b", " ".join(COMMANDS)))):
        kept = made / ("table" if re.fullmatch(r"runs/ssd-[\d-]+|COMPARISON", name) else "run")
        shutil.copytree(kept, folder / name.replace("*", "1"), dirs_exist_ok=True)
    (folder / "train.py").write_text(TRAIN)
    shutil.copy(ROOT / "docs" / "photos.py", folder)
    (folder / "train.sh").write_text("#!/bin/sh\npython train.py\n")
    (folder / "train.sh").chmod(0o755)
    make_set(folder / "fashion", 1200)
    (folder / "docs" / "img").mkdir(parents=True)
    whyidle = [sys.executable, "-m", "whyidle"]
    images = [*whyidle, "data", "ssd", "--images", "100", "--out"]
    subprocess.run([*images, folder / "data/voc"], check=True, capture_output=True)
    for name in {"data/photos", "DIR", *re.findall(r"\bdata/voc-\d+", " ".join(COMMANDS))}:
        shutil.copytree(folder / "data/voc", folder / name)
    subprocess.run([*whyidle, "report", made / "run", "--json", "-o", folder / "baseline.json"], check=True)
    return folder


def in_small(command: str, pid: int) -> str:
    """The same for minutes instead of hours."""
    for pattern, small in (
        (r"/path/to/env/bin/python", sys.executable),
        (r"/path/to/VOCdevkit", "data/voc"),
        (r"/scratch/", "scratch/"),
        (r"(?<=attach )\d+", str(pid)),
        (r"--duration \d+", "--duration 3"),
        (r"--steps 200:260", "--steps 20:40"),
        (r"/var/lib/node_exporter/textfile/", ""),
        (r"--images \d+ ?|--limit \d+ ?|--budget \d+ ?", ""),
        (r"\*", "1"),
        (r"(?<=--out )(\"?)(runs/|r\b|data/|DIR\b)", rf"\1new-{pid}/"),
    ):
        command = re.sub(pattern, small, command)
    verb = command.split()[1]
    more = {"tune": "--budget 20", "live": "--once", "data": "--images 8" * ("--out" in command)}
    if verb == "compare" and "runs/" not in command:
        more["compare"] = "--budget 1" + " --data fashion" * ("fashion-mnist" in command)
    if verb == "attach" and "--duration" not in command:
        more["attach"] = "--duration 3"
    return command.replace(f"whyidle {verb}", f"whyidle {verb} {more.get(verb, '')}")


@pytest.mark.slow
@pytest.mark.parametrize("command", COMMANDS)
def test_it_runs(command: str, place: Path) -> None:
    for what, which in NEEDS.items():
        if re.search(which, command):
            pytest.skip(f"needs {what}")
    bin_ = Path(sys.executable).parent
    program = re.search(r"-- (accelerate|jupyter|torchrun)", command)
    if program is not None and not (bin_ / program[1]).exists():
        pytest.skip(f"needs {program[1]}")
    training = subprocess.Popen([sys.executable, "train.py", "for-ever"], cwd=place)
    try:
        environment = os.environ | {"PATH": f"{bin_}:{os.environ['PATH']}", "size": "8", "n": "1", "round": "1"}
        done = ended("bash", "-c", in_small(command, training.pid), cwd=place, env=environment, timeout=300)
    finally:
        training.kill()
        training.wait()
    # A comparison that measured too little in its second, and a limit that a run does not keep, are no mistakes.
    too_little = re.search(r"no loader ran with two batch sizes|no picture was drawn", done.stderr)
    allowed = {"compare": (0, 1, *[2] * bool(too_little)), "check": (0, 1)}
    assert done.returncode in allowed.get(command.split()[1], (0,)), done.stderr
    assert "Traceback" not in done.stderr
