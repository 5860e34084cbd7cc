"""What a command made of a recording, as text that can be kept, and compared whatever numpy computed it."""

from __future__ import annotations

import base64
import csv
import difflib
import hashlib
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

import numpy as np
from pyarrow import parquet

from support.page_content import Element, parsed
from whyidle import __version__
from whyidle.commands.main import main
from whyidle.report.page.run_page import TYPES

PAGE = "page.html"
MOST_LISTED = 24
"""Of longer lists of numbers sums are kept, of other lists the begin, the end and a digest."""
MOST_IN_A_LINE = 110
MOST_SIGNS = 120
"""Of longer attributes of a page the begin and a digest are kept."""
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


# How it is laid out: JSON by lines, long lists by their sums, pages as outlines.


def dumped(content: Any) -> str:
    """JSON, with a line for each thing that fits one."""
    return "".join(_lines(content, 0, "")) + "\n"


def _lines(content: Any, depth: int, ending: str) -> Iterator[str]:
    """Lines as of `json.dumps` with an indent, but for what fits a line: that takes one."""
    line = json.dumps(content, ensure_ascii=False, allow_nan=False)
    if not content or not isinstance(content, dict | list) or len(line) <= MOST_IN_A_LINE:
        yield line + ending
        return
    begin, end = "{}" if isinstance(content, dict) else "[]"
    keys = [f"{json.dumps(key, ensure_ascii=False)}: " for key in content] if begin == "{" else [""] * len(content)
    values = list(content.values()) if isinstance(content, dict) else content
    yield begin
    for place, (key, value) in enumerate(zip(keys, values, strict=True), 1):
        yield f"\n{' ' * (depth + 1)}{key}"
        yield from _lines(value, depth + 1, "," if place < len(values) else "")
    yield f"\n{' ' * depth}{end}{ending}"


def shortened(content: Any) -> Any:
    """The same with sums in place of long lists of numbers."""
    if isinstance(content, dict):
        return {key: shortened(each) for key, each in content.items()}
    if isinstance(content, list):
        if len(content) > MOST_LISTED and all(isinstance(each, int | float) or each is None for each in content):
            return _summed(content)
        if len(content) > MOST_LISTED and not any(isinstance(each, int | float) for each in content):
            lines = [json.dumps(each, allow_nan=False) for each in content]
            digest = hashlib.sha256("\n".join(lines).encode()).hexdigest()[:16]
            return {"items": len(content), "sha256": digest, "first": content[:3], "last": content[-1]}
        return [shortened(each) for each in content]
    return content


def _summed(values: list[Any]) -> dict[str, Any]:
    measured = [(place, float(value)) for place, value in enumerate(values) if value is not None]
    return {
        "numbers": len(values),
        "measured": len(measured),
        "sum": math.fsum(value for _, value in measured),
        "sum_by_place": math.fsum(place * value for place, value in measured),
    }


def column(values: list[str]) -> Any:
    """Of a table: its one value, sums of its numbers, or a digest of its words."""
    present = [value for value in values if value]
    if len(set(present)) <= 1:
        return {"values": len(present), "all": present[0] if present else ""}
    try:
        return _summed([float(value) if value else None for value in values])
    except ValueError:
        digest = hashlib.sha256("\n".join(values).encode()).hexdigest()[:16]
        return {"values": len(present), "sha256": digest, "first": values[:3], "last": values[-1]}


def said_once(content: Any) -> Any:
    """Without the verdicts that are the first finding again."""
    if isinstance(content, list):
        return [said_once(each) for each in content]
    if not isinstance(content, dict):
        return content
    findings = content.get("findings")
    if isinstance(findings, list) and findings and content.get("verdict") == findings[0]:
        content = content | {"verdict": "the first finding"}
    return {key: said_once(each) for key, each in content.items()}


def unpacked(content: Any) -> Any:
    """With arrays that a page packs as lists."""
    if isinstance(content, list):
        return [unpacked(each) for each in content]
    if not isinstance(content, dict):
        return content
    if content.keys() == {"type", "base64"}:
        values = np.frombuffer(base64.b64decode(content["base64"]), dtype=TYPES[content["type"]])
        return {content["type"]: [None if value != value else value for value in values.tolist()]}
    return {key: unpacked(each) for key, each in content.items()}


_BLOCKS = frozenset(
    ("body", "main", "header", "section", "nav", "div", "table", "ul", "ol", "dl", "details", "svg", "g")
)


def outline(element: Element, depth: int) -> Iterator[str]:
    """Lines of an element: one for each block in it that holds further ones, all others in one line."""
    if element.tag in ("script", "style"):
        yield f"{' ' * depth}<{element.tag}{_attributes(element)}>"
        return
    if element.tag:
        yield f"{' ' * depth}<{element.tag}{_attributes(element)}>"
    for each in element.content:
        if isinstance(each, str):
            if words := " ".join(each.split()):
                yield f"{' ' * (depth + 1)}{words}"
        elif each.tag in _BLOCKS or any(isinstance(inner, Element) for inner in each.content):
            yield from outline(each, depth + 1)
        else:
            yield f"{' ' * (depth + 1)}<{each.tag}{_attributes(each)}> {each.words}".rstrip()


def _attributes(element: Element) -> str:
    kept = ((name, value) for name, value in element.attributes.items() if name != "content" or "sha256-" not in value)
    return "".join(f" {name}={_short(value)!r}" if value else f" {name}" for name, value in kept)


def _short(value: str) -> str:
    if len(value) <= MOST_SIGNS:
        return value
    return f"{value[:60]}… {len(value)} signs, sha256 {hashlib.sha256(value.encode()).hexdigest()[:16]}"


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
