"""The tools that are compared, and those that a user adds."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterable, Mapping
from pathlib import Path

from whyidle.errors import WhyidleError

from .program_tools import ProgramTool
from .tool import Tool
from .tools import fournex, gpu_idle, loadtune, traceml, whyidle

OURS = whyidle.TOOL
TOOLS: Mapping[str, Tool] = {each.TOOL.name: each.TOOL for each in (whyidle, traceml, loadtune, fournex, gpu_idle)}


def requirements(tools: Iterable[Tool | ProgramTool]) -> list[str]:
    """What pip has to install for these tools."""
    return [tool.requirement for tool in tools if tool.package]


def adapter(path: Path) -> Tool:
    """The `TOOL` of a Python file, which is executed.

    Raises:
        WhyidleError: there is no such file, it has no `TOOL`, or that has the name of another.
    """
    spec = importlib.util.spec_from_file_location(path.stem, path)
    if spec is None or spec.loader is None or not path.is_file():
        raise WhyidleError(f"{path} is no Python file. Name one that has a TOOL.")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    tool = getattr(module, "TOOL", None)
    if not isinstance(tool, Tool):
        raise WhyidleError(f"{path} has no TOOL: it is to be a Tool of {Tool.__module__}.")
    if tool.name in TOOLS:
        raise WhyidleError(f"the TOOL of {path} is called {tool.name}, as one that is here already. Call it otherwise.")
    return tool
