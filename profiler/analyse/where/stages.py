"""Which stage of preparing a batch a stack stands in, and how the time divides between them.

A row has a pattern for `file:function` of a call (the function without its class), or one for the line of source of the
innermost call, since calls into C leave no call of their own. The first row that fits decides, from the innermost call
outwards.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Generic, TypeVar

import numpy as np
import numpy.typing as npt

from ...record.schema import ThreadState
from ...record.stacks import Call, CallStack
from ..statistics import Estimate, wilson
from .looks import Looks
from .places import FETCHER, is_file, own_part, place_of, within

SAMPLE = "sample"
"""The stage of whatever no row knows: the program's own code, for the most part."""
READ, TRANSFORM, COLLATE, LOCK, WAIT = "read", "transform", "collate", "lock", "wait"

STAGES = {
    "open": "opening files",
    READ: "reading",
    "decompress": "decompressing",
    "parse": "parsing",
    "decode": "decoding",
    "table": "looking up in a table",
    "tokenise": "tokenising",
    TRANSFORM: "transforming",
    COLLATE: "collating",
    "import": "importing",
    LOCK: "waiting for a lock",
    WAIT: "waiting",
    SAMPLE: "the rest of preparing samples",
}
"""Stages of preparing a batch, each in words."""
WAITING = frozenset((LOCK, WAIT))
"""In which nothing is made."""
CHEAPER = {
    "open": ("Keep files open in each worker, or pack them into fewer, larger ones (shards)", "once"),
    READ: ("Pack files into shards, or cache them in memory", "cheaper"),
    "decompress": ("Decompress less: use uncompressed or chunked files, or a faster codec (zstd, lz4)", "cheaper"),
    "parse": ("Parse once, before the training, and keep the result as arrays (`.npy`, Arrow)", "once"),
    "decode": ("Decode less: use smaller source images, or a faster decoder (DALI, or on the GPU)", "cheaper"),
    "table": ("Look up less: take the table's columns out once, as NumPy arrays", "cheaper"),
    "tokenise": ("Tokenise once, before the training, and keep the numbers", "once"),
    TRANSFORM: ("Use fewer or vectorised transforms, or the GPU (DALI)", "cheaper"),
    COLLATE: ("Collate whole arrays at once, or uint8 images normalised on the device", "cheaper"),
}
"""(advice, its kind of `causes.finding.REMEDIES`) for a stage. Nothing general can be said of the others."""


def cheaper_by_words(words: str) -> tuple[str, str] | None:
    """Return (change, its kind) for a stage that is told in words; `None` where nothing general can be said."""
    return next((CHEAPER[stage] for stage, told in STAGES.items() if told == words and stage in CHEAPER), None)


Result = TypeVar("Result")


class Rows(Generic[Result]):
    """What calls and lines of source tell, by patterns in the order in which they are asked."""

    def __init__(self, *rows: tuple[Result, str, str]) -> None:
        """`rows`: (result, pattern of `file:function` of a call, pattern of a line of source) each; an empty one is no
        pattern."""
        self.results: list[Result | None] = [*(result for result, _, _ in rows), None]
        self._calls = [(at, re.compile(calls)) for at, (_, calls, _) in enumerate(rows) if calls]
        self._texts = [(at, re.compile(text)) for at, (_, _, text) in enumerate(rows) if text]
        self._called: dict[str, int] = {}

    def by_call(self, call: Call) -> int:
        """Return the number of the first row that fits a call; that of the result `None` where none does."""
        # There are few different calls, and very many stacks of them.
        where = place(call)
        if (found := self._called.get(where)) is None:
            fits = (at for at, pattern in self._calls if pattern.search(where))
            found = self._called[where] = next(fits, len(self.results) - 1)
        return found

    def by_text(self, text: str) -> int:
        """Return the number of the first row that fits a line of source; that of the result `None` where none does."""
        return next((at for at, pattern in self._texts if pattern.search(text)), len(self.results) - 1)

    def any(self, stack: CallStack) -> Result | None:
        """Return the result of the first row that fits any call of a stack."""
        return self.results[min(map(self.by_call, stack), default=-1)]

    def first(self, stack: CallStack) -> tuple[int, int]:
        """Return (number of the row that fits, depth of the call), from the innermost call outwards; that of the result
        `None` and -1 where none does."""
        for depth in range(len(stack) - 1, -1, -1):
            at = self.by_call(stack[depth])
            if depth == len(stack) - 1:
                at = min(at, self.by_text(stack[depth].text))
            if at < len(self.results) - 1:
                return at, depth
        return -1, -1

    def of(self, stack: CallStack) -> Result | None:
        """Return the result of the row that fits; `None` where none does."""
        return self.results[self.first(stack)[0]]


@lru_cache(maxsize=65536)
def place(call: Call) -> str:
    """Return `file:function`, without the class or outer function that newer Pythons put before it."""
    return f"{call.file}:{call.function.rpartition('.')[2]}"


_AUGMENTING = (
    r"torchvision/transforms/|/albumentations/|/torchaudio/(transforms|functional)|/kornia/|/imgaug/|/timm/data/"
    r"|/monai/transforms|/audiomentations/"
)

_MAKING = Rows(
    (COLLATE, r"torch/utils/data/_utils/collate\.py|:collate(_fn)?\Z|:default_collate\Z", ""),
    (TRANSFORM, _AUGMENTING, ""),
    (TRANSFORM, r"/scipy/(signal|ndimage)/|/librosa/(effects|feature|util)", ""),
    ("tokenise", r"/(tokenizers|tiktoken|sentencepiece)/|transformers/tokenization", ""),
    ("decompress", r"/(gzip|lzma|bz2|_compression|zstandard|lz4)\b|/blosc2?/|/numcodecs/", ""),
    ("decompress", r"/zipfile(/__init__)?\.py:_(update_crc|read[12])\Z", ""),
    ("open", r"/zipfile(/__init__)?\.py:(_RealGetContents|__init__|open|getinfo|namelist|_decodeExtra)\Z", ""),
    ("open", r"/tarfile\.py:\w*(open|next|getmember|_load|tarfile|frombuf|__init__|_proc_\w+)\Z", ""),
    ("open", r"/h5py/_hl/files\.py|/zarr/.*:open|/netCDF4/|/tables/file\.py|PIL/Image\.py:(open|preinit)", ""),
    ("open", r"PIL/\w+ImagePlugin\.py:(_open|\w+_factory|APP|SOF|DQT|COM)\Z|PIL/ImageFile\.py:__init__\Z", ""),
    ("open", r"/(socket|ssl)\.py:(create_connection|connect|do_handshake)\Z|/tempfile\.py|/wave\.py:open", ""),
    ("decode", r"PIL/(ImageFile|\w+ImagePlugin)\.py|PIL/Image\.py:(frombytes|convert)\Z", ""),
    ("decode", r"torchvision/io/|/imageio/|/soundfile\.py|/torchaudio/|/audioread/|/librosa/core/audio", ""),
    ("decode", r"/decord/|/av/|/torchcodec/|/tifffile/|/pydicom/|/nibabel/|/rasterio/|/wave\.py:|scipy/io/wavfile", ""),
    (TRANSFORM, r"PIL/(Image|Image(Ops|Enhance|Filter|Chops))\.py:(?!open|load|copy|tobytes|__\w+__|fromarray)", ""),
    ("parse", r"/(json/\w+|csv|yaml/\w+|xml/\w+/\w+|pickle|toml\w*/\w+|configparser)\.py", ""),
    ("parse", r"/pandas/io/|/torch/serialization\.py|/orjson/|/datasets/formatting|/pycocotools/", ""),
    ("table", r"/pandas/core/|/polars/", ""),
    (READ, r"/(socket|ssl|http/client|urllib/\w+|zipfile(/__init__)?|tarfile|shutil)\.py", ""),
    (READ, r"/pathlib(/\w+)?\.py:read_\w+\Z", ""),
    ("open", r"/pathlib(/\w+)?\.py:(open|stat|exists|is_file|glob|iterdir)\Z|<frozen genericpath>", ""),
    (READ, r"/(fsspec|s3fs|gcsfs|botocore|boto3|urllib3|requests|h5py|zarr|pyarrow|lmdb|sqlite3)/", ""),
    (READ, r"/numpy/lib/(format|_format_impl|npyio|_npyio_impl|_?memmap)|numpy/(_core|core)/memmap", ""),
    (READ, r"/datasets/arrow_dataset|/webdataset/(gopen|tariterators)", ""),
    (LOCK, r"/threading\.py:(acquire|__enter__|_?wait)\Z|/multiprocessing/synchronize\.py:(acquire|__enter__)\Z", ""),
    (LOCK, r"/(filelock|portalocker|fasteners)/", ""),
    ("import", r"<frozen importlib\._bootstrap", ""),
    (LOCK, "", r"\b(flock|lockf)\(|\.acquire\(|\bwith\b.*(\b|_)lock\w*(\(\))?\s*:"),
    (WAIT, "", r"\bsleep\("),
    ("decompress", "", r"\bdecompress(obj)?\(|\b(gzip|lzma|bz2)\.open\("),
    ("decode", "", r"imdecode\(|imread\(|\bdecode_\w+\(|\b(sf|soundfile|librosa|wavfile)\.(read|load)\(|\.load\(\)"),
    ("decode", "", r"\bcap\.(read|grab|retrieve)\(|\.get_fdata\("),
    ("parse", "", r"\.loads\(|\b(json|pickle|yaml|torch|csv|orjson|ujson)\.(load|safe_load|reader)\w*\("),
    ("parse", "", r"\bread_(csv|json|parquet|table|pickle)\(|\bliteral_eval\(|\bfromstring\(|\bgenfromtxt\("),
    ("tokenise", "", r"\btokeni[sz]\w*\("),
    (TRANSFORM, "", r"\b\w*resize\(|\bwarp\w+\(|\bcvtColor\(|\bflip\(|normali[sz]e\(|\btransforms?\("),
    (TRANSFORM, "", r"\bGaussianBlur\(|\binterpolate\(|\bgrid_sample\(|\bstft\("),
    (READ, "", r"\.read(bytes|_bytes|_text|line|lines|into)?\(|\bp?read(v|into)?\(|\.recv\w*\("),
    (READ, "", r"np\.(load|memmap|fromfile)\(|\.(fetchone|fetchall|execute)\("),
    ("open", "", r"\b(sqlite3|lmdb|h5py|psycopg2?|redis|duckdb)\.(connect|open|File|Redis)\(|(?<![\w.])open\("),
    ("tokenise", r":_?tokeni[sz]e\w*\Z", ""),
    (TRANSFORM, r":(_?augment\w*|transforms?|_?preprocess\w*|normali[sz]e|resize|crop)\Z", ""),
    ("decode", r":_?decode\w*\Z", ""),
    (READ, r":_?(read_bytes|fetch_bytes|load_bytes|download)\Z", ""),
)

_BY_STATE = {
    ThreadState.LOCK: LOCK,
    ThreadState.SHARED_LOCK: LOCK,
    ThreadState.FILE_LOCK: LOCK,
    ThreadState.FILE: READ,
    ThreadState.SLEEP: WAIT,
    ThreadState.SOCKET: WAIT,
    ThreadState.PIPE: WAIT,
    ThreadState.POLL: WAIT,
    ThreadState.CHILD: WAIT,
}
"""What a thread is at that stands in its own code, as far as the kernel tells."""

_HOLDERS = frozenset(
    ("Compose", "Sequential", "Module", "RandomApply", "RandomChoice", "RandomOrder", "OneOf", "SomeOf", "BaseCompose")
    + ("Transform", "BasicTransform", "ImageOnlyTransform", "DualTransform", "MapTransform", "StandardTransform")
)
"""Classes of transforms' libraries that only call others."""


_LIBRARY = re.compile(_AUGMENTING)

Standing = tuple[str, str]
"""(stage of `STAGES`, name of the transform); no name in other stages, and where it has none."""


def stage_of(stack: CallStack, transforms: Collection[str] = ()) -> Standing | None:
    """Return which stage of preparing a batch a stack is in; `None` outside of it.

    `transforms`: names of those that were timed by themselves, as the workers' records have them.
    """
    stack = own_part(stack)
    inner = within(stack, FETCHER)
    if inner is None:
        return None
    collates = "collate_fn" in stack[len(stack) - len(inner) - 1].text
    return _told(inner, transforms) or (COLLATE if collates else SAMPLE, "")


def _told(inner: CallStack, transforms: Collection[str]) -> Standing | None:
    row, depth = _MAKING.first(inner)
    stage = _MAKING.results[row]
    for at, call in enumerate(inner if transforms else ()):
        function = call.function.replace(".<locals>", "")
        timed = next((name for name in transforms if function == name or function.startswith(f"{name}.")), "")
        if timed:
            if stage in (None, TRANSFORM, COLLATE) or at >= depth:
                return TRANSFORM, timed
            break
    if stage != TRANSFORM:
        return None if stage is None else (stage, "")
    # By the outermost class of a library of transforms that does more than to call others, else by the function.
    for call in inner[: depth + 1]:
        owner = call.function.split(".")[0]
        if "." in call.function and owner not in _HOLDERS and is_file(_LIBRARY, call.file):
            return TRANSFORM, owner
    return TRANSFORM, inner[depth].function if _MAKING.by_call(inner[depth]) == row else ""


def in_state(standing: Standing, state: int) -> Standing:
    """Return the same; where no row tells, by what the kernel says of the thread."""
    return (_BY_STATE.get(state, SAMPLE), "") if standing[0] == SAMPLE else standing


LEAST_STAGE_LOOKS = 20
"""Looks from which stages are told: of fewer the shares are anything."""
LEAST_STAGE_SHARE = 0.03
"""Share of the time from which a stage stands by itself."""
OTHER = "other"
"""All stages below that."""
_MOST_ALIKE = 0.95


@dataclass(frozen=True)
class StageShare:
    """A stage, and how much of the time it takes."""

    stage: str
    """Key of `STAGES`, or `OTHER`."""
    name: str
    """Name of the transform; of the data set's own code its function; empty of all others."""
    share: Estimate
    """Share of the time in question, 0..1, with its 95 % interval."""
    looks: int
    """Number of stack samples that saw it."""
    calls: str = ""
    """The innermost function of a library that it was in most often; empty where there was none, as in C code."""
    at: Call | None = None
    """The innermost line of the user's own code in it, most often; `None` where it was in none."""

    @property
    def words(self) -> str:
        """Return what it is called."""
        if self.stage == OTHER:
            return "all else"
        return self.name or STAGES[self.stage]


@dataclass(frozen=True)
class Stages:
    """A time divided between stages."""

    time: str
    """The time that they divide, in words."""
    looks: int
    """Number of successful stack samples."""
    parts: tuple[StageShare, ...]
    """The largest first, `OTHER` last; their shares sum to one."""

    @property
    def costliest(self) -> tuple[str, float] | None:
        """Return the stage that takes most, all transforms taken for one, and its share; `None` where that is the data
        set's own code. What is waited for is left out."""
        together: dict[str, float] = defaultdict(float)
        for part in self.parts:
            if part.stage not in WAITING and part.stage != OTHER:
                together[part.stage] += part.share.value
        stage, share = max(together.items(), key=lambda each: each[1], default=(SAMPLE, 0.0))
        return None if stage == SAMPLE else (stage, share)


Named = Callable[[CallStack], tuple[Standing | None, CallStack]]
"""From a stack to its stage, `None` where it is in none, and the part of it that the stage is told from."""


def making_stages(looks: Looks, time: str, transforms: Collection[str]) -> Stages | None:
    """Divide looks at processes that prepare batches. `transforms`: names of those that were timed by themselves."""
    return _divided(looks, time, lambda s: (stage_of(s, transforms), within(own_part(s), FETCHER) or ()))


def stages_by_hand(looks: Looks, time: str, in_loop: Mapping[CallStack, CallStack]) -> Stages | None:
    """Divide looks at a thread whose loop makes batches without a loader. `in_loop`: stack → the part of it from the
    loop's function on."""
    return _divided(looks, time, lambda s: (_told(in_loop[s], ()) or (SAMPLE, ""), in_loop[s]))


def _divided(looks: Looks, time: str, named: Named) -> Stages | None:
    records = looks.records
    pairs, of_look = np.unique(np.stack((records["stack"], records["state"])), axis=1, return_inverse=True)
    numbers: dict[tuple[str, str], int] = {}
    lines: dict[int, Counter[Call]] = defaultdict(Counter)
    calls: dict[int, Counter[str]] = defaultdict(Counter)
    which = np.full(pairs.shape[1], -1)
    counts = np.bincount(of_look.ravel(), minlength=pairs.shape[1])
    for pair, (number, state) in enumerate(pairs.T.tolist()):
        standing, part = named(looks.table.stack(number))
        if standing is None:
            continue
        (stage, name), found = in_state(standing, state), place_of(part)
        if found is not None and stage == SAMPLE:
            # Of an expression within a function, such as a comprehension, that function.
            name = found[0].function.partition(".<locals>.<")[0]
        which[pair] = numbers.setdefault((stage, name), len(numbers))
        if found is not None:
            lines[which[pair]][found[0]] += int(counts[pair])
            calls[which[pair]][found[1]] += int(counts[pair])
    stages = which[of_look.ravel()]
    known = stages >= 0
    if int(known.sum()) < LEAST_STAGE_LOOKS:
        return None
    stages, process = stages[known], records["process"][known]
    whole, keys = len(stages), list(numbers)
    seen = np.bincount(stages, minlength=len(keys))
    shown = [at for at in np.argsort(-seen, kind="stable").tolist() if seen[at] >= LEAST_STAGE_SHARE * whole]
    parts = [
        StageShare(
            keys[at][0],
            keys[at][1],
            _estimate(stages == at, process),
            int(seen[at]),
            calls[at].most_common(1)[0][0] if calls[at] else "",
            lines[at].most_common(1)[0][0] if lines[at] else None,
        )
        for at in shown
    ]
    rest = ~np.isin(stages, shown)
    if rest.any():
        parts.append(StageShare(OTHER, "", _estimate(rest, process), int(rest.sum())))
    return Stages(time, whole, tuple(parts))


def _estimate(holds: npt.NDArray[np.bool_], process: npt.NDArray[np.int64]) -> Estimate:
    """The share in which it holds, with an interval for as many looks as are independent: what lasts longer than from
    one look at a process to its next is seen several times."""
    share = float(holds.mean())
    order = np.argsort(process, kind="stable")
    away, same = holds[order] - share, np.diff(process[order]) == 0
    spread = float((away[:-1][same] ** 2).sum())
    alike = float((away[:-1] * away[1:])[same].sum()) / spread if spread else 0.0
    alike = min(_MOST_ALIKE, max(0.0, alike))
    return wilson(share, len(holds) * (1 - alike) / (1 + alike))
