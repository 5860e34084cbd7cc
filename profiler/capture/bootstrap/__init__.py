"""Recording a command unchanged: what is put into its environment so that its Python watches itself.

`environment()` is used by the command that starts it; `site/sitecustomize.py` and `arm.py` run in the training.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ..stacks.permit import TRACER, tracer

RUN = "WHYIDLE_RUN"
PACKAGE = "WHYIDLE_PACKAGE"
OPTIONS = "WHYIDLE_OPTIONS"
LEAST_TORCH = "2.6"
"""The oldest that the hooks take."""

_SITE = Path(__file__).parent / "site"
_PACKAGE_FOLDER = Path(__file__).parents[2]


def environment(folder: Path, before: Mapping[str, str], options: Mapping[str, Any]) -> dict[str, str]:
    """The environment of a command that is recorded into `folder`.

    Args:
        before: what its environment would be without us.
        options: for the hooks, see `arm.py`.
    """
    given = before.get("PYTHONPATH")
    # An empty entry is the current folder, but an empty variable is none.
    path = [str(_SITE), *(p for p in given.split(os.pathsep) if p != str(_SITE))] if given else [str(_SITE)]
    return dict(before) | {
        "PYTHONPATH": os.pathsep.join(path),
        RUN: str(folder.resolve()),
        PACKAGE: str(_PACKAGE_FOLDER),
        OPTIONS: json.dumps(dict(options)),
        TRACER: tracer(),
    }


def too_old(torch_version: str) -> bool:
    """Whether the hooks leave a torch alone. One with another kind of version is taken: each hook looks whether it
    fits."""
    numbers = re.match(r"(\d+)\.(\d+)", torch_version)
    least = tuple(map(int, LEAST_TORCH.split(".")))
    return numbers is not None and (int(numbers[1]), int(numbers[2])) < least


def options() -> dict[str, Any]:
    """What `environment` was given, in the training; empty where it cannot be read."""
    try:
        given = json.loads(os.environ.get(OPTIONS, "{}"))
    except ValueError:
        return {}
    return given if isinstance(given, dict) else {}


def stack_options() -> Any:
    """How the command that started us wants stacks to be looked at, see `stacks/within.py`."""
    return options().get("stacks")


def run_folder() -> Path | None:
    """The run folder this process shall record into, `None` outside `whyidle run`."""
    folder = os.environ.get(RUN)
    return Path(folder) if folder else None
