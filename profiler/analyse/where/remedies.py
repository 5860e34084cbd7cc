"""Advice about a line of code, from the calls that were seen in it.

A row says what a kind of call is (by the functions of libraries on the stack, or by the line of source) and what mends
it there. What a line is given matters more than what it calls: whatever is the same for every sample is to be done once
(`source.py`).
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from typing import NamedTuple

from ...record.schema import ThreadState
from ...record.stacks import CallStack
from ..shares import MOSTLY
from .looks import Looks
from .places import FETCHER, Where, is_users, own_part, place_of, within
from .source import EACH, how_given, loop_around, made_anew, part_used
from .stages import Rows


class Remedy(NamedTuple):
    """A kind of change, and what it is here."""

    kind: str
    """One of `causes.finding.REMEDIES`."""
    change: str


def _row(kind: str, change: str, calls: str = "", text: str = "") -> tuple[Remedy, str, str]:
    """Make a row: a remedy, a pattern of `file:function` of a library's call, one of the source of the user's own
    innermost call."""
    return Remedy(kind, change), calls, text


_OPEN = "Open it once per worker, at its first sample, and keep it open"
_INDEX = "Read the index once, when the dataset is created"
_KEEP = "Compute it once and keep the result on the object"
_ONE_BY_ONE = "one by one in Python"
_NUMPY = "Take the columns out as NumPy arrays once (`.to_numpy()`) and index those"

_IN_MAKING = (
    _row("once", _OPEN, r"/zipfile(/__init__)?\.py:.*(_RealGetContents|__init__)\Z"),
    _row("once", _INDEX, r"/tarfile\.py:.*(open|next|getmember|_load|fromtarfile|frombuf|__init__)"),
    _row("once", _OPEN, r"/h5py/_hl/files\.py:|/zarr/.*:open|/netCDF4/|/rasterio/__init__\.py:open|/tables/file\.py:"),
    _row("once", _OPEN, text=r"\b(sqlite3|lmdb|psycopg2?|pymysql|redis|duckdb)\.(connect|open|Redis)\("),
    _row("once", "Keep one connection per worker", r"/(socket|ssl)\.py:.*(create_connection|connect|do_handshake)\Z"),
    _row("once", "Read it once and keep it", r"/pandas/io/.*:(_?read\w*|get_handle)|/pyarrow/parquet/core\.py:"),
    _row("once", "Parse it once, before the training", r"/(json/(decoder|__init__)|yaml/\w+|xml/\w+/\w+|csv)\.py:"),
    _row("once", "Compile the pattern once", r"/re/(_compiler|_parser|__init__)\.py:.*(_?compile|_?parse)"),
    _row("once", "Tokenise once, before the training", r"/(tokenizers|transformers/tokenization\w*|sentencepiece)/"),
    _row("once", _KEEP, r":_?(get_|create_|make_)?\w*(kernel|filters?|fbanks?|window|mel|dct)\Z"),
    _row("cheaper", _NUMPY, r"/pandas/"),
    _row(
        "fewer_objects",
        "Return a few arrays or tensors, not many objects",
        r"/multiprocessing/reduction\.py:|/pickle\.py:",
    ),
    _row("order", "Read along the chunks: whole rows, neighbours together", r"/h5py/_hl/(dataset|selections)\.py:"),
    _row(
        "cheaper",
        "Store it uncompressed, or in pieces readable alone (`.npy` with `mmap_mode='r'`, chunked HDF5 or zarr)",
        r"/(gzip|lzma|bz2|_compression)\.py:",
        r"\b(gzip|lzma|bz2|zlib|nib(abel)?)\.\w+\(|\.get_fdata\(|\bdecompress\(",
    ),
    _row("once", "Keep the array open in each worker (`np.load` with `mmap_mode='r'`)", text=r"\bnp\.load\("),
    _row(
        "cheaper",
        "Stack the arrays first: `torch.from_numpy(np.stack(arrays))`, not `torch.tensor` of a list",
        text=r"\b(torch\.(tensor|as_tensor|[A-Z]\w*Tensor)|np\.(array|asarray))\(",
    ),
    _row("once", "Load it once and keep the result", text=r"\b(pickle|torch|json|yaml)\.(load|loads|safe_load)\("),
    _row("once", "Import it at the top of the file", r"<frozen importlib\._bootstrap"),
    _row(
        "cheaper",
        "Decode less: store smaller files, or decode at a scale that suffices (`Image.draft`)",
        r"/PIL/(ImageFile|JpegImagePlugin)\.py:",
    ),
)
MAKING = Rows(*_IN_MAKING)
"""What mends the making of samples and batches."""

_HEADER = "Read sizes and lengths from the header, without decoding (`Image.open(path).size`)"
_KEPT = "Write the result to a file and read that, since it is the same at every start"

STARTING = Rows(
    _row(
        "cheaper",
        _HEADER,
        r"/(PIL|soundfile|torchaudio|torchvision/io|librosa|av|nibabel|imageio)/|/(soundfile|wave)\.py:",
        r"\bcv2\.imread\(|\bdecompress\(",
    ),
    *((Remedy("once", _KEPT) if told.kind == "once" else told, calls, text) for told, calls, text in _IN_MAKING),
)
"""Before the first step."""

LOOP = Rows(
    _row(
        "less_often",
        "Save less often, or hand a copy to a thread or process that writes it",
        r"/torch/serialization\.py:|/safetensors/|/pickle\.py:|/shutil\.py:",
        r"\btorch\.save\(|\bpickle\.dump\(|save_checkpoint\(|\.save_pretrained\(",
    ),
    _row("less_often", "Copy less often: update in place", r"/copy\.py:.*deepcopy", r"\bdeepcopy\("),
    _row("less_often", "Draw plots less often", r"/matplotlib/"),
    _row("less_often", "Keep it on the device and read it every 50th step", text=r"\.(item|cpu|tolist|numpy)\(\)"),
    _row(
        "less_often",
        "Write less often, and append",
        r"/(json|csv|logging|tensorboard\w*|wandb|mlflow|pandas)/",
        r"\bjson\.dump|\.write\w*\(|\bprint\(|\blog(ger|ging)?\.|\.to_csv\(|\bopen\(",
    ),
    _row("less_often", "Compute it at the epoch's end, or on a part of the data", r"/(sklearn|scipy|torchmetrics)/"),
)
"""In the training loop's own work."""


_SAME = Remedy("once", f"{_KEEP}, since it gets the same input for every sample")
_AT_ONCE = Remedy("cheaper", f"Compute whole arrays at once (NumPy, torch) or compile it (numba), not {_ONE_BY_ONE}")
_OR_ONCE = ", or the whole once for all its samples"
_WAITING = {
    ThreadState.SOCKET: Remedy("concurrent", "Request several at a time: concurrent requests, or larger ones"),
    ThreadState.SHARED_LOCK: Remedy("own_handle", "Give each worker its own lock, connection or handle"),
    ThreadState.FILE_LOCK: Remedy("own_handle", "Give each worker its own file"),
}
"""What mends a line of making that mostly waits, by what for."""
_WATCHED = re.compile(
    r"metric|accura|score|\bwer\b|_wer|bleu|rouge|\blog|_log|report|monitor|evaluat|validat|confusion|plot|curve|draw"
    r"|progress|histor|stat(istic)?s",
    re.IGNORECASE,
)
"""Names in code by which its author says that it only tells how the training goes."""


Stands = Callable[[CallStack], bool]
"""Whether a look is of some kind, by its stack."""


def stands_at(where: Where) -> Stands:
    """Whether a look saw that line."""

    def stands(stack: CallStack) -> bool:
        found = place_of(stack)
        return found is not None and (found[0].file, found[0].line) == (where.file, where.line)

    return stands


def remedy_of(
    looks: Looks, where: Where, rows: Rows[Remedy], making: bool, elsewhere: Looks
) -> tuple[Remedy, Stands] | None:
    """Return what mends a line, as far as what was seen of it tells; and which looks saw what is mended with it.

    Args:
        looks: all looks of the time in question.
        making: whether the line is part of making a sample or batch, so that what is the same each time shows.
        elsewhere: looks at the same threads in other times: a loop that these stand in does more than that.
    """
    mine = looks.where(stands_at(where))
    running = mine.in_state(ThreadState.RUNS)

    def by_row(stack: CallStack) -> Remedy | None:
        return _fitting(stack, rows)

    called = _most_of(mine, by_row)
    # What a call is says better how to do it once.
    again = (_given_the_same, _made_anew, _part_used) if making and (called is None or called.kind != "once") else ()
    for tells, told in (*((tells, _most_of(mine, tells)) for tells in again), (by_row, called)):
        if told is not None:
            # Other lines may tell the same: the change mends them too.
            alike = partial(_tells, tells, told)
            return _with_its_loop(told, alike, mine, looks, elsewhere) if told.change == _NUMPY else (told, alike)
    states = mine.states() if making else Counter()
    told = next((told for state, told in _WAITING.items() if states[state] >= MOSTLY * len(mine)), None)
    if told is None and len(running) >= MOSTLY * len(mine):
        told = _most_of(running, _watched_or_one_by_one if rows is LOOP else _one_by_one)
    if told is None:
        return None
    return told, (_of_loop(mine, elsewhere) if _ONE_BY_ONE in told.change or rows is LOOP else None) or stands_at(where)


def _tells(tells: Callable[[CallStack], Remedy | None], told: Remedy, stack: CallStack) -> bool:
    return bool(stack) and tells(stack) == told


def _most_of(mine: Looks, tells: Callable[[CallStack], Remedy | None]) -> Remedy | None:
    """Return what most looks at a line tell."""
    votes: Counter[Remedy] = Counter()
    for stack, count in mine.stacks():
        if (told := tells(stack)) is not None:
            votes[told] += count
    best, count = max(votes.items(), key=lambda vote: vote[1], default=(None, 0))
    return best if count >= MOSTLY * len(mine) else None


def _fitting(stack: CallStack, rows: Rows[Remedy]) -> Remedy | None:
    """Return what mends a call of a library's, else what mends the line of source from which it was called."""
    found, own = place_of(stack), own_part(stack)
    depth = max((at for at, call in enumerate(own) if is_users(call)), default=-1)
    return rows.any(own[depth + 1 :]) or rows.results[rows.by_text("" if found is None else found[0].text)]


def _making(stack: CallStack) -> CallStack:
    """Return the calls within torch's fetcher, which begin with what is given the index or the samples; none without
    it."""
    return within(own_part(stack), FETCHER) or ()


def _given_the_same(stack: CallStack) -> Remedy | None:
    return None if how_given(_making(stack)) else _SAME


def _made_anew(stack: CallStack) -> Remedy | None:
    name = made_anew(_making(stack))
    change = f"Create one `{name}` per setting and keep it, not a new one for each sample"
    return Remedy("once", change) if name else None


def _part_used(stack: CallStack) -> Remedy | None:
    """Tell of a whole that a sample uses a part of; what several samples take one item of each is kept for them."""
    own = _making(stack)
    part, used = how_given(own), part_used(own)
    shared = part not in ("", EACH)
    if shared and (used is None or used[1]):
        return Remedy("once", f"Compute it once per `{part}`, which several samples share, and keep the result")
    if used is None:
        return None
    whole = f"{used[0].file.rpartition('/')[2]}:{used[0].line}"
    return Remedy("slice", f"Compute only the part used at {whole}{_OR_ONCE * shared}")


def _one_by_one(stack: CallStack) -> Remedy | None:
    """Tell of a look within Python's own work, in no library's function."""
    return _AT_ONCE if is_users(stack[-1]) and loop_around(stack[-1]) is not None else None


def _watched_or_one_by_one(stack: CallStack) -> Remedy | None:
    """Tell, in the loop's own time, what the training does not need, so that it may be done less often by whatever
    means."""
    told = _one_by_one(stack)
    watched = any(_WATCHED.search(f"{call.function} {call.text}") for call in stack if is_users(call))
    return Remedy("less_often", "Do it every 50th step, since it only monitors") if told and watched else told


def _with_its_loop(told: Remedy, alike: Stands, mine: Looks, looks: Looks, elsewhere: Looks) -> tuple[Remedy, Stands]:
    """Add what a loop in Python does itself: what is done by cheaper means for whole arrays needs none."""
    of_loop = _of_loop(mine, elsewhere)
    if of_loop is None or not len(looks.where(lambda stack: of_loop(stack) and not alike(stack))):
        return told, alike
    return Remedy(told.kind, f"{told.change}, without the loop"), lambda stack: alike(stack) or of_loop(stack)


_Loop = tuple[str, str, int, int]
"""File, function, first and last line."""


def _loops(stack: CallStack) -> Iterator[_Loop]:
    """Yield loops of the user's that a look is within, the outermost first, of each function one."""
    for call in _making(stack) or own_part(stack):
        if is_users(call) and (span := loop_around(call)) is not None:
            yield call.file, call.function, *span


def _of_loop(mine: Looks, elsewhere: Looks) -> Stands | None:
    """Return which looks are within the loop in Python that most of these are in, the outermost of the user's that goes
    through single things and does nothing else; `None` where they are in none."""
    theirs = {loop for stack, _ in elsewhere.stacks() for loop in _loops(stack)}
    loops: Counter[_Loop] = Counter()
    for stack, count in mine.stacks():
        if (found := next((loop for loop in _loops(stack) if loop not in theirs), None)) is not None:
            loops[found] += count
    if not loops:
        return None
    ((file, function, first, last), count) = loops.most_common(1)[0]

    def within_it(stack: CallStack) -> bool:
        calls = _making(stack) or own_part(stack)
        return any((call.file, call.function) == (file, function) and first <= call.line <= last for call in calls)

    return within_it if count >= MOSTLY * len(mine) else None
