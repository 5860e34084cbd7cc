"""The scenarios by name; a Python file of the user's own is one too."""

from __future__ import annotations

import importlib.util
import sys
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from stallscope.errors import StallscopeError

if TYPE_CHECKING:
    from .scenario import Scenario

_MODULES = {"ssd": "ssd", "fashion-mnist": "fashion_mnist", "cost": "cost", "convnets": "convnets"}
"""Name of a scenario → its module, which holds it as `SCENARIO`."""

NAMES = tuple(_MODULES)
"""Of those that come with stallscope."""


def scenario(name: str) -> Scenario:
    """A scenario by its name, or by the path of the Python file that defines it. The file is run: it is the user's own
    code, as a training script is.

    Raises:
        StallscopeError: there is none, or the file defines none.
    """
    if is_file(name):
        return _of_file(Path(name))
    if name not in _MODULES:
        raise StallscopeError(
            f"unknown scenario {name!r}. `stallscope scenarios` lists all of them; one of your own is given as the "
            "path of its Python file."
        )
    found: Scenario = import_module(f".{_MODULES[name]}", __package__).SCENARIO
    return found


def is_file(name: str) -> bool:
    """Whether this names a scenario by its file."""
    return name.endswith(".py")


def _of_file(path: Path) -> Scenario:
    from .scenario import Scenario

    if not path.is_file():
        raise StallscopeError(f"there is no file {path} to take a scenario from.")
    module = _load(path.resolve())
    found = getattr(module, "SCENARIO", None)
    if not isinstance(found, Scenario):
        raise StallscopeError(
            f"{path} defines no SCENARIO, an instance of a subclass of stallscope.scenarios.scenario.Scenario: see "
            "docs/scenarios/your-own.md."
        )
    return found


def _load(path: Path) -> Any:
    """The module in a file. It goes by its name, so that its classes can be pickled for workers."""
    name = path.stem
    known = sys.modules.get(name)
    if known is not None:
        if getattr(known, "__file__", None) == str(path):
            return known
        raise StallscopeError(f"{path} has the name of another module, {name!r}. Give the file a name of its own.")
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    # Worker processes that are spawned import it by its name.
    sys.path.insert(0, str(path.parent))
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        del sys.modules[name]
        raise StallscopeError(f"{path} could not be run: {type(error).__name__}: {error}") from error
    return module
