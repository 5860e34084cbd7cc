"""What is in C where it could be built: the steady path of the hooks (`_native.c`), with what stands in its place where
not.

What hooks cost a step is mostly what the training has pushed out of the caches since the last one, and in C the common
case of a step touches a fraction of the memory that Python needs for it. The state stays that of the classes in Python,
which have the types here for bases: what is not the common case they do themselves; without the extension, all of it.
"""

from __future__ import annotations

import importlib
import os
import sys
from typing import TYPE_CHECKING, Any

PURE = "WHYIDLE_PURE"
"""Set to anything but 0 in the environment of a training, it has the hooks do without the extension."""


def _compiled() -> tuple[Any, str]:
    """(the extension or `None`, why it is not used)"""
    if os.environ.get(PURE, "0") not in ("", "0"):
        return None, f"{PURE} is set"
    if not getattr(sys, "_is_gil_enabled", lambda: True)():
        return None, "this Python has no global lock"
    try:
        return importlib.import_module("._native", __package__), ""
    except ImportError as error:
        return None, "it was not built" if isinstance(error, ModuleNotFoundError) else str(error)


extension, why_not = _compiled()

if TYPE_CHECKING:

    class AppenderBase: ...

    class RecorderBase:
        def tell_looked(self) -> None:
            """The steps looked at that thinning was not told yet are told."""

    class DetectorBase: ...

    class ForwardBase:
        def expects(self, module: Any) -> None:
            """The next call of this module is told to `_told`, once; `None`: of none any longer."""

    class FetchTimerBase: ...

else:

    class _Plain:
        """A base that brings nothing: its class has its attributes as any other."""

    class _PlainRecorder(_Plain):
        def tell_looked(self) -> None:
            """They are told one by one."""

    RecorderBase = getattr(extension, "Recorder", _PlainRecorder)
    AppenderBase, DetectorBase, ForwardBase, FetchTimerBase = (
        getattr(extension, name, _Plain) for name in ("Appender", "Detector", "Forward", "FetchTimer")
    )
