"""Which files are a recording itself: nothing that is made of it may take their place."""

from __future__ import annotations

import os
from fnmatch import fnmatchcase
from pathlib import Path

from ..errors import RecordError
from .attached import COUNTED_STACKS, STATES
from .comparison import COMPARISON_JSON
from .image_files import IMAGE_FILES
from .names import NAMES
from .notices import SAMPLER_NOTICES, TRAINING_NOTICES
from .run import RUN_JSON
from .sampled_devices import DEVICES
from .scalars import SCALARS, WANTED
from .signs import ARMED, LOADED, STACKS_REFUSED
from .stacks import STACKS

_MARKERS = (RUN_JSON, COMPARISON_JSON, "tune.json")
"""Of a folder in which something was recorded, one of these is there."""
_OF_A_RUN = (
    *("*.rec", "process-*.json", NAMES, DEVICES, COUNTED_STACKS, STACKS, STATES, SCALARS, WANTED, IMAGE_FILES),
    *(SAMPLER_NOTICES, TRAINING_NOTICES),
)
_OF_A_TRAINING = (LOADED, ARMED, STACKS_REFUSED, "tuning.*", "output.txt", "truth.json")
"""What trainings that whyidle starts leave beside their records."""


def is_recording(folder: str) -> bool:
    """Whether something was recorded there, by a look at its names alone."""
    return any(os.path.isfile(f"{folder}/{marker}") for marker in _MARKERS)  # noqa: PTH113


def refuse_recorded(path: Path) -> None:
    """That a file may be written there.

    Raises:
        RecordError: it is one of a recording, or would be taken for one.
    """
    real = Path(os.path.realpath(path))
    ours = any(fnmatchcase(real.name, pattern) for pattern in (*_MARKERS, *_OF_A_RUN, *_OF_A_TRAINING))
    if ours and is_recording(str(real.parent)):
        raise RecordError(f"{path} is a file of the recording itself, which would be lost. Name another file.")
