"""Modules are as long as one reads at once, and none is a fragment of the one beside it."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from pathlib import Path

ROOT = Path(__file__).parents[2]
PACKAGES = {
    "profiler": "whyidle",
    "pipelines": "whyidle.pipelines",
    "scenarios": "whyidle.scenarios",
    "diagnosis_benchmark": "whyidle.diagnosis_benchmark",
    "benchmarks": "benchmarks",
    "scripts": "scripts",
    "tests": "tests",
}
MOST_LINES = 400
REASON = re.compile(r"^Longer than other modules: \S", re.MULTILINE)
"""Of a docstring, in which a long module says why it is one."""
LEAST_LINES = 60
TABLES = ("registry", "main", "stages/__init__")
"""Modules that list others, which are found by their names: a loader, a study, a verb, a stage a file."""


def sources() -> dict[str, Path]:
    """Every module by the name by which it is imported."""
    found = {}
    for folder, package in PACKAGES.items():
        for path in sorted((ROOT / folder).rglob("*.py")):
            parts = path.relative_to(ROOT / folder).with_suffix("").parts
            # Tests have their own folder on the path.
            names = ([] if folder == "tests" else [package]) + [part for part in parts if part != "__init__"]
            found[".".join(names)] = path
    return found


def named(path: Path) -> str:
    return str(path.relative_to(ROOT))


def lines(path: Path) -> int:
    return len(path.read_text().splitlines())


def imported(name: str, path: Path) -> set[str]:
    """What a module may import: modules, and what is in them by the same kind of name."""
    package = name.split(".") if path.name == "__init__.py" else name.split(".")[:-1]
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else []
            of = ".".join([*base, *([node.module] if node.module else [])])
            found |= {of, *(f"{of}.{alias.name}" for alias in node.names)}
    return found


def test_a_long_module_says_why_it_is_one() -> None:
    unexplained = {
        named(path): lines(path)
        for path in sources().values()
        if lines(path) > MOST_LINES and not REASON.search(ast.get_docstring(ast.parse(path.read_text())) or "")
    }
    assert not unexplained, f"cut by what it is about, or a line 'Longer than other modules: …' is due: {unexplained}"


def test_a_short_module_is_not_for_its_neighbour_alone() -> None:
    modules = sources()
    importers: dict[str, set[str]] = defaultdict(set)
    for name, path in modules.items():
        for other in imported(name, path) - {name}:
            importers[other].add(name)
    fragments = set()
    for name, path in modules.items():
        if path.stem in ("__init__", "__main__", "conftest") or lines(path) >= LEAST_LINES or len(importers[name]) != 1:
            continue
        [by] = importers[name]
        if modules[by].parent == path.parent and not any(
            str(modules[by].with_suffix("")).endswith(f"/{table}") for table in TABLES
        ):
            fragments.add(named(path))
    assert not fragments, f"each belongs into the one module that imports it: {fragments}"
