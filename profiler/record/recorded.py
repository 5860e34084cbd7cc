"""Which files are a recording itself: nothing that is made of it may take their place."""

from __future__ import annotations

import os
import re
from fnmatch import fnmatchcase
from pathlib import Path

from ..errors import RecordError
from .attached import STATES
from .comparison import COMPARISON_JSON
from .image_files import IMAGE_FILES
from .names import NAMES
from .notices import ARMED, LOADED, SAMPLER_NOTICES, TRAINING_NOTICES
from .run import DEVICES, RUN_JSON
from .scalars import SCALARS, WANTED
from .stacks import STACKS

PAGE = "report.html"
"""Name of a result's page, in the folder of what it is about, where none is given."""
PAGES = ("page that whyidle wrote", rb'<!doctype html>.*<meta name="generator" content="(?:whyidle|stallscope)">')
MOST_OF_BEGIN = 4096

_MARKERS = (RUN_JSON, COMPARISON_JSON, "tune.json")
"""Of a folder in which something was recorded, one of these is there."""
_OF_A_RUN = (
    *("*.rec", "process-*.json", NAMES, DEVICES, STACKS, STATES, SCALARS, WANTED, IMAGE_FILES),
    *(SAMPLER_NOTICES, TRAINING_NOTICES),
)
_OF_A_TRAINING = (LOADED, ARMED, "tuning.*", "output.txt", "truth.json")
"""What trainings that whyidle starts leave beside their records."""


def is_recording(folder: str) -> bool:
    """Whether something was recorded there, by a look at its names alone."""
    return any(os.path.isfile(f"{folder}/{marker}") for marker in _MARKERS)  # noqa: PTH113


def recorded_in(folder: Path) -> str | None:
    """A name in the folder that a recording, or its page, has too; `None` where there is none, or no folder."""
    names = os.listdir(folder) if folder.is_dir() else ()
    found = (name for name in names if name == PAGE or _is_recorded(name))
    return min(found, key=lambda name: name != RUN_JSON, default=None)


def _is_recorded(name: str) -> bool:
    return any(fnmatchcase(name, pattern) for pattern in (*_MARKERS, *_OF_A_RUN, *_OF_A_TRAINING))


def refuse_recorded(path: Path, only: tuple[str, bytes] | None = None, with_option: str = "") -> None:
    """That a file may be written there.

    Args:
        only: the kind of file whose place alone it may take, in words, and a pattern of how those begin.
        with_option: how another is named, such as ` with -o`.

    Raises:
        RecordError: it is one of a recording, or would be taken for one; or it is none of that kind.
    """
    real = Path(os.path.realpath(path))
    if _is_recorded(real.name) and is_recording(str(real.parent)):
        raise RecordError(f"{path} is a file of a recording, which would be lost. Name another file.")
    if only is not None and real.is_file():
        with real.open("rb") as file:
            begin = file.read(MOST_OF_BEGIN)
        if begin and re.match(only[1], begin, re.DOTALL) is None:
            raise RecordError(f"{path} exists and is not a {only[0]}. Name another file{with_option}.")
