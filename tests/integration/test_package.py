"""What a user installs: the wheel's files, what importing costs, the console script."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tomllib
import zipfile
from importlib.metadata import distributions
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.version import Version

import whyidle
from support.runs import ended

ROOT = Path(__file__).parents[2]
FOLDERS = {
    "profiler": "whyidle",
    "pipelines": "whyidle/pipelines",
    "scenarios": "whyidle/scenarios",
}


def built(folder: Path, **settings: str) -> Path:
    """A wheel made of the tree, with these settings in the environment."""
    # Not in the tree: there another test may build at the same time, and what was moved since would still be packed.
    elsewhere = folder / "build.cfg"
    elsewhere.write_text(f"[build]\nbuild_base = {folder}/build\n[egg_info]\negg_base = {folder}\n")
    subprocess.run(
        [sys.executable, "-m", "pip", "wheel", "--no-deps", "--no-build-isolation", "-q", "-w", folder, ROOT],
        check=True,
        capture_output=True,
        env=os.environ | {"DIST_EXTRA_CONFIG": str(elsewhere)} | settings,
    )
    (made,) = folder.glob("*.whl")
    return made


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What a user installs."""
    return built(tmp_path_factory.mktemp("wheel"))


def held(wheel: Path) -> set[str]:
    """Our files in it, but for what is in C, which not every machine can build."""
    names = zipfile.ZipFile(wheel).namelist()
    return {name for name in names if name.startswith("whyidle/") and not name.startswith("whyidle/_native.")}


def test_the_wheel_holds_every_file_of_the_tree(wheel: Path) -> None:
    in_tree = {
        f"{name}/{path.relative_to(ROOT / folder)}"
        for folder, name in FOLDERS.items()
        for path in (ROOT / folder).rglob("*")
        if path.suffix in (".py", ".toml", ".typed") or path.parent.name in ("templates", "static")
    }
    assert held(wheel) == in_tree


@pytest.mark.parametrize(
    "settings",
    [{"CC": "/no/compiler", "LDSHARED": "/no/linker"}, pytest.param({"WHYIDLE_PURE": "1"}, marks=pytest.mark.slow)],
)
def test_a_wheel_is_made_without_a_compiler_and_works(wheel: Path, tmp_path: Path, settings: dict[str, str]) -> None:
    made = built(tmp_path, **settings)
    assert held(made) == held(wheel)
    assert not [name for name in zipfile.ZipFile(made).namelist() if name.endswith(".so")]
    assert made.name.endswith("-py3-none-any.whl") is ("WHYIDLE_PURE" in settings)
    zipfile.ZipFile(made).extractall(tmp_path / "alone")
    ask = "import sys; sys.path.insert(0, sys.argv[1])\nfrom whyidle import native as n\nprint(n.__file__, n.why_not)"
    shown = ended(sys.executable, "-S", "-c", ask, tmp_path / "alone", check=True)
    assert shown.stdout == f"{tmp_path}/alone/whyidle/native.py it was not built\n"


MODULES = ("whyidle", "whyidle.capture.sampler.start", "whyidle.analyse.run.analysis", "whyidle.commands.main")


def test_importing_costs_no_torch() -> None:
    # One after the other: which of them it was is told.
    code = "import sys\n" + "".join(
        f"import {module}\nprint(*[m for m in ('torch', 'torchvision', 'nvidia', 'spdl') if m in sys.modules])\n"
        for module in MODULES
    )
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert shown.stdout.split("\n") == [*([""] * len(MODULES)), ""]


def test_python_dash_m_is_the_console_script() -> None:
    shown = subprocess.run([sys.executable, "-m", "whyidle", "--version"], capture_output=True, text=True, check=True)
    assert shown.stdout == f"whyidle {whyidle.__version__}\n"


class Environment:
    """A virtual environment in which pip asks for nothing but the distributions in a folder, or as this machine's
    configuration of pip says."""

    def __init__(self, folder: Path, links: Path | None = None) -> None:
        subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder], check=True)
        self.bin = folder / "bin"
        self.packages = next(iter(folder.glob("lib/python*/site-packages")))
        self._settings = dict(os.environ)
        if links is not None:
            self._settings = {key: value for key, value in os.environ.items() if not key.startswith("PIP_")}
            self._settings |= {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(links), "PIP_CONFIG_FILE": os.devnull}

    def pip(self, *words: str | Path) -> str:
        done = ended(sys.executable, "-m", "pip", "--python", self.bin / "python", *words, env=self._settings)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def installed(self) -> dict[str, str]:
        """Name of each distribution in it → its version, as `pip freeze` tells them."""
        return {found.name.lower(): found.version for found in distributions(path=[str(self.packages)])}


def stand_in(name: str, version: str) -> dict[str, str]:
    """File → text of a distribution that is nothing but its name."""
    folder = f"{name.replace('-', '_')}-{version}.dist-info"
    return {
        f"{folder}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n",
        f"{folder}/WHEEL": "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        f"{folder}/RECORD": "",
    }


def core() -> dict[str, str]:
    """Name of each requirement → the oldest version of it that the core takes."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    needed = [Requirement(text) for text in project["dependencies"]]
    oldest = {each.name: [bound.version for bound in each.specifier if bound.operator == ">="] for each in needed}
    # What bounds a version from above would have pip replace a newer one.
    assert all(len(each.specifier) == 1 and oldest[each.name] for each in needed), needed
    return {name: version for name, [version] in oldest.items()}


def test_installing_it_replaces_nothing_and_brings_no_torch(wheel: Path, tmp_path: Path) -> None:
    oldest = core()
    links = tmp_path / "links"
    links.mkdir()
    studies = ("torch", "torchvision", "pillow", "spdl-core", "lmdb")
    for name in (*oldest, *studies):
        # The newest there is: pip takes it where it is asked for a newer one than is there.
        with zipfile.ZipFile(links / f"{name.replace('-', '_')}-99.0-py3-none-any.whl", "w") as packed:
            for file, text in stand_in(name, "99.0").items():
                packed.writestr(file, text)
    before = {"torch": "2.6.0", "numpy": oldest["numpy"], "rich": oldest["rich"], "jinja2": oldest["jinja2"]}
    theirs = Environment(tmp_path / "theirs", links)
    for name, version in before.items():
        for file, text in stand_in(name, version).items():
            (theirs.packages / file).parent.mkdir(exist_ok=True)
            (theirs.packages / file).write_text(text)
    theirs.pip("install", wheel)
    now = theirs.installed()
    assert {name: now.get(name) for name in before} == before
    assert now.keys() - before.keys() == {"whyidle", *oldest} - before.keys()


TRAINS = """
import torch
from torch.utils.data import DataLoader, TensorDataset
net = torch.nn.Linear(8, 2)
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
for inputs, targets in DataLoader(TensorDataset(torch.ones(320, 8), torch.zeros(320, dtype=torch.long)), batch_size=8):
    optimizer.zero_grad()
    torch.nn.functional.cross_entropy(net(inputs), targets).backward()
    optimizer.step()
print("trained with", torch.__version__)
"""
STEPS = 40


def oldest_torch(theirs: Environment) -> str:
    """A requirement of pip's: as WHYIDLE_OLD_TORCH says, `torch==2.6.0` say, which brings gigabytes of CUDA; else the
    oldest build for processors that pip is configured to find."""
    if asked := os.environ.get("WHYIDLE_OLD_TORCH"):
        return asked
    shown = theirs.pip("index", "versions", "torch")
    listed = next((line.partition(":")[2] for line in shown.splitlines() if line.startswith("Available versions:")), "")
    found = [Version(text) for text in listed.replace(",", " ").split() if text.endswith("+cpu")]
    if not (fitting := [version for version in found if version >= Version("2.6")]):
        pytest.skip("pip finds no torch for processors here; WHYIDLE_OLD_TORCH='torch==2.6.0' names one to install")
    return f"torch=={min(fitting)}"


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_a_real_environment_stays_as_it_is_and_its_training_is_recorded(wheel: Path, tmp_path: Path) -> None:
    theirs = Environment(tmp_path / "theirs")
    try:
        torch = oldest_torch(theirs)
        # The last before numpy's second version has no wheels for later Pythons.
        numpy = "numpy==1.26.4" if sys.version_info < (3, 13) else "numpy==2.1.0"
        theirs.pip("install", torch, numpy, "rich==13.7.0")
    except AssertionError as error:
        pytest.skip(f"pip cannot be asked for distributions here: {str(error).splitlines()[-1]}")
    was = theirs.installed()
    theirs.pip("install", wheel)
    now = theirs.installed()
    assert {name: now.get(name) for name in was} == was
    assert now.keys() - was.keys() <= {"whyidle", *core()}
    program = tmp_path / "train.py"
    program.write_text(TRAINS)
    command = [theirs.bin / "whyidle", "run", "--no-live", "--out", tmp_path / "run", "--"]
    command += [theirs.bin / "python", program]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path)
    assert (done.returncode, done.stdout.split(maxsplit=2)[:2]) == (0, ["trained", "with"]), done.stderr
    shown = ended(theirs.bin / "whyidle", "report", tmp_path / "run", "--json", check=True)
    window = json.loads(shown.stdout)["window"]
    assert window["steps"] + window["warmup_steps"] == STEPS
