"""Patches: programs are run before and after theirs is applied, and the loader then has what was asked for."""

from __future__ import annotations

import runpy
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from torch.utils.data import DataLoader

from whyidle.analyse.where import source
from whyidle.capture.bootstrap.arm import _calls
from whyidle.record.stacks import Call, CallStack
from whyidle.record.tuning import LoaderSettings
from whyidle.tune.patch import Patch, patch_of

IMPORT = "from torch.utils.data import DataLoader\n"
NONE, TWO = LoaderSettings(0), LoaderSettings(2, 2)
FOUR = LoaderSettings(4, 8, persistent_workers=True)


@dataclass
class Ran:
    """A program that was run, and the loader it made last."""

    settings: LoaderSettings
    made: CallStack


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Ran]:
    """Runs a program in its folder, as `python train.py …`."""
    seen: list[Ran] = []
    original: Callable[..., None] = DataLoader.__init__

    def noting(self: Any, *args: Any, **kwargs: Any) -> None:
        original(self, *args, **kwargs)
        workers = self.num_workers
        settings = LoaderSettings(
            workers,
            self.prefetch_factor if workers else None,
            pin_memory=self.pin_memory,
            in_order=self.in_order if workers else True,
            persistent_workers=self.persistent_workers,
        )
        calls = [Call(*place) for place in _calls()]
        own = [call for call in calls if call.file.startswith(str(tmp_path))]
        seen.append(Ran(settings, tuple(_with_text(call) for call in own)))

    monkeypatch.setattr(DataLoader, "__init__", noting)
    monkeypatch.chdir(tmp_path)
    # A source file and its cache would be of one second.
    monkeypatch.setattr(sys, "dont_write_bytecode", True)

    def ran(*argv: str, script: str = "train.py") -> Ran:
        monkeypatch.setattr(sys, "argv", [script, *argv])
        for name in list(sys.modules):
            if str(tmp_path) in str(getattr(sys.modules[name], "__file__", "") or ""):
                del sys.modules[name]
        source.parsed.cache_clear()
        seen.clear()
        monkeypatch.syspath_prepend(str(tmp_path))
        runpy.run_path(str(tmp_path / script), run_name="__main__")
        return seen[-1]

    return ran


def _with_text(call: Call) -> Call:
    return Call(call.function, call.file, call.line, Path(call.file).read_text().split("\n")[call.line - 1].strip())


def applied(patch: Patch) -> None:
    """As a user would, by two tools of which the first only looks."""
    for command in (["git", "apply", "--check", "-"], ["patch", "-p1", "--binary"]):
        done = subprocess.run(command, cwd=patch.folder, input=patch.diff.encode(), capture_output=True, check=False)
        assert done.returncode == 0, (command, done.stdout, done.stderr, patch.diff)
        assert b"fuzz" not in done.stdout


def written(folder: Path, program: str) -> None:
    (folder / "train.py").write_text(IMPORT + program)


CALLS = {
    "literal": "loader = DataLoader(range(8), batch_size=2, num_workers=0)\n",
    "nothing said": "loader = DataLoader(range(8))\n",
    "nothing given by position": "loader = DataLoader(range(8), 2, True)\n",
    "all by position": "loader = DataLoader(range(8), 2, False, None, None, 0, None, False)\n",
    "a line each": "loader = DataLoader(\n    range(8),\n    batch_size=2,\n)\n",
    "a line each, no comma": "loader = DataLoader(\n    range(8),\n    batch_size=2  # as before\n)\n",
    "a comment after the comma": "loader = DataLoader(\n    range(8),\n    num_workers=0,  # a, b\n    # the end\n)\n",
    "as written by hand": "loader = DataLoader(range(8),\n                    num_workers=0)\n",
    "a comma before the end": "loader = DataLoader(range(8), batch_size=2,)\n",
    "two on a line": "loader = DataLoader(\n    range(8), batch_size=2,\n    shuffle=False, drop_last=True,\n)\n",
    "explained away": "loader = DataLoader(range(8), num_workers=0, prefetch_factor=None, persistent_workers=False)\n",
    "a module's name": "import torch\nloader = torch.utils.data.DataLoader(range(8), num_workers=(0))\n",
    "an alias": "from torch.utils.data import DataLoader as Batches\nloader = Batches(range(8))\n",
    "in parentheses": "loader = DataLoader(range(8), batch_size=(2))\n",
    "other letters": "größe = 2; loader = DataLoader(range(8), batch_size=größe, num_workers=0)  # ä\n",
    "for each split": 'loaders = {split: DataLoader(range(8), num_workers=0) for split in ("val", "train")}\n',
    "in a loop, in a function": (
        "def main():\n    for fold in range(2):\n        DataLoader(range(8),\n            shuffle=True)\nmain()\n"
    ),
}


@pytest.mark.parametrize("after", [TWO, FOUR], ids=["two", "four"])
@pytest.mark.parametrize("program", CALLS.values(), ids=CALLS.keys())
def test_the_program_has_the_settings_once_its_patch_is_applied(
    run: Callable[..., Ran], tmp_path: Path, program: str, after: LoaderSettings
) -> None:
    """Nothing is written by us, and what torch refuses without workers goes with them."""
    written(tmp_path, program)
    before, source_of = run(), (tmp_path / "train.py").read_bytes()
    assert before.settings == NONE
    patch = patch_of(before.made, NONE, after, ["python", "train.py"], tmp_path)
    assert (patch.by_hand, patch.command) == ((), ())
    assert (tmp_path / "train.py").read_bytes() == source_of
    applied(patch)
    made = run()
    assert made.settings == after
    applied(patch_of(made.made, after, NONE, ["python", "train.py"], tmp_path))
    assert run().settings == NONE


def test_all_else_is_left_as_it_is(run: Callable[..., Ran], tmp_path: Path) -> None:
    program = IMPORT + "x = [1,2 ]\nloader = DataLoader( range(8),\n    num_workers = 0 )   # odd\ny=3"
    (tmp_path / "train.py").write_bytes(program.replace("\n", "\r\n").encode())
    patch = patch_of(run().made, NONE, TWO, ["python", "train.py"], tmp_path)
    applied(patch)
    now = (tmp_path / "train.py").read_bytes().decode()
    assert now == program.replace("num_workers = 0", "num_workers = 2").replace("\n", "\r\n")


ARGPARSE = """\
import argparse
parser = argparse.ArgumentParser()
parser.add_argument("-j", "--load-workers", type=int, default=0)
parser.add_argument("--size", type=int, default=2)
{more}
def main(args):
    return DataLoader(range(8), args.size, num_workers=args.load_workers{given})
main(parser.parse_args())
"""


@pytest.mark.parametrize(
    ("given", "then"),
    [
        ([], ["--load-workers", "2"]),
        (["--load-workers", "0"], ["--load-workers", "2"]),
        (["--load-workers=0", "--size", "4"], ["--load-workers=2", "--size", "4"]),
        (["-j", "0"], ["-j", "2"]),
        (["-j0"], ["-j0", "--load-workers", "2"]),
    ],
)
def test_an_option_is_set_in_the_command(
    run: Callable[..., Ran], tmp_path: Path, given: list[str], then: list[str]
) -> None:
    written(tmp_path, ARGPARSE.format(more="", given=""))
    patch = patch_of(run(*given).made, NONE, TWO, ["python", "train.py", *given], tmp_path)
    assert (patch.diff, patch.by_hand) == ("", ())
    assert patch.command == ("python", "train.py", *then)
    assert run(*patch.command[2:]).settings == TWO


def test_what_an_option_does_not_set_holds_with_and_without_workers(run: Callable[..., Ran], tmp_path: Path) -> None:
    written(tmp_path, ARGPARSE.format(more="", given=""))
    patch = patch_of(run().made, NONE, FOUR, ["python", "train.py"], tmp_path)
    applied(patch)
    assert run(*patch.command[2:]).settings == FOUR
    assert run().settings == NONE


def test_clicks_options_are_found(run: Callable[..., Ran], tmp_path: Path) -> None:
    written(
        tmp_path,
        "class click:\n    @staticmethod\n    def option(*a, **k):\n        return lambda f: f\n"
        '@click.option("--workers", default=0)\ndef main(workers=0):\n'
        "    DataLoader(range(8), num_workers=workers)\nmain()\n",
    )
    patch = patch_of(run().made, NONE, TWO, ["python", "train.py"], tmp_path)
    assert patch.command == ("python", "train.py", "--workers", "2")


UNTOLD = {
    "computed": ("import os\nDataLoader(range(8), num_workers=len(os.environ) * 0)\n", "len(os.environ) * 0"),
    "a variable": ("n = 0\nDataLoader(range(8), num_workers=n)\n", "comes from `n` (train.py:3), 0 in this run: set"),
    "a dictionary that is unpacked": ("n = {}\nDataLoader(range(8), **n)\n", "unpacks `n`: set num_workers=2"),
    "a list that is unpacked": ("given = [range(8)]\nDataLoader(*given)\n", "unpacks `given`: set num_workers=2"),
    "an attribute": (
        "class Config:\n    n = 0\nconfig = Config()\nDataLoader(range(8), num_workers=config.n)\n",
        "`config.n`",
    ),
    "read from a file": (
        'import json\nc = json.loads(\'{"n": 0}\')\nDataLoader(range(8), num_workers=c["n"])\n',
        "c['n']",
    ),
    "a parameter": (
        "def make(n):\n    DataLoader(range(8), num_workers=n)\nmake(0)\n",
        "num_workers comes from `n`",
    ),
    "passed on": ("def make(**more):\n    return DataLoader(range(8), **more)\nmake()\n", "unpacks `more`"),
    "a subclass": (
        "class Own(DataLoader):\n    def __init__(self, data):\n        super().__init__(data)\nOwn(range(8))\n",
        "No call",
    ),
    "two on a line": ("a, b = DataLoader(range(8)), DataLoader(range(8))\n", "Several loaders"),
    "by a name that tells nothing": ("made = [DataLoader]\nmade[0](range(8))\n", "No call"),
}


@pytest.mark.parametrize(("program", "words"), UNTOLD.values(), ids=UNTOLD.keys())
def test_what_is_no_literal_is_said(run: Callable[..., Ran], tmp_path: Path, program: str, words: str) -> None:
    written(tmp_path, program)
    patch = patch_of(run().made, NONE, TWO, ["python", "train.py"], tmp_path)
    assert (patch.diff, patch.command) == ("", ())
    (told,) = patch.by_hand
    assert words in told
    assert "train.py:" in told
    assert "2" in told


def test_a_script_of_the_shell_is_not_given_options(run: Callable[..., Ran], tmp_path: Path) -> None:
    written(tmp_path, ARGPARSE.format(more="", given=""))
    patch = patch_of(run().made, NONE, TWO, ["bash", "train.sh"], tmp_path)
    assert patch.command == ()
    place = "`args.load_workers` (train.py:8)"
    assert patch.by_hand == (f"num_workers comes from {place}, 0 in this run: set it to 2.",)


def test_source_that_is_another_by_now_is_not_edited(run: Callable[..., Ran], tmp_path: Path) -> None:
    written(tmp_path, "def main():\n    return DataLoader(range(8))\nmain()\n")
    made = run().made
    written(tmp_path, "import os\n\ndef main():\n    return DataLoader(range(8))\nmain()\n")
    source.parsed.cache_clear()
    patch = patch_of(made, NONE, TWO, ["python", "train.py"], tmp_path)
    assert patch.diff == ""
    assert "has changed since" in patch.by_hand[0]


def test_a_flag_without_a_value_is_named(run: Callable[..., Ran], tmp_path: Path) -> None:
    more = 'parser.add_argument("--keep", action="store_true")'
    written(tmp_path, ARGPARSE.format(more=more, given=", persistent_workers=args.keep"))
    kept = LoaderSettings(2, 2, persistent_workers=True)
    patch = patch_of(run().made, NONE, kept, ["python", "train.py"], tmp_path)
    told = "persistent_workers comes from `args.keep` (train.py:8), False in this run: set it to True."
    assert (patch.by_hand, patch.command[2:]) == ((told,), ("--load-workers", "2"))


def test_a_literal_that_is_not_what_ran_is_not_edited(run: Callable[..., Ran], tmp_path: Path) -> None:
    written(tmp_path, "loader = DataLoader(range(8), num_workers=3)\n")
    patch = patch_of(run().made, TWO, FOUR, ["python", "train.py"], tmp_path)
    assert any("says num_workers=3 where 2 ran" in told for told in patch.by_hand)
    patch = patch_of((), NONE, TWO, ["python", "train.py"], Path())
    assert patch.by_hand == ("whyidle did not see where the program makes its loader. Set there: num_workers=2.",)
