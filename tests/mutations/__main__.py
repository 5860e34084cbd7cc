"""`python -m tests.mutations`: plants one mistake after the other into a copy of the tree, and says which test fails.

Of each mistake the tests run that are expected to find it, then the quick tier, up to the first that fails. Some ten
minutes on two idle CPUs; `--list` runs nothing and says in a second whether every mistake can be planted still.
"""

from __future__ import annotations

import argparse
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib import import_module
from multiprocessing import get_context
from pathlib import Path

from .catalogue import ANALYSE, COMMANDS, GOLDEN, MUTATIONS, REPORT, TUNE, Mutation

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("pipelines", "scenarios", "diagnosis_benchmark")
REST = f"{ANALYSE} {REPORT} {TUNE} {COMMANDS} tests/unit/record tests/unit/test_layers.py tests/golden"
"""What runs where the expected tests find nothing."""
LIMIT_S = 1800
NOTHING_TO_RUN = 5
"""Pytest's exit code."""
IMPORTED = ("hypothesis.strategies", "jinja2", "numpy", "pytest", "rich.console", "torch")
"""What tests import that takes long and is none of ours: once, for all of them."""


@dataclass(frozen=True)
class Place:
    """Where a mistake goes."""

    path: Path
    begin: int
    end: int


class Tree:
    """A copy of the tree, and a folder from which it is imported as it is when installed."""

    def __init__(self, folder: Path) -> None:
        self.root, self._package = folder / "tree", folder / "package"
        listed = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
        for name in subprocess.run(listed, cwd=ROOT, check=True, capture_output=True, text=True).stdout.split("\0"):
            if name and (ROOT / name).is_file():
                (self.root / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(ROOT / name, self.root / name)
        whyidle = self._package / "whyidle"
        whyidle.mkdir(parents=True)
        for entry in (*(self.root / "profiler").iterdir(), *(self.root / name for name in PACKAGES)):
            (whyidle / entry.name).symlink_to(entry)
        self._written = int(time.time())
        for name in IMPORTED:
            import_module(name)

    def write(self, path: Path, text: str) -> None:
        """With a time of its own: Python tells what it has compiled by size and second."""
        path.write_text(text)
        self._written += 1
        os.utime(path, (self._written, self._written))

    def first_failure(self, words: str) -> str | None:
        """The first test that fails of what pytest is given.

        It runs in a fork of this process, which has imported what takes long (`IMPORTED`).
        """
        with tempfile.NamedTemporaryFile("r") as output:
            run = get_context("fork").Process(target=self._test, args=(shlex.split(words), output.name))
            run.start()
            run.join(LIMIT_S)
            if run.is_alive():
                run.kill()
                run.join()
                return "none within half an hour, which is a failure as well"
            said = output.read()
        found = re.search(r"^(?:FAILED|ERROR) (.*?)(?: - .*)?$", said, re.MULTILINE)
        if found is not None:
            return found[1]
        if run.exitcode not in (0, NOTHING_TO_RUN):
            print(f"pytest {words} did not run: {said.strip()}", file=sys.stderr)
        return None

    def _test(self, words: Sequence[str], output: str) -> None:
        os.chdir(self.root)
        # What is imported has to be the copy, here and in what tests start, and not what is installed.
        os.environ["PYTHONPATH"] = str(self._package)
        sys.path[:1] = [str(self.root), str(self._package)]
        for name in [name for name in sys.modules if name.partition(".")[0] == "tests"]:
            del sys.modules[name]
        with open(output, "w") as file:
            os.dup2(file.fileno(), 1)
            os.dup2(file.fileno(), 2)
        options = ["-x", "-q", "--tb=no", "-rfE", "-p", "no:cacheprovider", "-m", "not slow and not gpu"]
        sys.exit(import_module("pytest").main([*options, *words]))


def places(mutation: Mutation, root: Path) -> list[Place]:
    """Every place of its source."""
    pattern = re.compile(r"\s+".join(map(re.escape, mutation.source.split())))
    return [
        Place(path, *match.span())
        for path in sorted((root / "profiler").rglob("*.py"))
        for match in pattern.finditer(path.read_text())
    ]


def tried(mutation: Mutation, tree: Tree) -> tuple[str, str]:
    """(the first test that fails, what that is)."""
    found = places(mutation, tree.root)
    if len(found) != 1:
        return "", "not found" if not found else f"found {len(found)} times"
    (place,) = found
    text = place.path.read_text()
    tree.write(place.path, text[: place.begin] + mutation.instead + text[place.end :])
    try:
        for words in (*mutation.tests, REST):
            failed = tree.first_failure(words)
            if failed is not None:
                return failed, "found elsewhere" if words is REST else "found"
        return "", "SURVIVED"
    finally:
        tree.write(place.path, text)


def table(mutations: Sequence[Mutation], tree: Tree) -> Iterator[str]:
    """Markdown, a line each."""
    yield "| mistake | told by | first test that fails | s |"
    yield "|---|---|---|---|"
    counted: dict[str, int] = {}
    for mutation in mutations:
        begin = time.monotonic()
        failed, how = tried(mutation, tree)
        counted[how] = counted.get(how, 0) + 1
        test = f"`{failed.removeprefix('tests/')}`" if failed else ""
        yield f"| {mutation.name} | {how} | {test} | {time.monotonic() - begin:.0f} |"
    yield ""
    yield f"{len(mutations)} mistakes: " + ", ".join(f"{number} {how}" for how, number in counted.items()) + "."


def together(mutations: Sequence[Mutation]) -> list[str]:
    """What all of these mistakes are expected to be found by, as few calls of pytest."""
    asked = dict.fromkeys(words for mutation in mutations for words in mutation.tests)
    units = [words for words in asked if GOLDEN not in words]
    recordings = [words.removeprefix(GOLDEN).strip("'") for words in asked if GOLDEN in words]
    golden = [f"{GOLDEN}'{' or '.join(recordings)}'"] if recordings else []
    return [*([" ".join(units)] if units else []), *golden]


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.mutations", description=__doc__)
    parser.add_argument("--only", default="", metavar="TEXT", help="the mistakes whose name holds this")
    parser.add_argument("--list", action="store_true", help="run nothing: where each mistake would go")
    arguments = parser.parse_args()
    chosen = [each for each in MUTATIONS if arguments.only in each.name]
    if arguments.list:
        for mutation in chosen:
            where = [str(place.path.relative_to(ROOT)) for place in places(mutation, ROOT)]
            print(f"{', '.join(where) or 'NOT FOUND'}: {mutation.name}")
        sys.exit(int(any(len(places(mutation, ROOT)) != 1 for mutation in chosen)))
    with tempfile.TemporaryDirectory() as folder:
        tree = Tree(Path(folder))
        # A test that fails anyway would seem to find everything.
        for words in together(chosen):
            failed = tree.first_failure(words)
            if failed is not None:
                raise SystemExit(f"{failed} fails without any mistake")
        survived = False
        for line in table(chosen, tree):
            survived |= "| SURVIVED |" in line
            print(line, flush=True)
    sys.exit(int(survived))


if __name__ == "__main__":
    main()
