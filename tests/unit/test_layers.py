"""The one direction of imports: the table of docs/architecture.md, enforced."""

from __future__ import annotations

import ast
from functools import cache
from graphlib import TopologicalSorter
from pathlib import Path

from whyidle.commands.verbs import VERBS

ROOT = Path(__file__).parents[2]
FOLDERS = {"profiler": "whyidle", "pipelines": "whyidle.pipelines", "scenarios": "whyidle.scenarios"}
"""The benchmark of diagnosis is a package of its own, which none of these may import."""

HEAVY = {"torch", "torchvision", "pynvml", "nvidia", "spdl", "matplotlib", "pyarrow"}
HEAVY |= {"jinja2", "msgspec", "tsdownsample"}

# layer -> (layers of ours it may import, heavy libraries it may import at module level)
LAYERS: dict[str, tuple[set[str], set[str]]] = {
    "errors": (set(), set()),
    "interrupts": ({"errors"}, set()),
    "native": (set(), set()),
    "api": ({"capture", "record", "report"}, set()),
    "record": ({"errors", "native"}, set()),
    "devices": ({"errors"}, {"torch", "msgspec"}),
    "capture": ({"errors", "interrupts", "native", "record", "devices"}, {"torch", "pynvml", "msgspec"}),
    "analyse": ({"errors", "native", "record"}, {"tsdownsample", "msgspec"}),
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
def parsed(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


@cache
def imports(module: str, path: Path) -> list[tuple[str, bool]]:
    """(absolute module, whether it is imported when this module is)."""
    package = module.split(".") if path.name == "__init__.py" else module.split(".")[:-1]
    found: list[tuple[str, bool]] = []
    todo: list[tuple[ast.AST, bool]] = [(parsed(path), True)]
    while todo:
        node, at_import = todo.pop()
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = ".".join(package[: len(package) - node.level + 1]) if node.level else ""
            name = ".".join(p for p in (base, node.module or "") if p)
            # `from . import x` names modules, `from .a import f` a module's content
            names = [name] if node.module else [f"{name}.{alias.name}" for alias in node.names]
        else:
            for_types = isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test)
            at_import &= not (for_types or isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef))
            inner = (each for each in ast.iter_child_nodes(node) if not isinstance(each, ast.expr))
            todo += [(each, at_import) for each in inner]
            continue
        found += [(name, at_import) for name in names]
    return found


def allowed_at(here: str, name: str, at_import: bool) -> bool:
    """Whether a module of this layer may import that one."""
    allowed, heavy = LAYERS[here]
    top, there = name.split(".")[0], layer(name)
    if top != "whyidle":
        return top != "whyidle_bench" and not (top in HEAVY - heavy and at_import)
    if there in (here, "", "__version__"):
        return True
    if name == "whyidle.capture.sampler.start" and "sampler-start" in allowed:
        return True
    if here in ("commands", "matrix") and there in ("pipelines", "scenarios") and not at_import:
        return True
    return there in allowed


def test_a_module_imports_only_what_its_layer_may() -> None:
    wrong = [
        f"{module} imports {name}"
        for module, path in modules()
        if (here := layer(module)) not in ("", "__main__")
        for name, at_import in imports(module, path)
        if not allowed_at(here, name, at_import)
    ]
    assert wrong == []


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
    verbs = {f"whyidle.commands.{verb}" for verb in VERBS}
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
        for node in ast.walk(parsed(path)):
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                found.setdefault(node.name, set()).add(module)
    assert {name: where for name, where in found.items() if len(where) > 1} == {}
