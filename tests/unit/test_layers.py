"""The one direction of imports: the table of docs/architecture.md, enforced."""

from __future__ import annotations

import ast
from functools import cache
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

from whyidle.commands.verbs import VERBS

ROOT = Path(__file__).parents[2]
FOLDERS = {"profiler": "whyidle", "pipelines": "whyidle.pipelines", "scenarios": "whyidle.scenarios"}
"""The benchmark of diagnosis is a package of its own, which none of these may import."""

HEAVY = {"torch", "torchvision", "pynvml", "nvidia", "spdl", "matplotlib", "pyarrow"}
HEAVY |= {"jinja2", "msgspec", "tsdownsample"}

# layer -> (layers of ours it may import, heavy libraries it may import at module level)
LAYERS: dict[str, tuple[set[str], set[str]]] = {
    "errors": (set(), set()),
    "interrupts": (set(), set()),
    "native": (set(), set()),
    "api": ({"capture", "record", "report"}, set()),
    "record": ({"errors", "native"}, set()),
    "devices": ({"errors"}, {"torch", "pynvml"}),
    "capture": ({"errors", "interrupts", "native", "record", "devices"}, {"torch", "pynvml"}),
    "analyse": ({"errors", "native", "record"}, {"tsdownsample"}),
    "matrix": ({"errors", "record", "devices", "capture", "analyse"}, set()),
    "tune": ({"errors", "interrupts", "record", "analyse", "matrix", "sampler-start"}, set()),
    "report": ({"errors", "record", "analyse", "tune"}, {"jinja2", "msgspec"}),
    "results": ({"errors", "record", "analyse", "tune", "report"}, set()),
    "terminal": ({"errors", "interrupts", "record", "analyse", "matrix", "tune", "report", "capture"}, set()),
    "commands": (
        {"errors", "interrupts", "record", "analyse", "matrix", "tune"}
        | {"report", "results", "terminal", "capture", "devices"},
        {"msgspec"},
    ),
    "pipelines": ({"errors"}, {"torch"}),
    "scenarios": ({"errors", "record", "devices", "capture", "pipelines"}, {"torch", "torchvision"}),
}


def modules() -> list[tuple[str, Path]]:
    found = []
    for folder, name in FOLDERS.items():
        for path in sorted((ROOT / folder).rglob("*.py")):
            parts = path.relative_to(ROOT / folder).with_suffix("").parts
            found.append((".".join((name, *(p for p in parts if p != "__init__"))), path))
    return found


def layer(module: str) -> str:
    parts = module.split(".")
    return parts[1] if len(parts) > 1 else ""


@cache
def imports(module: str, path: Path) -> list[tuple[str, bool]]:
    """(absolute module, whether it is imported when this module is)."""
    tree = ast.parse(path.read_text())
    deferred = {
        id(inner)
        for outer in ast.walk(tree)
        if isinstance(outer, ast.FunctionDef | ast.AsyncFunctionDef)
        or (isinstance(outer, ast.If) and "TYPE_CHECKING" in ast.unparse(outer.test))
        for inner in ast.walk(outer)
    }
    package = module.split(".") if path.name == "__init__.py" else module.split(".")[:-1]
    found = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = ".".join(package[: len(package) - node.level + 1]) if node.level else ""
            name = ".".join(p for p in (base, node.module or "") if p)
            # `from . import x` names modules, `from .a import f` a module's content
            names = [name] if node.module else [f"{name}.{alias.name}" for alias in node.names]
        else:
            continue
        found += [(name, id(node) not in deferred) for name in names]
    return found


@pytest.mark.parametrize(("module", "path"), modules(), ids=lambda v: v if isinstance(v, str) else "")
def test_a_module_imports_only_what_its_layer_may(module: str, path: Path) -> None:
    here = layer(module)
    if here in ("", "__main__"):
        return
    allowed, heavy = LAYERS[here]
    for name, at_import in imports(module, path):
        top = name.split(".")[0]
        assert top != "whyidle_bench", f"{module} imports the benchmark of diagnosis"
        if top in HEAVY and at_import:
            assert top in heavy, f"{module} imports {name} at module level"
        if top != "whyidle":
            continue
        there = layer(name)
        if there in (here, "", "__version__"):
            continue
        if name == "whyidle.capture.sampler.start" and "sampler-start" in allowed:
            continue
        if here in ("commands", "matrix") and there in ("pipelines", "scenarios") and not at_import:
            continue
        assert there in allowed, f"{module} ({here}) imports {name} ({there})"


def test_the_json_of_results_takes_nothing_from_what_words_or_pages_say() -> None:
    for module, path in modules():
        if module.startswith("whyidle.report.contract"):
            ours = {name for name, _ in imports(module, path) if name.startswith("whyidle.report.")}
            assert all(name.startswith("whyidle.report.contract") for name in ours), f"{module} imports {ours}"


def test_the_loop_detector_is_pure() -> None:
    """Neither torch, clocks, threads nor files: what it makes of events can be written down as a table."""
    for module, path in modules():
        if module.startswith("whyidle.capture.loop_detector"):
            needed = {name for name, at_import in imports(module, path) if at_import}
            ours = {name for name in needed if name.startswith("whyidle")}
            assert all(
                "loop_detector" in name or name in ("whyidle.native", "whyidle.record.schema") for name in ours
            ), module
            assert needed - ours <= {"__future__", "collections.abc", "dataclasses", "enum", "typing"}, module


def test_verbs_do_not_import_verbs() -> None:
    verbs = {f"whyidle.commands.{verb.name}" for verb in VERBS}
    for module, path in modules():
        names = {name for name, _ in imports(module, path)}
        if layer(module) == "commands" and module != "whyidle.commands.main":
            assert not names & verbs - {module}, f"{module} imports {names & verbs}"


def test_no_package_imports_another_in_a_circle() -> None:
    TopologicalSorter({name: allowed & LAYERS.keys() for name, (allowed, _) in LAYERS.items()}).prepare()


def test_a_name_of_a_class_stands_for_one_thing() -> None:
    """Private ones aside."""
    found: dict[str, set[str]] = {}
    for module, path in modules():
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                found.setdefault(node.name, set()).add(module)
    assert {name: where for name, where in found.items() if len(where) > 1} == {}
