"""Small JSON files: written so that a reader never sees half of one, read so that they can do no harm."""

from __future__ import annotations

import contextlib
import json
import os
import unicodedata
from pathlib import Path
from typing import Any

from ..errors import RecordError


def read_json(path: Path) -> Any:
    """The content, with control characters in texts replaced: they would act on a terminal.

    Raises:
        RecordError: it cannot be read, or is no JSON.
    """
    try:
        return plain(json.loads(path.read_text()))
    except (OSError, ValueError, RecursionError) as error:
        raise RecordError(f"cannot read {path}: {error}.") from error


def plain(value: Any) -> Any:
    """The value with every control character in its texts replaced by `?`."""
    if isinstance(value, str):
        return "".join("?" if unicodedata.category(c) == "Cc" and c not in "\n\t" else c for c in value)
    if isinstance(value, list):
        return [plain(item) for item in value]
    if isinstance(value, dict):
        return {plain(key): plain(item) for key, item in value.items()}
    return value


def write_json(path: Path, content: dict[str, Any]) -> None:
    """Written beside and renamed.

    Raises:
        OSError: it could not be written; what was there before is still there.
    """
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        draft.write_text(json.dumps(content, indent=1))
        draft.replace(path)
    except OSError:
        with contextlib.suppress(OSError):
            draft.unlink()
        raise
