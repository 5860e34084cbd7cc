"""Keeps a training that is only run to be measured from spoiling the user's files, and notes what it writes to.

A regular file that was there before the tuner began is not overwritten, truncated, removed or replaced: an error says
so, and the trial ends with it unless the program catches it. What lies in folders for temporary files and caches, and
the run folder, is left alone, but not what lies where the program was started; so are files without content, which are
locks as a rule. Appending is allowed, and so is opening a file to change it in place, which is how memory maps and
locks are opened that only read: both are noted.

Python tells its audit hooks of each file that it opens. What is written by torch or safetensors themselves, past
Python, goes through a function of theirs that is covered. Other libraries that write from C (HDF5, LMDB) are not seen.
Only the standard library is imported here: this runs before the program does.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import stat
import sys
from pathlib import Path
from threading import get_ident
from typing import Any

WRITES = "tuning.writes"
"""File in the run folder: what was written to, JSON lines."""
MOST_NOTES = 2000
_WRITES = os.O_WRONLY | os.O_RDWR | os.O_TRUNC | os.O_CREAT | os.O_APPEND
_CACHE_VARIABLES = (
    *("XDG_CACHE_HOME", "HF_HOME", "HF_HUB_CACHE", "HF_DATASETS_CACHE", "TORCH_HOME", "TORCHINDUCTOR_CACHE_DIR"),
    *("TRITON_CACHE_DIR", "CUDA_CACHE_PATH", "NUMBA_CACHE_DIR", "MPLCONFIGDIR", "PYTHONPYCACHEPREFIX"),
)
_CACHE_NAMES = ("/.cache/", "/__pycache__/")
_TEMPORARY = ("/dev/", "/proc/", "/sys/")


class WouldOverwrite(PermissionError):
    """The program would spoil a file that was there before."""


class Guard:
    """An audit hook: there is no taking it back, so it lives as long as the process."""

    def __init__(self, folder: str, began: float, overwrite: bool) -> None:
        self._folder = folder
        self._began = began
        self._overwrite = overwrite
        self._free = _free_folders(folder)
        self._here = f"{os.path.realpath(os.curdir).rstrip('/')}/"
        # Whoever works in a folder for temporary files has files there that matter.
        self._within_free = tuple(each for each in self._free if not self._here.startswith(each))
        self._noted: set[tuple[str, str]] = set()
        self._inside: set[int] = set()
        self._appended: set[str] = set()
        """Old files that are younger now: something was added to them."""

    def __call__(self, event: str, args: tuple[Any, ...]) -> None:
        if event == "open":
            flags = args[2]
            if type(flags) is int and flags & _WRITES:
                self._look(self.opens, args[0], flags)
        elif event == "os.remove":
            self._look(self.removes, *args)
        elif event == "os.rename":
            self._look(self.renames, *args)
        elif event == "os.truncate":
            self._look(self.replaces, args[0])

    def _look(self, what: Any, *args: Any) -> None:
        thread = get_ident()
        if thread in self._inside:
            return
        self._inside.add(thread)
        try:
            what(*args)
        except WouldOverwrite:
            raise
        except Exception:
            pass  # what cannot be judged is left alone
        finally:
            self._inside.discard(thread)

    def opens(self, path: Any, flags: int) -> None:
        name = self._guarded(path)
        if name is None:
            return
        old = self._is_old(name)
        if old is None:
            if flags & os.O_CREAT:
                self.note(name, "new")
        elif flags & os.O_TRUNC:
            self._spoils(name, old)
        else:
            if old:
                self._appended.add(name)
            self.note(name, "append")

    def replaces(self, path: Any, folder: int = -1) -> None:
        """Written anew, whatever it held."""
        if (name := self._guarded(path, folder)) is not None:
            self._spoils(name, self._is_old(name))

    def removes(self, path: Any, folder: int = -1) -> None:
        name = self._guarded(path, folder)
        if name is not None and self._is_old(name):
            self._spoils(name, True)

    def renames(self, source: Any, target: Any, source_folder: int = -1, target_folder: int = -1) -> None:
        self.removes(source, source_folder)
        self.replaces(target, target_folder)

    def _spoils(self, name: str, old: bool | None) -> None:
        if not old:
            self.note(name, "new")
            return
        if self._overwrite:
            self.note(name, "overwrite")
            return
        self.note(name, "refused")
        raise WouldOverwrite(
            errno.EPERM,
            "whyidle tune keeps the program from overwriting or removing this file, which existed before. Let "
            "the program write elsewhere, or allow it with --overwrite",
            name,
        )

    def _guarded(self, path: Any, folder: int = -1) -> str | None:
        """The full name of what is not free to be written to."""
        if isinstance(path, int):
            path = f"/proc/self/fd/{path}"
        elif folder is not None and folder >= 0:
            path = Path(f"/proc/self/fd/{folder}").resolve() / os.fsdecode(path)
        name: str = os.path.realpath(os.fsdecode(path))
        free = self._within_free if name.startswith(self._here) else self._free
        # Memory with a name (`memfd_create`) is no file: whyidle's own records lie in such.
        if name.startswith((*free, "/memfd:")) or any(part in name for part in _CACHE_NAMES):
            return None
        return name

    def _is_old(self, name: str) -> bool | None:
        """Whether a regular file with content was there before the tuner began; `None` where there is none."""
        try:
            found = Path(name).stat()
        except OSError:
            return None
        if not stat.S_ISREG(found.st_mode):
            raise ValueError("no regular file")
        return found.st_size > 0 and (found.st_mtime < self._began or name in self._appended)

    def note(self, name: str, kind: str) -> None:
        if (name, kind) in self._noted or len(self._noted) >= MOST_NOTES:
            return
        self._noted.add((name, kind))
        with contextlib.suppress(OSError):
            # Opened each time: a descriptor kept could have become the program's own.
            flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC
            fd = os.open(f"{self._folder}/{WRITES}", flags, 0o644)
            try:
                os.write(fd, json.dumps({"path": name, "kind": kind}).encode() + b"\n")
            finally:
                os.close(fd)

    def cover(self, module: Any, original: Any, place: int, name: str) -> None:
        """Look at the path that a function is given, which writes past Python: its argument of this place, or name."""

        def covered(*args: Any, **kwargs: Any) -> Any:
            path = args[place] if len(args) > place else kwargs.get(name)
            if isinstance(path, str | bytes | os.PathLike):
                self._look(self.replaces, path)
            return original(*args, **kwargs)

        setattr(module, original.__name__, covered)


_guard: Guard | None = None


def put_sockets_into(folder: Path | str) -> None:
    """Have multiprocessing, in this process and its children, make its sockets there: it removes a folder of its own
    only where a process ends well."""
    with contextlib.suppress(Exception):
        from multiprocessing import process

        process.current_process()._config["tempdir"] = str(folder)  # type: ignore[attr-defined]


def install(folder: str, options: dict[str, Any]) -> None:
    """Guard this process. `options`: those under `tune`, see `takeover`."""
    global _guard
    if _guard is None:
        _guard = Guard(os.path.realpath(folder), float(options.get("began", 0.0)), bool(options.get("overwrite")))
        sys.addaudithook(_guard)
        if temporary := options.get("temporary"):
            put_sockets_into(temporary)


def cover_libraries() -> None:
    """Once torch has been imported."""
    if _guard is None:
        return
    from ..imports import Imports

    guard = _guard
    with contextlib.suppress(Exception):
        # `torch.save` to a path, in C++.
        serialization = sys.modules["torch"].serialization
        guard.cover(serialization, serialization._open_zipfile_writer, 0, "name_or_buffer")
    with contextlib.suppress(Exception):
        # `safetensors.torch.save_file`, in Rust.
        Imports().when("safetensors.torch", lambda module: guard.cover(module, module.serialize_file, 1, "filename"))


def _free_folders(folder: str) -> tuple[str, ...]:
    temporary = next((given for name in ("TMPDIR", "TEMP", "TMP") if (given := os.environ.get(name))), "/tmp")
    caches = [given for name in _CACHE_VARIABLES if (given := os.environ.get(name))]
    with contextlib.suppress(RuntimeError):
        caches += [str(Path.home() / ".cache"), str(Path.home() / ".triton")]
    return *_TEMPORARY, *(f"{os.path.realpath(each)}/" for each in (folder, temporary, *caches))
