"""The mutation score: how many small mistakes in what explains a recording, and in what records it, the tests find.

`python -m tests.mutations FOLDER [--number 300] [--seed 1] [--jobs 2]` draws mistakes with cosmic-ray, by package in
proportion to where they can be made, plants one after the other into a copy of the tree, and runs the tests that
execute its line, up to the first that fails: those which execute the fewest lines first. Which tests these are is
learnt from one run under coverage, kept in FOLDER as everything else is: what was tried is not tried again.

Needs `pip install cosmic-ray coverage`. An hour on two idle CPUs.
"""

from __future__ import annotations

import argparse
import ast
import json
import os
import random
import re
import shutil
import sqlite3
import subprocess
import sys
import tempfile
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from importlib import import_module
from pathlib import Path
from queue import SimpleQueue
from typing import Any, NamedTuple

from whyidle_bench.confusion import HitRate

ROOT = Path(__file__).resolve().parents[2]
MUTATED = ("profiler/analyse", "profiler/capture/hooks", "profiler/capture/loop_detector", "profiler/capture/workers")
"""What explains a recording, and capture's recorder; with the modules directly in `profiler/capture`."""
TESTS = ("tests/unit", "tests/golden")
LEFT_OUT = ("scenarios", "pipelines", "test_budgets.py", "test_layers.py")
OPTIONS = ("--tb=no", "-rfE", "-p", "no:cacheprovider", "-p", "no:xdist", "-m", "not slow and not gpu")
PACKAGES = ("pipelines", "scenarios")
MOST_TESTS = 250
"""Tests tried for a mistake."""
LIMIT_S = 600
TREE = "tree"
"""Name of the folder that a copy lies in."""
FOUND, SURVIVED, UNSEEN, ANYWAY = "found", "survived", "no test executes it", "its test fails anyway"
USAGE = 4
"""Pytest's exit code where it did not find a test."""
KINDS = ("Replace", "Number", "AddNot", "Remove", "Zero", "Exception")
"""How the names of cosmic-ray's operators begin that are used."""


class Mistake(NamedTuple):
    """A change of one place: the operator's name, and which of the places in that file it could be made at."""

    path: str
    line: int
    operator: str
    occurrence: int


def modules() -> list[Path]:
    """Every module that mistakes are drawn for."""
    found = [path for folder in MUTATED for path in (ROOT / folder).rglob("*.py")]
    return sorted([*found, *(ROOT / "profiler/capture").glob("*.py")])


def annotated(tree: ast.AST) -> set[int]:
    """Lines that hold a type, which nothing evaluates."""
    lines: set[int] = set()
    for node in ast.walk(tree):
        types = [getattr(node, name, None) for name in ("annotation", "returns")]
        for each in types:
            if isinstance(each, ast.AST):
                lines |= set(range(each.lineno, (each.end_lineno or each.lineno) + 1))
    return lines


def drawn(number: int, seed: int) -> list[Mistake]:
    """Mistakes by package, in proportion to the places there; each place of a module is as likely as another."""
    plugins, syntax = import_module("cosmic_ray.plugins"), import_module("cosmic_ray.ast")
    names = [name for name in plugins.operator_names() if name.split("/")[1].startswith(KINDS)]
    operators = {name: plugins.get_operator(name)() for name in names}
    places: dict[str, dict[tuple[str, tuple[int, int]], list[Mistake]]] = defaultdict(lambda: defaultdict(list))
    for path in modules():
        text, name = path.read_text(), str(path.relative_to(ROOT))
        types = annotated(ast.parse(text))
        counts: Counter[str] = Counter()
        for node in syntax.ast_nodes(syntax.get_ast(text)):
            for operator, made in operators.items():
                for begin, _ in made.mutation_positions(node):
                    mistake = Mistake(name, begin[0], operator, counts[operator])
                    counts[operator] += 1
                    if begin[0] not in types or "BinaryOperator" not in operator:
                        places[str(path.parent)][name, begin].append(mistake)
    chance = random.Random(seed)
    every = sum(map(len, places.values()))
    return [
        chance.choice(choices)
        for _, package in sorted(places.items())
        for choices in chance.sample(list(package.values()), max(1, round(number * len(package) / every)))
    ]


class Tree:
    """A copy of the tree, and a folder from which it is imported as it is when installed."""

    def __init__(self, folder: Path) -> None:
        self.root, self._package = folder / TREE, folder / "package"
        listed = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
        for name in subprocess.run(listed, cwd=ROOT, check=True, capture_output=True, text=True).stdout.split("\0"):
            if name and (ROOT / name).is_file():
                (self.root / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(ROOT / name, self.root / name)
        for native in (ROOT / "profiler").glob("*.so"):
            shutil.copy2(native, self.root / "profiler")
        whyidle = self._package / "whyidle"
        whyidle.mkdir(parents=True)
        for entry in (*(self.root / "profiler").iterdir(), *(self.root / name for name in PACKAGES)):
            (whyidle / entry.name).symlink_to(entry)
        self.environment = {"PYTHONPATH": str(self._package), "PYTHONDONTWRITEBYTECODE": "1"}

    def failure(self, words: Sequence[str]) -> str:
        """The first test that fails, else nothing."""
        run = [sys.executable, "-m", "pytest", *OPTIONS, "-x", *words]
        environment = os.environ | self.environment
        try:
            done = subprocess.run(run, cwd=self.root, env=environment, capture_output=True, text=True, timeout=LIMIT_S)
        except subprocess.TimeoutExpired:
            return f"not done in {LIMIT_S} s"
        said = done.stdout + done.stderr
        found = re.search(r"^(?:FAILED|ERROR) (.*?)(?: - .*)?$", said, re.MULTILINE)
        # What cannot even be imported is found as well.
        if not found and done.returncode == USAGE and "Error: " not in said:
            raise ValueError(f"pytest could not run {' '.join(words)}: {said}")
        how = f"pytest ended with {done.returncode}: {said[-300:]}" if done.returncode else ""
        return found[1] if found else how

    def tried(self, mistake: Mistake, tests: Sequence[str]) -> dict[str, Any]:
        """What became of a mistake, and the first test that failed."""
        failed = ""
        if tests:
            code = import_module("cosmic_ray.mutating").mutate_code
            operator = import_module("cosmic_ray.plugins").get_operator(mistake.operator)()
            path = self.root / mistake.path
            text = path.read_text()
            path.write_text(code(text, operator, mistake.occurrence))
            failed = self.failure(tests)
            path.write_text(text)
        how = FOUND if failed else SURVIVED if tests else UNSEEN
        return {**mistake._asdict(), "how": how, "test": failed}


def covered(tree: Tree, folder: Path, jobs: int) -> dict[str, dict[int, list[str]]]:
    """Tests by file and line that they execute, the most particular first; line 0: by any line of the file."""
    tops = [path for top in TESTS for path in (tree.root / top).iterdir() if path.name not in LEFT_OUT]
    tops = [path for path in tops if path.is_dir() or path.name.startswith("test_")]
    with ThreadPoolExecutor(jobs) as pool:
        measured = list(pool.map(lambda path: _measured(tree, path.relative_to(tree.root), folder), tops))
    numbits = import_module("coverage.numbits").numbits_to_nums
    seen: dict[str, list[tuple[str, list[int]]]] = defaultdict(list)
    for data in measured:
        rows = sqlite3.connect(data).execute(
            "select file.path, context.context, numbits from line_bits join file on file.id = file_id"
            " join context on context.id = context_id where context.context != ''"
        )
        for path, test, bits in rows:
            seen[test].append((path.partition(f"/{TREE}/")[2], numbits(bits)))
    by_line: dict[str, dict[int, list[str]]] = defaultdict(lambda: defaultdict(list))
    for test in sorted(seen, key=lambda test: sum(len(lines) for _, lines in seen[test])):
        for path, lines in seen[test]:
            for line in (0, *lines):
                if len(by_line[path][line]) < MOST_TESTS:
                    by_line[path][line].append(test)
    return by_line


def _measured(tree: Tree, tests: Path, folder: Path) -> Path:
    """What coverage says of these tests, from an earlier run if there was one."""
    kept = folder / f"coverage-{'-'.join(tests.parts[1:])}"
    if not kept.exists():
        data = kept.with_suffix(".part")
        settings = data.with_suffix(".ini")
        sources = ",".join(str(tree.root / folder) for folder in ("profiler/analyse", "profiler/capture"))
        settings.write_text(f"[run]\nsource = {sources}\ndata_file = {data}\n")
        run = [sys.executable, "-m", "coverage", "run", f"--rcfile={settings}", "-m", "pytest", *OPTIONS]
        words = [*run, "-p", "tests.mutations.contexts", str(tests)]
        with kept.with_suffix(".log").open("w") as log:
            subprocess.run(words, cwd=tree.root, env=os.environ | tree.environment, check=False, stdout=log)
        data.rename(kept)
    return kept


def all_tried(mistakes: Sequence[Mistake], folder: Path, jobs: int) -> list[dict[str, Any]]:
    """Outcomes, of which those that FOLDER knows are not tried again."""
    kept = folder / "outcomes.jsonl"
    outcomes = [json.loads(line) for line in kept.read_text().splitlines()] if kept.exists() else []
    known = {(each["path"], each["operator"], each["occurrence"]) for each in outcomes}
    with tempfile.TemporaryDirectory() as place, kept.open("a") as file, ThreadPoolExecutor(jobs) as pool:
        trees: SimpleQueue[Tree] = SimpleQueue()
        for number in range(jobs):
            trees.put(Tree(Path(place) / str(number)))
        tree = Tree(Path(place) / "unchanged")
        tests = covered(tree, folder, jobs)

        def tried(mistake: Mistake) -> dict[str, Any]:
            lines, mine = tests.get(mistake.path, {}), trees.get()
            outcome = mine.tried(mistake, lines.get(mistake.line) or lines.get(0, []))
            trees.put(mine)
            return outcome

        new = [each for each in mistakes if (each.path, each.operator, each.occurrence) not in known]
        for outcome in pool.map(tried, new):
            outcomes.append(outcome)
            print(json.dumps(outcome), file=file, flush=True)
        for test in {each["test"] for each in outcomes if "::" in each["test"]}:
            if tree.failure([test]):
                outcomes = [{**each, "how": ANYWAY} if each["test"] == test else each for each in outcomes]
    return outcomes


def table(outcomes: Sequence[dict[str, Any]]) -> Iterator[str]:
    """Markdown, a line each: the score by package, and with the 95 % interval of Wilson's for all."""
    kinds = (FOUND, SURVIVED, UNSEEN, ANYWAY)
    yield f"| | mistakes | {' | '.join(kinds)} |"
    yield "|---|---|---|---|---|---|"
    packages = defaultdict(list)
    for each in outcomes:
        packages[str(Path(each["path"]).parent)].append(each["how"])
        packages["all"].append(each["how"])
    for name, hows in packages.items():
        counts = Counter(hows)
        yield f"| {name} | {len(hows)} | {' | '.join(str(counts[kind]) for kind in kinds)} |"
    found = HitRate(sum(each["how"] == FOUND for each in outcomes), len(outcomes))
    low, high = (100 * end for end in found.interval)
    yield ""
    yield f"{100 * found.hits / found.of:.1f} % ({low:.1f} to {high:.1f}) of {found.of} are found."


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.mutations", description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--number", type=int, default=300)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--jobs", type=int, default=2)
    arguments = parser.parse_args()
    folder = arguments.folder.resolve()
    folder.mkdir(parents=True, exist_ok=True)
    mistakes = drawn(arguments.number, arguments.seed)
    print("\n".join(table(all_tried(mistakes, folder, arguments.jobs))))
