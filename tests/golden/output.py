"""What a command made of a recording, as text that can be kept, and compared whatever numpy computed it."""

from __future__ import annotations

import csv
import difflib
import io
import json
import math
import os
import re
import signal
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, redirect_stderr, redirect_stdout, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pyarrow import parquet

from golden.layout import column, dumped, outline, said_once, shortened, unpacked
from support.page_content import parsed
from whyidle import __version__
from whyidle.commands.main import main

PAGE = "page.html"
RENEW = "pytest tests/golden --renew-golden"
CLOSE = 1e-9
"""Relative: by so much numbers may differ from one numpy to another."""
CLOSE_SINGLE = 1e-6
"""The same of single-precision arrays."""
ENVIRONMENT = {"COLUMNS": "100", "LINES": "48", "TZ": "UTC", "TERM": "xterm", "LC_ALL": "C.UTF-8", "LANG": "C.UTF-8"}
UNSET = ("NO_COLOR", "FORCE_COLOR", "COLORTERM", "GITHUB_ACTIONS", "GITHUB_STEP_SUMMARY", "PYTHONUTF8", "CI")
LOCAL = ("HOME", "XDG_STATE_HOME", "XDG_CONFIG_HOME", "XDG_CACHE_HOME", "XDG_DATA_HOME")
"""Folders of a user's: a fresh one stands in their place."""


@dataclass(frozen=True)
class Output:
    """A command, and what is kept of it."""

    name: str
    """Of its file, whose ending says how it is compared: `.txt` to the letter, all others number by number."""
    argv: tuple[str, ...]
    form: Callable[[Ran], str]
    """What is kept."""
    environment: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Ran:
    """A command that has ended."""

    code: int
    out: str
    err: str
    folder: Path
    """Where it ran: what it wrote lies there."""


def ran(argv: tuple[str, ...], folder: Path, environment: Mapping[str, str]) -> Ran:
    """Run a command in this process, in a folder of its own, as if nobody had set anything."""
    with _surroundings(folder, environment):
        out, err = (io.TextIOWrapper(io.BytesIO(), "utf-8", newline="\n", write_through=True) for _ in range(2))
        with redirect_stdout(out), redirect_stderr(err):
            try:
                code = main(argv)
            except SystemExit as ended:
                code = ended.code if isinstance(ended.code, int) else 1
        said = (stream.buffer.getvalue().decode() for stream in (out, err))
        printed, told = (_anywhere(text, folder) for text in said)
    return Ran(code, printed, told, folder)


def _anywhere(text: str, folder: Path) -> str:
    """Without this version and this folder."""
    return text.replace(f"whyidle {__version__}", "whyidle VERSION").replace(str(folder.resolve()), "FOLDER")


@contextmanager
def _surroundings(folder: Path, environment: Mapping[str, str]) -> Iterator[None]:
    kept, where = dict(os.environ), Path.cwd()
    handlers = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT)}
    own = Path(folder, ".home")
    own.mkdir(exist_ok=True)
    argv, sys.argv = sys.argv, ["whyidle"]
    try:
        for name in UNSET:
            os.environ.pop(name, None)
        os.environ.update(ENVIRONMENT | dict.fromkeys(LOCAL, str(own)) | dict(environment))
        time.tzset()
        os.chdir(folder)
        yield
    finally:
        os.chdir(where)
        os.environ.clear()
        os.environ.update(kept)
        time.tzset()
        sys.argv = argv
        for number, handler in handlers.items():
            with suppress(ValueError):
                signal.signal(number, handler)


# What is kept.


def as_text(of: Ran) -> str:
    """What was printed, to the letter; what was said beside it, and an exit code that is not 0, in front."""
    return _beside(of) + of.out


def without_usage(text: str) -> str:
    """Without what argparse says before its error, which is worded otherwise from one Python to the next."""
    return re.sub(r"^stderr: usage: .*\n(stderr:  .*\n)*", "", text, flags=re.MULTILINE)


def as_json(of: Ran) -> str:
    return _with_json(of, said_once(_parsed(of.out)))


def as_short_json(of: Ran) -> str:
    """With long lists of numbers summed up."""
    return _with_json(of, shortened(_parsed(of.out)))


def as_columns(of: Ran) -> str:
    """A table by its columns: how many values there are, which stand first and last, and sums over all."""
    if of.code:
        return _with_json(of, None)
    head, *rows = csv.reader(io.StringIO(of.out))
    columns = {name: column([row[place] for row in rows]) for place, name in enumerate(head)}
    return _with_json(of, {"rows": len(rows), "columns": columns})


def as_trace(of: Ran) -> str:
    """What kinds of event a trace holds, how many of each, and sums of their times; all that is no event as it is."""
    if of.code:
        return _with_json(of, None)
    trace = _parsed(of.out)
    events = trace.pop("traceEvents")
    kinds: dict[str, dict[str, Any]] = {}
    for event in events:
        name = " ".join(str(event.get(key, "-")) for key in ("ph", "pid", "tid", "cat", "name"))
        sums = kinds.setdefault(re.sub(r"\b\d+$", "N", name), {"events": 0, "begin": 0.0, "lasts": 0.0, "last": None})
        sums["events"] += 1
        sums["begin"] += event.get("ts", 0.0)
        sums["lasts"] += event.get("dur", 0.0)
        sums["last"] = event.get("args")
    return _with_json(of, trace | {"kinds": kinds})


def page_words(of: Ran) -> str:
    """The elements of a page with their attributes and words, a line each; none of its scripts, styles and data."""
    lines = [] if of.code else outline(parsed((of.folder / PAGE).read_text()), 0)
    return as_text(of) + "".join(f"{line}\n" for line in lines)


def page_data(of: Ran) -> str:
    """What the scripts of a page read, its arrays unpacked."""
    if of.code:
        return _with_json(of, None)
    page = (of.folder / PAGE).read_text()
    found = re.findall(r'<script type="application/json" id="data">(.*?)</script>', page, re.DOTALL)
    return dumped(shortened([unpacked(json.loads(each)) for each in found]))


def written(file: str) -> Callable[[Ran], str]:
    """A file that the command wrote."""
    return lambda of: _beside(of) + (of.folder / file).read_text()


def all_tables(of: Ran) -> str:
    """The tables in a folder that the command wrote, by their columns."""
    files = sorted((of.folder / "tables").glob("*.csv"))
    return _with_json(
        of, {file.name: json.loads(as_columns(Ran(0, file.read_text(), "", of.folder))) for file in files}
    )


def all_parquet(of: Ran) -> str:
    """The columns of tables in Parquet with their types."""
    tables = {}
    for file in sorted((of.folder / "parquet").glob("*.parquet")):
        schema = parquet.read_schema(file)
        tables[file.name] = {
            "about": {key.decode(): value.decode() for key, value in (schema.metadata or {}).items()},
            "columns": [f"{each.name} {each.type}" for each in schema],
        }
    return _with_json(of, tables)


def _beside(of: Ran) -> str:
    code = [f"exit code {of.code}\n"] if of.code else []
    return "".join([*code, *(f"stderr: {line}\n" for line in of.err.splitlines())])


def _with_json(of: Ran, content: Any) -> str:
    if of.code or of.err:
        content = {"exit_code": of.code, "stderr": of.err.splitlines(), "stdout": content}
    return dumped(content)


def _parsed(text: str) -> Any:
    return json.loads(text) if text else None


# How it is compared.


def difference(name: str, expected: str, found: str) -> str | None:
    """What differs, as a unified diff; `None` where all is the same, numbers within what another numpy changes."""
    if expected == found:
        return None
    read = {".json": json.loads, ".csv": _cells, ".help": _helps}.get(Path(name).suffix, str)
    if _same(read(expected), read(found), CLOSE):
        return None
    kept, now = expected.splitlines(), found.splitlines()
    return "\n".join(difflib.unified_diff(kept, now, f"{name}, kept", f"{name}, now", lineterm=""))


def _helps(text: str) -> str:
    """Without line breaks, and options as Python 3.13 and later write them."""
    return "".join(re.sub(r"(-\w) (\S+), (--[\w-]+) \2", r"\1, \3 \2", text).split())


def _cells(text: str) -> list[list[Any]]:
    return [[_number(cell) for cell in re.split(r"([, ])", line)] for line in text.splitlines()]


def _number(text: str) -> Any:
    try:
        return float(text)
    except ValueError:
        return text


def _same(one: Any, other: Any, close: float) -> bool:
    if isinstance(one, dict) and isinstance(other, dict):
        # Their order counts: people read them.
        return list(one) == list(other) and all(
            _same(one[key], other[key], CLOSE_SINGLE if key == "f32" else close) for key in one
        )
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(_same(a, b, close) for a, b in zip(one, other, strict=True))
    if isinstance(one, float) and isinstance(other, float):
        return math.isclose(one, other, rel_tol=close, abs_tol=1e-12) or (one != one and other != other)
    return type(one) is type(other) and one == other
