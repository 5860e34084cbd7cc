"""What README, documentation and demo have people run: the parser takes every command line, and (slow) it runs, small.

The example of a scenario of one's own runs as it stands there; the demo's order is that of the tool's uses, and its end
says what was found.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from golden.comparisons import COMPARISONS
from golden.singles import BUILDERS
from support.idx_files import make_set
from support.runs import ended, mistaken
from whyidle.commands.main import main, parser
from whyidle.commands.run import spelled_out

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
NEEDS = {
    "data of a network's": r"data (fashion-mnist|cost|convnets)|compare (cost|convnets)",
    "a program of the page's own, which is run below": r"flowers\.py|mine\.py",
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


PAGE = ROOT / "docs" / "scenarios" / "your-own.md"
ROWS = """
from pathlib import Path

import torch

from whyidle.scenarios.scenario import Scenario


class Table(Scenario):
    name, study, question = "table", "numbers", "which loader?"
    nets = cpu_nets = ("linear",)
    data = "rows.npy and labels.npy"
    batch_sizes = (8,)

    def find_data(self, net, say):
        raise AssertionError("--data was given")

    def open_data(self, request):
        rows = Rows(request.folder / "rows.npy", request.folder / "labels.npy")
        rows.stages = (add_noise,) if request.augment else ()
        return rows

    def build(self, net, data):
        return torch.nn.Linear(16, 3)


SCENARIO = Table()
"""


def _examples() -> list[str]:
    return re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)


def _pictures(folder: Path) -> Path:
    random = np.random.default_rng(0)
    for name in ("rose", "tulip"):
        (folder / name).mkdir(parents=True)
        for number in range(12):
            Image.fromarray(random.integers(0, 255, (70, 90, 3), np.uint8)).save(folder / name / f"{number}.jpg")
    return folder


def _compared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *words: str) -> dict[str, dict[str, object]]:
    monkeypatch.chdir(tmp_path)
    assert main(["compare", *words, "--no-live", "--repeats", "1", "--json", "table.json"]) == 0
    cells = json.loads(Path("table.json").read_text())["cells"]
    return {f"{cell['pipeline']} {cell['feed']}": cell for cell in cells}


@pytest.mark.slow
def test_the_pages_example_compares_loaders_on_a_folder_of_pictures(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "flowers.py").write_text(_examples()[0])
    pictures = _pictures(tmp_path / "pictures")
    cells = _compared(
        tmp_path,
        monkeypatch,
        *("flowers.py", "--data", str(pictures), "--batch-sizes", "4", "--pipelines", "naive,workers"),
        *("--feed", "real,synthetic", "--iterations", "5"),
    )
    assert {name: cell["status"] for name, cell in cells.items()} == {
        "naive real": "ok",
        "workers real": "ok",
        "synthetic synthetic": "ok",
    }
    assert all(cell["net"] == "mobilenet_v3_small" for cell in cells.values())


@pytest.mark.slow
def test_a_dataset_that_is_no_photographs_goes_through_every_loader_that_takes_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, rows, stage = _examples()
    (tmp_path / "table_of_mine.py").write_text(rows + stage + ROWS)
    random = np.random.default_rng(0)
    np.save(tmp_path / "rows.npy", random.normal(size=(64, 16)).astype(np.float32))
    np.save(tmp_path / "labels.npy", random.integers(0, 3, 64))
    cells = _compared(
        tmp_path,
        monkeypatch,
        *("table_of_mine.py", "--data", str(tmp_path), "--pipelines", "naive,caffe,workers,threads"),
    )
    assert {name: cell["status"] for name, cell in cells.items()} == {
        "naive real": "ok",
        "caffe real": "skipped",
        "workers real": "ok",
        "threads real": "ok",
    }
    assert "JPEG" in str(cells["caffe real"]["error"])


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("SCENARIO = 3", "defines no SCENARIO"),
        ("import nothing_of_that_name", "could not be run: ModuleNotFoundError"),
        (None, "there is no file"),
    ],
)
def test_a_file_that_is_no_scenario_is_one_clear_message(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str | None, said: str
) -> None:
    file = tmp_path / f"broken_{abs(hash(text))}.py"
    if text is not None:
        file.write_text(text)
    assert said in mistaken(capsys, "compare", file)


LONGEST_S = 1200
"""For a whole demo, on however busy a machine."""
SCREENS = 60
"""Lines that the demo prints at most."""


def test_each_command_of_the_demo_is_one_that_whyidle_takes() -> None:
    script = (ROOT / "scripts" / "demo.sh").read_text().replace("\\\n", " ")
    given = {"device": "emulated:v100"}
    verbs = []
    for line in script.splitlines():
        _, found, words = line.partition('"$bin/whyidle" ')
        if not found:
            continue
        words = re.sub(r"\$\{?(\w+)\}?", lambda name: given.get(name[1], "8"), words.partition(" > ")[0])
        asked = parser().parse_args(shlex.split(words))
        verbs.append((asked.verb, getattr(asked, "budget", None)))
    assert verbs == [
        ("data", None),
        *(("compare", None), ("compare", None), ("report", None), ("report", None)),
        *(("compare", 8.0), ("run", None), ("report", None), ("diff", None)),
    ]


@pytest.mark.slow
@pytest.mark.timeout(LONGEST_S)
def test_the_demo_runs_for_real_in_small(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("XDG_STATE_HOME", "XDG_CACHE_HOME"):
        monkeypatch.setenv(name, str(tmp_path / name))
    for name in ("docs", "scripts"):
        (tmp_path / name).symlink_to(ROOT / name)
    ended = subprocess.run(
        [ROOT / "scripts" / "demo.sh", Path(sys.executable).parent],
        cwd=tmp_path,
        env=os.environ | {"IMAGES": "24", "EPOCHS": "2", "BUDGET": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=LONGEST_S,
        check=False,
    )
    assert ended.returncode == 0, ended.stdout
    printed = ended.stdout.splitlines()
    assert len(printed) <= SCREENS
    *_, last = heads = [line.partition(":")[0] for line in printed if line.startswith("== ")]
    assert len(heads) == 3
    assert any(re.match(r"  caffe +\d", line) for line in printed)
    assert any(line.startswith("Verdict  ") for line in printed)
    # Runs as short as these need not be advised.
    assert printed[-2].startswith("Measured: ") == last.startswith("== The proof")
    assert "caffe" in Path(printed[-1].rpartition("Page: ")[2]).read_text()
