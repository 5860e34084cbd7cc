"""The place of a stack in the user's own code, and what it called there."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache

from ...record.stacks import Call, CallStack
from ..statistics import Speedup

_LIBRARY = re.compile(
    r"/(?:site|dist)-packages/|/lib(?:64)?/python3(?:\.\d+t?)?/|\A<(?!stdin>|string>|ipython)|\A\Z"
    r"|/[a-z0-9]{2}/c[a-z2-7]{50,}\.py\Z"
)
"""The last: what torch's compiler writes into its cache."""
_MACHINERY = re.compile(
    r"/torch/utils/data/(?:_utils/(?:worker|fetch)|dataloader|sampler)\.py\Z|/multiprocessing/|/torchdata/"
    r"|/threading\.py\Z|/concurrent/futures/|/torch/_?utils/|/runpy\.py\Z"
)
"""Of libraries: what hands work to others. It is named only where nothing else is there to be named."""
_COMMAND = re.compile(r"/(?:bin|Scripts)/[^/.]+\Z")
_PACKAGE = re.compile(r"/(?:site|dist)-packages/([^/]+)/")
WORKER = re.compile(r"/torch/utils/data/_utils/worker\.py\Z")
FETCHER = re.compile(r"/torch/utils/data/_utils/fetch\.py\Z")
"""Torch's own files: the loop of a worker, and what asks a data set for the samples of a batch."""
_MODULE = re.compile(r"/torch/nn/modules/module\.py\Z")
"""What stands below its calls is a model's."""


@dataclass(frozen=True)
class Where:
    """A line of code, and how much of some time was spent in it."""

    file: str
    line: int
    function: str
    code: str
    """The line of source as it was then; empty where it was not kept."""
    share: float | None
    """Of the time in question, 0..1; `None` where it was not measured: where a loader was made, say."""
    samples: int
    """Looks that saw it."""
    calls: str = ""
    """The innermost function of a library that it was in, most often; empty where there was none, as in C code."""
    time: str = ""
    """What the share is of, in words: `the time in which workers prepare batches`."""
    thread: str = ""
    """Of another thread than the one that trains: its name."""
    without: Speedup | None = None
    """If the line took no time; `None` where the run does not tell."""


def is_users(call: Call) -> bool:
    """Whether a call is of the user's own code: of no installed package, nor of Python's library, nor of the file that
    an installer wrote for a package's command (`bin/yolo`)."""
    if call.function == "<module>" and is_file(_COMMAND, call.file):
        # The file's one line is `sys.exit(main())`; a program of the user's in `bin` says more.
        return bool(call.text) and not call.text.startswith("sys.exit(") and not is_file(_LIBRARY, call.file)
    return not is_file(_LIBRARY, call.file)


@lru_cache(maxsize=8192)
def is_file(kind: re.Pattern[str], file: str) -> bool:
    """Whether a path is of this kind: there are few files, and very many calls in them."""
    return kind.search(file) is not None


def within(stack: CallStack, kind: re.Pattern[str]) -> CallStack | None:
    """What a stack calls below the innermost call of such a file; `None` where there is none."""
    begins = [depth for depth, call in enumerate(stack) if is_file(kind, call.file)]
    return stack[begins[-1] + 1 :] if begins else None


def outside_models(stack: CallStack) -> CallStack:
    """A stack without what stands in the outermost call of a model."""
    begin = next((depth for depth, call in enumerate(stack) if is_file(_MODULE, call.file)), len(stack))
    return stack[:begin]


def own_part(stack: CallStack) -> CallStack:
    """Of a worker's stack what that worker does: a fork begins with the calls that the training stood in."""
    own = within(stack, WORKER)
    return stack if own is None else own


def place_of(stack: CallStack) -> tuple[Call, str] | None:
    """The call that a stack is told by, and the innermost library function that it was in.

    The call is the innermost of the user's own code. Where nothing of that leads to it, the program is a package's own
    (`yolo train`, `python -m PACKAGE`): then the innermost call of that package. Without either the outermost of a
    library that is no mere machinery. Where samples are made, in a worker or in the training's own fetch, only calls
    within that count: the loop that asks for a batch, or calls what has it (`trainer.fit(model)`), makes none.
    """
    # The package of the outermost call of any; none where the user's own code is on the way, which for a forked worker
    # the training's calls tell.
    package = "" if any(map(is_users, stack)) else next(filter(None, (_package(call.file) for call in stack)), "")
    stack = own_part(stack)
    stack = within(stack, FETCHER) or stack
    depth = max((at for at, call in enumerate(stack) if is_users(call)), default=None)
    if depth is None and package:
        depth = max((at for at, call in enumerate(stack) if _package(call.file) == package), default=None)
    if depth is None:
        depth = next((at for at, call in enumerate(stack) if not is_file(_MACHINERY, call.file)), None)
    if depth is None:
        depth = len(stack) - 1
    if depth < 0:
        return None
    inner = stack[-1].function if len(stack) > depth + 1 else ""
    return stack[depth], inner


@lru_cache(maxsize=8192)
def _package(file: str) -> str:
    """The installed package that a path belongs to, of files that are no mere machinery; else empty."""
    found = None if is_file(_MACHINERY, file) else _PACKAGE.search(file)
    return found[1] if found else ""


def places(stacks: Iterable[tuple[CallStack, int]], time: str, most: int = 3) -> tuple[Where, ...]:
    """The lines in which most of these looks stand, the most frequent first.

    Args:
        stacks: each with how often it was seen; an empty one is a look that failed, which counts for none of the lines.
                Looks that are to be taken off have a negative number: they lessen a line's share, not how often it
                was seen.
        time: what the looks are of, in words.
        most: how many lines are told.
    """
    lines: Counter[tuple[str, int]] = Counter()
    calls: dict[tuple[str, int], Counter[str]] = {}
    told: dict[tuple[str, int], Call] = {}
    looks = 0
    for stack, count in stacks:
        found = place_of(stack)
        if found is None:
            continue
        call, inner = found
        key = call.file, call.line
        lines[key] += count
        looks += max(0, count)
        told.setdefault(key, call)
        calls.setdefault(key, Counter())[inner] += max(0, count)
    return tuple(
        Where(
            key[0],
            key[1],
            told[key].function,
            told[key].text,
            count / looks,
            calls[key].total(),
            calls[key].most_common(1)[0][0],
            time,
        )
        for key, count in lines.most_common(most)
        if count > 0
    )
