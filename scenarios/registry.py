"""The scenarios by name; a Python file of the user's own is one too."""

from __future__ import annotations

import importlib.util
import sys
import traceback
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from whyidle.errors import MissingExtra, WhyidleError

if TYPE_CHECKING:
    from .scenario import Scenario

_FOLDERS = {"ssd": "ssd", "fashion-mnist": "fashion_mnist", "convnets": "convnets", "cost": "cost"}
"""Name of a scenario → its folder, whose `study.py` holds it as `SCENARIO`."""

NAMES = tuple(_FOLDERS)
"""Of those that come with whyidle."""

_NEEDED = {"torch": "torch", "torchvision": "torchvision", "PIL": "Pillow"}
"""What every scenario imports: module → what it is called. What single loaders and stores need, those say."""
_SAID = ("name", "study", "question", "data")
_LISTED = ("nets", "cpu_nets", "batch_sizes", "stores")
_CALLED = ("find_data", "open_data", "build", "loss", "optimizer", "evaluate")
_OF_DATA = ("__len__", "read", "decode", "targets", "stages", "describe", "notices")
_WRITTEN_IN = "docs/scenarios/your-own.md"
_files: set[str] = set()
"""Files of the user's own that were run."""


def scenario(name: str) -> Scenario:
    """A scenario by its name, or by the path of the Python file that defines it. The file is run: it is the user's own
    code, as a training script is.

    Raises:
        MissingExtra: what scenarios need is not installed.
        WhyidleError: there is none, or the file defines none.
    """
    if is_file(name):
        return _of_file(Path(name))
    if name not in _FOLDERS:
        raise WhyidleError(
            f"unknown scenario {name!r}. `whyidle scenarios` lists all; give one of your own as the path of its "
            "Python file."
        )
    require_installed(f"scenario {name}")
    found: Scenario = import_module(f".{_FOLDERS[name]}.study", __package__).SCENARIO
    return found


def not_installed() -> str:
    """What of the scenarios' needs is missing in this environment, in words; empty where nothing is."""
    lacking = [said for module, said in _NEEDED.items() if importlib.util.find_spec(module) is None]
    return " and ".join(filter(None, [", ".join(lacking[:-1]), *lacking[-1:]]))


def require_installed(what: str) -> None:
    """
    Args:
        what: is to be run.

    Raises:
        MissingExtra: what scenarios need is not installed.
    """
    if lacking := not_installed():
        raise MissingExtra(f"{what} needs {lacking}, which this environment lacks", "studies")


def is_file(name: str) -> bool:
    """Whether this names a scenario by its file."""
    return name.endswith(".py")


def _of_file(path: Path) -> Scenario:
    if not path.is_file():
        raise WhyidleError(f"there is no file {path}. Name the Python file of a scenario.")
    require_installed(str(path))
    from .scenario import Scenario

    module = _load(path.resolve())
    found = getattr(module, "SCENARIO", None)
    if not isinstance(found, Scenario):
        raise WhyidleError(
            f"{path} defines no SCENARIO, an instance of a subclass of whyidle.scenarios.scenario.Scenario: see "
            f"{_WRITTEN_IN}."
        )
    _require_whole(found, path)
    return found


def _require_whole(found: Scenario, path: Path) -> None:
    """
    Raises:
        WhyidleError: an attribute that every scenario has is missing, empty or of another kind.
    """
    wrong = [f"{name} (a text)" for name in _SAID if not _is_text(getattr(found, name, None))]
    wrong += [f"{name} (a tuple)" for name in _LISTED if not _is_filled(getattr(found, name, None))]
    wrong += [f"{name} (a method)" for name in _CALLED if not callable(getattr(found, name, None))]
    if wrong:
        raise WhyidleError(
            f"{path}: {type(found).__name__} has no {', no '.join(wrong)}. Every scenario defines these: see "
            f"{_WRITTEN_IN}."
        )


def _is_text(value: object) -> bool:
    return isinstance(value, str) and bool(value)


def _is_filled(value: object) -> bool:
    return isinstance(value, tuple | list) and bool(value)


def require_data(opened: object, chosen: Scenario) -> None:
    """What `open_data` gave must be a dataset.

    Raises:
        WhyidleError: it is none; the message names what it lacks.
    """
    if lacking := [name for name in _OF_DATA if not hasattr(opened, name)]:
        raise WhyidleError(
            f"{chosen.name}'s open_data gave a {type(opened).__name__}, which has no {', no '.join(lacking)}: see "
            f"{_WRITTEN_IN}."
        )


def own_error(error: BaseException) -> str | None:
    """An error that came out of a scenario's file of the user's own, and where; `None` of any other."""
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if frame.filename in _files]
    if not frames:
        return None
    where = f"{frames[-1].filename}:{frames[-1].lineno}, in {frames[-1].name}"
    return f"{_told(error)} ({where})"


def _told(error: BaseException) -> str:
    """Its further lines are indented, by which they are known as such in what is printed."""
    return "\n  ".join(f"{type(error).__name__}: {error}".expandtabs(4).splitlines())


def _load(path: Path) -> Any:
    """The module in a file. It goes by its name, so that its classes can be pickled for workers."""
    name = path.stem
    known = sys.modules.get(name)
    if known is not None:
        if getattr(known, "__file__", None) == str(path):
            return known
        raise WhyidleError(f"{path} has the name of another module, {name!r}. Rename the file.")
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    _files.add(str(path))
    # Worker processes that are spawned import it by its name.
    sys.path.insert(0, str(path.parent))
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        del sys.modules[name]
        raise WhyidleError(f"{path} could not be run: {own_error(error) or _told(error)}") from error
    return module
