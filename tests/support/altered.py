"""Recordings as a stranger, or a broken disk, may hand them over: bits, numbers, texts and files of them changed."""

from __future__ import annotations

import json
import os
import shutil
import socket
import struct
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from random import Random
from typing import Any

from whyidle.record.schema import HEADER_BYTES, KINDS

NUMBERS = (0, 1, -1, 2, 255, 1000, 2**31, 2**32 - 1, 10**9, 10**12, 2**53, 2**60, 2**62, 2**63 - 1, -(2**63), -(2**62))
FLOATS = (float("nan"), float("inf"), -float("inf"), 1e308, -1.0, 0.0, 5e-324)
TEXTS = (
    *("", "x", "\n::error::told", "::error file=a.py::told", "##[error]told", "##vso[task.complete result=Failed;]"),
    *("\x1b[31mred", "\x1b]0;title\x07", "\u2028::error::told", "\x85##[group]told", "\r::error::told", "\u202etold"),
    *("../../outside", "/etc/passwd", "\udce9", "=1+1", "<script>told</script>", "[red]", "a\tb", "7" * 5000),
)
SPARSE_BYTES = 1 << 43


def alter(folder: Path, outside: Path, random: Random) -> list[str]:
    """Change one to three things in a recording; what was done, to be read. `outside`: a folder beside it, to which
    links lead."""
    return [_alter(folder, outside, random) for _ in range(random.choice((1, 1, 1, 2, 3)))]


def _alter(folder: Path, outside: Path, random: Random) -> str:
    files = sorted(path for path in folder.rglob("*") if path.is_file() and not path.is_symlink())
    files = [path for path in files if path.stat().st_size < SPARSE_BYTES]
    if not files:
        return "nothing is left"
    by_kind: dict[str, list[Path]] = {}
    for path in files:
        by_kind.setdefault(path.name.partition("-")[0] + path.suffix, []).append(path)
    path = random.choice(by_kind[random.choice(sorted(by_kind))])
    ways: list[Callable[[Path, Path, Random], str]] = [_bits, _cut, _doubled, _replaced]
    if path.suffix == ".rec":
        ways += [_word, _word, _field, _field, _header]
    elif path.suffix == ".json":
        ways += [_node] * 8
    else:
        ways += [_line] * 3
    way = random.choice(ways)
    return f"{path.relative_to(folder)}: {way.__name__} {way(path, outside, random)}"


def _bits(path: Path, _: Path, random: Random) -> str:
    raw = bytearray(path.read_bytes())
    places = [random.randrange(len(raw)) for _ in range(random.randint(1, 20))] if raw else []
    for place in places:
        raw[place] ^= 1 << random.randrange(8)
    path.write_bytes(raw)
    return str(places)


def _cut(path: Path, _: Path, random: Random) -> str:
    size = random.randint(0, path.stat().st_size)
    os.truncate(path, size)
    return str(size)


def _doubled(path: Path, _: Path, random: Random) -> str:
    raw = path.read_bytes()
    path.write_bytes(raw + raw)
    if random.random() < 0.5:
        name = path.name.replace("-0-", "-1-") if "-0-" in path.name else f"{path.stem}-2{path.suffix}"
        path.with_name(name).write_bytes(raw)
        return f"as {name}"
    return ""


def _replaced(path: Path, outside: Path, random: Random) -> str:
    """By what is no file, or by another one."""
    kind = random.choice(
        ("gone", "empty", "secret", "zeros", "dangling", "itself", "pipe", "folder", "socket", "sparse")
    )
    raw = path.read_bytes()
    path.unlink()
    links = {
        "secret": str(outside / "secret.txt"),
        "zeros": "/dev/zero",
        "dangling": str(outside / "no"),
        "itself": path,
    }
    if kind == "empty":
        path.touch()
    elif kind in links:
        path.symlink_to(links[kind])
    elif kind == "pipe":
        os.mkfifo(path)
    elif kind == "folder":
        path.mkdir()
    elif kind == "socket":
        with socket.socket(socket.AF_UNIX) as at, suppress(OSError):
            at.bind(str(path))
    elif kind == "sparse":
        path.write_bytes(raw)
        os.truncate(path, SPARSE_BYTES)
    return kind


def _word(path: Path, _: Path, random: Random) -> str:
    size = path.stat().st_size
    if size < HEADER_BYTES + 8:
        return "nothing"
    place = HEADER_BYTES + 8 * random.randrange((size - HEADER_BYTES) // 8)
    value = _packed(random)
    with path.open("r+b") as file:
        file.seek(place)
        file.write(value)
    return f"{place}: {value!r}"


def _packed(random: Random) -> bytes:
    return (
        struct.pack("<q", random.choice(NUMBERS)) if random.random() < 0.7 else struct.pack("<d", random.choice(FLOATS))
    )


def _field(path: Path, _: Path, random: Random) -> str:
    """One field of all records, or from one on."""
    kind = KINDS.get(path.name.partition("-")[0])
    raw = bytearray(path.read_bytes())
    if kind is None or len(raw) <= HEADER_BYTES:
        return "nothing"
    field = random.choice(kind.fields[1:])
    value = _packed(random)
    first = random.choice((0, random.randrange(1 + len(raw) // kind.record_bytes)))
    for begin in range(HEADER_BYTES + first * kind.record_bytes, len(raw) - kind.record_bytes + 1, kind.record_bytes):
        raw[begin + kind.offset(field.name) : begin + kind.offset(field.name) + 8] = value
    path.write_bytes(raw)
    return f"{field.name} from {first}: {value!r}"


def _header(path: Path, _: Path, random: Random) -> str:
    place, size = random.choice(((8, 4), (12, 4), (16, 4), (20, 4), (24, 4), (32, 8), (40, 8), (48, 8)))
    value = random.choice(NUMBERS) % 2 ** (8 * size)
    raw = bytearray(path.read_bytes())
    raw[place : place + size] = value.to_bytes(size, "little")
    path.write_bytes(raw)
    return f"{place}: {value}"


def _line(path: Path, _: Path, random: Random) -> str:
    lines = path.read_text(errors="replace").split("\n")
    text = random.choice(TEXTS)
    lines.insert(random.randrange(len(lines)), text)
    path.write_text("\n".join(lines), errors="surrogateescape")
    return ascii(text[:40])


def _node(path: Path, _: Path, random: Random) -> str:
    """Another value at some place of a JSON."""
    try:
        content = json.loads(path.read_bytes())
    except ValueError:
        return "nothing"
    places: list[tuple[Any, Any]] = []

    def walk(node: Any) -> None:
        for key in list(node) if isinstance(node, dict) else range(len(node)) if isinstance(node, list) else ():
            places.append((node, key))
            walk(node[key])

    walk(content)
    if not places:
        return "nothing"
    within, key = random.choice(places)
    old = within[key]
    deep: Any = []
    for _each in range(500):
        deep = [deep]
    value = random.choice(
        (
            *(None, True, [], {}, [None], {"x": 1}, deep, random.choice(NUMBERS), random.choice(NUMBERS), 10**400),
            *(random.choice(FLOATS), random.choice(TEXTS), random.choice(TEXTS), str(old), [old], {"x": old}),
        )
    )
    if isinstance(within, dict) and random.random() < 0.15:
        del within[key]
    else:
        within[key] = value
    path.write_text(json.dumps(content))
    return f"{key!a:.60} {value!a:.60}"


def linked_away(folder: Path, outside: Path) -> None:
    """A folder within a recording becomes a link to where it is now."""
    shutil.move(folder, outside / folder.name)
    folder.symlink_to(outside / folder.name)
