"""How large each package is beside what `budgets.toml` allows: `python scripts/budgets.py [--lower]`.

A row of that file is a folder; what belongs to no row below it counts there. Its columns: `lines`, `statements`,
`nodes` (of the syntax tree) and `files` of Python; `strings`, characters of string constants without docstrings, and
`others`, lines of all other text files: code that moves there is no smaller. `--lower` writes what stands where that is
less. Nothing raises a number but an edit that the commit explains.
"""

from __future__ import annotations

import ast
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
FILE = ROOT / "budgets.toml"
COLUMNS = ("lines", "statements", "nodes", "files", "strings", "others")
WIDE, WIDE_SHARE = 100, 0.07
"""Characters beyond which a line is wide, and the largest share of such lines."""
MODULE_LINES = 900
NOT_PROSE = {".md", ".png", ".svg"}
"""Suffixes of what is documentation, which has a row of its own in `docs`, or a picture."""
Sizes = dict[str, int]


def tracked() -> list[Path]:
    """Files of the repository, relative to its root, with those that are new and not ignored; raises where git does."""
    listed = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    names = subprocess.run(listed, cwd=ROOT, check=True, capture_output=True, text=True).stdout.split("\0")
    return sorted({Path(name) for name in names if name and (ROOT / name).is_file()})


def size(path: Path) -> Sizes:
    """Sizes of one file by column."""
    sizes = dict.fromkeys(COLUMNS, 0)
    try:
        text = (ROOT / path).read_text()
    except UnicodeDecodeError:
        return sizes
    if path.suffix != ".py":
        if path.suffix not in NOT_PROSE or path.parts[0] == "docs":
            sizes["others"] = len(text.splitlines())
        return sizes
    nodes = list(ast.walk(ast.parse(text)))
    statements = [node for node in nodes if isinstance(node, ast.stmt)]
    bare = {id(node.value) for node in statements if isinstance(node, ast.Expr)}
    strings = [node.value for node in nodes if isinstance(node, ast.Constant) and id(node) not in bare]
    sizes |= {"lines": len(text.splitlines()), "statements": len(statements), "nodes": len(nodes), "files": 1}
    return sizes | {"strings": sum(len(value) for value in strings if isinstance(value, str | bytes))}


def row_of(path: Path, rows: dict[str, Sizes]) -> str:
    """The deepest row that a file is in, else its top-level folder (`.` for files of the root)."""
    folders = [str(parent) for parent in path.parents][:-1] or ["."]
    return next((folder for folder in folders if folder in rows), folders[-1])


def standing(rows: dict[str, Sizes]) -> dict[str, Sizes]:
    """What stands in each row, also in top-level folders that have none yet."""
    found = {row: dict.fromkeys(COLUMNS, 0) for row in rows}
    for path in tracked():
        sums = found.setdefault(row_of(path, rows), dict.fromkeys(COLUMNS, 0))
        for column, number in size(path).items():
            sums[column] += number
    return found


def budgets() -> dict[str, Sizes]:
    return {row: dict(zip(COLUMNS, sizes, strict=True)) for row, sizes in tomllib.loads(FILE.read_text()).items()}


def complaints(allowed: dict[str, Sizes], found: dict[str, Sizes]) -> Iterator[str]:
    """A sentence for each number that is over its budget, or so far below that the budget is to be lowered."""
    for row, sizes in found.items():
        if row not in allowed:
            yield f"{row}/ has no row in {FILE.name}"
            continue
        for column, number in sizes.items():
            limit = allowed[row][column]
            if number > limit:
                yield f"{row}: {number} {column}, {number - limit} more than {limit}"
            elif limit - number > max(100, limit // 20):
                yield f"{row}: {number} {column}, {limit - number} below {limit}: `{Path(__file__).name} --lower`"


def shapes() -> Iterator[str]:
    """A sentence for each module that is too long, and one where too many of all lines are wide."""
    every = wide = 0
    for path in (path for path in tracked() if path.suffix == ".py"):
        lines = (ROOT / path).read_text().splitlines()
        if len(lines) > MODULE_LINES:
            yield f"{path} has {len(lines)} lines, more than {MODULE_LINES}"
        every += len(lines)
        wide += sum(len(line) > WIDE for line in lines)
    if wide > WIDE_SHARE * every:
        yield f"{wide} of {every} lines are over {WIDE} wide, more than {WIDE_SHARE:.0%}"


def table(allowed: dict[str, Sizes], found: dict[str, Sizes]) -> Iterator[str]:
    """Markdown, a line each: what stands, and what is allowed behind a stroke where that is another number."""
    yield f"| | {' | '.join(COLUMNS)} |"
    yield f"|---{'|---' * len(COLUMNS)}|"
    tops: dict[str, Sizes] = {}
    for row, sizes in sorted(found.items()):
        limits = allowed.get(row, {})
        cells = [f"{n}" if n == limits.get(column) else f"{n} / {limits.get(column)}" for column, n in sizes.items()]
        yield f"| {row} | {' | '.join(cells)} |"
        sums = tops.setdefault(row.split("/")[0], dict.fromkeys(COLUMNS, 0))
        for column, number in sizes.items():
            sums[column] += number
    for top, sizes in tops.items():
        if sizes != found.get(top):
            yield f"| **{top}, in all** | {' | '.join(map(str, sizes.values()))} |"


def lowered(allowed: dict[str, Sizes], found: dict[str, Sizes]) -> str:
    """The file of budgets with what stands where that is less; rows of which nothing is left are gone."""
    text = FILE.read_text()
    kept = [line for line in text.splitlines() if line.startswith("#")]
    for row, sizes in allowed.items():
        numbers = [min(limit, found[row][column]) for column, limit in sizes.items()]
        if any(found[row].values()):
            kept.append(f'"{row}" = [{", ".join(map(str, numbers))}]')
    return "\n".join(kept) + "\n"


def main() -> None:
    allowed = budgets()
    found = standing(allowed)
    if "--lower" in sys.argv[1:]:
        FILE.write_text(lowered(allowed, found))
        allowed = budgets()
    print("\n".join(table(allowed, found)))
    wrong = [*complaints(allowed, found), *shapes()]
    print("\n".join(wrong), file=sys.stderr)
    sys.exit(bool(wrong))


if __name__ == "__main__":
    main()
