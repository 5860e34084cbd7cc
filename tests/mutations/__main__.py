"""`python -m tests.mutations`: plants one mistake after the other into a copy of the tree, and says which test fails.

Of each mistake the tests run that ought to find it, up to the first that fails; of those that are left then, the rest
of the quick tier and the golden outputs. Some ten minutes on two idle CPUs. `--list` runs nothing and says in a
second whether every mistake can be planted still.
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
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from importlib import import_module
from multiprocessing import get_context
from pathlib import Path

from .catalogue import ANALYSE, COMMANDS, MUTATIONS, REPORT, TUNE, Mutation

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("pipelines", "scenarios", "diagnosis_benchmark")
REST = f"{ANALYSE} {REPORT} {TUNE} {COMMANDS} tests/unit/record tests/unit/test_layers.py tests/golden"
"""What runs where the expected tests find nothing."""
LIMIT_S = 1800
FOUND, ELSEWHERE, SURVIVED = "found", "found by other tests", "SURVIVED"
ANYWAY = "its test fails anyway"
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

    def failures(self, words: Sequence[str], first: bool) -> list[str]:
        """The tests that fail of what pytest is given, or the first of them.

        It runs in a fork of this process, which has imported what takes long (`IMPORTED`).
        """
        options = [*(["-x"] if first else []), *words]
        with tempfile.NamedTemporaryFile("r") as output:
            run = get_context("fork").Process(target=self._test, args=(options, output.name))
            run.start()
            run.join(LIMIT_S)
            if run.is_alive():
                run.kill()
                run.join()
                return ["none within half an hour, which is a failure as well"]
            said = output.read()
        found = re.findall(r"^(?:FAILED|ERROR) (.*?)(?: - .*)?$", said, re.MULTILINE)
        if not found and run.exitcode not in (0, NOTHING_TO_RUN):
            print(f"pytest {' '.join(words)} did not run: {said.strip()}", file=sys.stderr)
        return found

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
        options = ["-q", "--tb=no", "-rfE", "-p", "no:cacheprovider", "-m", "not slow and not gpu"]
        sys.exit(import_module("pytest").main([*options, *words]))


def places(mutation: Mutation, root: Path) -> list[Place]:
    """Every place of its source."""
    pattern = re.compile(r"\s+".join(map(re.escape, mutation.source.split())))
    return [
        Place(path, *match.span())
        for path in sorted((root / "profiler").rglob("*.py"))
        for match in pattern.finditer(path.read_text())
    ]


@dataclass(frozen=True)
class Outcome:
    """What became of a mistake."""

    mutation: Mutation
    how: str
    test: str
    """The first that failed; empty where none did."""
    seconds: float


def tried(mutation: Mutation, tree: Tree, tests: Sequence[str], how: str) -> Outcome:
    """Plant it and run these tests, one after the other, up to the first that fails: then it is found so."""
    begin = time.monotonic()
    found = places(mutation, tree.root)
    if len(found) != 1:
        return Outcome(mutation, f"its source is there {len(found)} times", "", 0.0)
    (place,) = found
    text = place.path.read_text()
    tree.write(place.path, text[: place.begin] + mutation.instead + text[place.end :])
    try:
        for words in tests:
            if failed := tree.failures(shlex.split(words), first=True):
                return Outcome(mutation, how, failed[0], time.monotonic() - begin)
    finally:
        tree.write(place.path, text)
    return Outcome(mutation, SURVIVED, "", time.monotonic() - begin)


def all_tried(mutations: Sequence[Mutation], tree: Tree) -> Iterator[Outcome]:
    """Each by the tests that ought to find it; those that these do not find by all others."""
    missed = []
    for mutation in mutations:
        outcome = tried(mutation, tree, mutation.tests, FOUND)
        print(f"{outcome.how}: {mutation.name} {outcome.test}", file=sys.stderr, flush=True)
        if outcome.how == SURVIVED:
            missed.append(mutation)
        else:
            yield outcome
    for mutation in missed:
        outcome = tried(mutation, tree, (REST,), ELSEWHERE)
        print(f"{outcome.how}: {mutation.name} {outcome.test}", file=sys.stderr, flush=True)
        yield outcome


def confirmed(outcomes: Sequence[Outcome], tree: Tree) -> list[Outcome]:
    """A test that fails without the mistake as well has found nothing."""
    tests = list(dict.fromkeys(each.test for each in outcomes if "::" in each.test))
    anyway = set(tree.failures(tests, first=False)) if tests else set()
    return [replace(each, how=ANYWAY) if each.test in anyway else each for each in outcomes]


def table(outcomes: Sequence[Outcome]) -> Iterator[str]:
    """Markdown, a line each."""
    yield "| mistake | | first test that fails | s |"
    yield "|---|---|---|---|"
    for each in outcomes:
        test = f"`{each.test.removeprefix('tests/')}`" if each.test else ""
        yield f"| {each.mutation.name} | {each.how} | {test} | {each.seconds:.0f} |"
    yield ""
    counted = Counter(each.how for each in outcomes)
    yield f"{len(outcomes)} mistakes: {', '.join(f'{number} {how}' for how, number in counted.most_common())}."


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.mutations", description=__doc__)
    parser.add_argument("--only", default="", metavar="PATTERN", help="the mistakes whose name holds this")
    parser.add_argument("--list", action="store_true", help="run nothing: where each mistake would go")
    arguments = parser.parse_args()
    chosen = [each for each in MUTATIONS if re.search(arguments.only, each.name)]
    if arguments.list:
        for mutation in chosen:
            where = [str(place.path.relative_to(ROOT)) for place in places(mutation, ROOT)]
            print(f"{', '.join(where) or 'NOT FOUND'}: {mutation.name}")
        sys.exit(int(any(len(places(mutation, ROOT)) != 1 for mutation in chosen)))
    with tempfile.TemporaryDirectory() as folder:
        tree = Tree(Path(folder))
        outcomes = confirmed(list(all_tried(chosen, tree)), tree)
    print("\n".join(table(outcomes)))
    sys.exit(int(any(each.how not in (FOUND, ELSEWHERE) for each in outcomes)))


if __name__ == "__main__":
    main()
