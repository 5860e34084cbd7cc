"""Which stage of preparing a batch, or of handing it over, a stack stands in.

A row has a pattern for `file:function` of a call (the function without its class), or one for the line of source of the
innermost call, since calls into C leave no call of their own. The first row that fits decides, from the innermost call
outwards.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass
from functools import lru_cache

from ...record.schema import ThreadState
from ...record.stacks import Call, CallStack
from .places import FETCHER, is_file, own_part

SAMPLE = "sample"
"""The stage of whatever no row knows: the program's own code, for the most part."""
REST = "rest"
"""The same of handing over."""
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
    "open": "Keep files open in each worker, or pack them into fewer, larger ones (shards)",
    READ: "Pack files into shards, or cache them in memory",
    "decompress": "Decompress less: use uncompressed or chunked files, or a faster codec (zstd, lz4)",
    "parse": "Parse once, before the training, and keep the result as arrays (`.npy`, Arrow)",
    "decode": "Decode less: use smaller source images, or a faster decoder (DALI, or on the GPU)",
    "table": "Look up less: take the table's columns out once, as NumPy arrays",
    "tokenise": "Tokenise once, before the training, and keep the numbers",
    TRANSFORM: "Use fewer or vectorised transforms, or the GPU (DALI)",
    COLLATE: "Collate whole arrays at once, or uint8 images normalised on the device",
}
"""Advice for a stage. Nothing general can be said of the others."""
_ONCE = ("open", "parse", "tokenise")
"""Whose change is to do it once."""

HANDING_STAGES = {
    "pickle": "pickling",
    "share": "putting tensors into shared memory",
    "send": "writing to the pipe",
    "receive": "reading from the pipe",
    "map": "opening shared memory",
    "unpickle": "unpickling",
    "pin": "copying to pinned memory",
    REST: "the rest of handing over",
}
"""Stages of handing a batch over, each in words."""


def kind_of(stage: str) -> str:
    """Of the change of `CHEAPER`, one of `causes.finding.REMEDIES`."""
    return "once" if stage in _ONCE else "cheaper"


def cheaper_by_words(words: str) -> tuple[str, str] | None:
    """(change, its kind) for a stage that is told in words; `None` where nothing general can be said."""
    stage = next((stage for stage, told in STAGES.items() if told == words and stage in CHEAPER), None)
    return None if stage is None else (CHEAPER[stage], kind_of(stage))


@dataclass(frozen=True)
class StageRow:
    """What a call, or a line of source, is part of."""

    result: str
    calls: re.Pattern[str] | None
    """Matches `file:function` of a call; the function is without its class."""
    text: re.Pattern[str] | None
    """Matches the line of source of the innermost call."""


class Rows:
    """Rows in the order in which they are asked."""

    def __init__(self, *given: tuple[str, str, str]) -> None:
        """`given`: (result, pattern of calls, pattern of source) a row; an empty pattern is none."""
        self.rows = tuple(
            StageRow(result, re.compile(calls) if calls else None, re.compile(text) if text else None)
            for result, calls, text in given
        )
        self._called: dict[str, int] = {}

    def only(self, results: Collection[str]) -> Rows:
        """Those with one of these results."""
        kept = Rows()
        kept.rows = tuple(row for row in self.rows if row.result in results)
        return kept

    def first(self, stack: CallStack) -> tuple[StageRow, int] | None:
        """(row that fits, depth of the call), from the innermost call outwards; `None` where none does."""
        for depth in range(len(stack) - 1, -1, -1):
            at = self._by_call(place(stack[depth]))
            if depth == len(stack) - 1:
                at = min(at, self._by_text(stack[depth].text))
            if at < len(self.rows):
                return self.rows[at], depth
        return None

    def _by_call(self, where: str) -> int:
        # There are few different calls, and very many stacks of them.
        found = self._called.get(where)
        if found is None:
            fits = (at for at, row in enumerate(self.rows) if row.calls is not None and row.calls.search(where))
            found = self._called[where] = next(fits, len(self.rows))
        return found

    def _by_text(self, text: str) -> int:
        fits = (at for at, row in enumerate(self.rows) if row.text is not None and row.text.search(text))
        return next(fits, len(self.rows))


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

_EACH_TENSOR = Rows(
    ("share", r"torch/multiprocessing/reductions\.py:(reduce_\w+|fd_id|storage_from_cache)\Z", ""),
    ("share", r"/multiprocessing/resource_sharer\.py:_serve\Z", ""),
    ("map", r"torch/multiprocessing/reductions\.py:", ""),
    ("map", r"/multiprocessing/(reduction|resource_sharer)\.py:(recv_handle|recvfds|detach|get_connection)\Z", ""),
)
"""What is done for each tensor by itself, with whatever it calls: the two sides of a handle connect for it."""
_HANDING = Rows(
    ("pin", r"torch/utils/data/_utils/pin_memory\.py:pin_memory\Z", ""),
    ("send", r"/multiprocessing/connection\.py:(_?send\w*)\Z", ""),
    ("pickle", r"/multiprocessing/reduction\.py:(dumps?|__init__)\Z|/pickle\.py:_?(save|dump)\w*\Z", r"\bdumps\("),
    ("receive", r"/multiprocessing/connection\.py:(_?recv\w*)\Z", ""),
    ("unpickle", r"/pickle\.py:_?load\w*\Z", r"\bloads\("),
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


@dataclass(frozen=True)
class AtStage:
    """In which stage a stack stands."""

    stage: str
    """Of `STAGES` or `HANDING_STAGES`."""
    name: str = ""
    """Which transform, of that stage alone; empty where it has no name."""


@lru_cache(maxsize=65536)
def place(call: Call) -> str:
    """`file:function`, without the class or outer function that newer Pythons put before it."""
    return f"{call.file}:{call.function.rpartition('.')[2]}"


def stage_of(stack: CallStack, transforms: Collection[str] = ()) -> AtStage | None:
    """Which stage of preparing a batch a stack is in; `None` outside of it.

    `transforms`: names of those that were timed by themselves, as the workers' records have them.
    """
    stack = own_part(stack)
    begin = max((depth for depth, call in enumerate(stack) if is_file(FETCHER, call.file)), default=None)
    if begin is None:
        return None
    inner = stack[begin + 1 :]
    return _told(inner, transforms) or AtStage(COLLATE if "collate_fn" in stack[begin].text else SAMPLE)


def stage_by_hand(stack: CallStack) -> AtStage | None:
    """Which stage of preparing a batch without a loader a stack is in; `None` of an empty one.

    `stack`: from the statement on that makes it.
    """
    return (_told(stack, ()) or AtStage(SAMPLE)) if stack else None


def _told(inner: CallStack, transforms: Collection[str]) -> AtStage | None:
    found = _MAKING.first(inner)
    timed = next(((depth, name) for depth, call in enumerate(inner) if (name := _timed(call, transforms))), None)
    if timed is not None and (found is None or timed[0] >= found[1] or found[0].result in (TRANSFORM, COLLATE)):
        return AtStage(TRANSFORM, timed[1])
    if found is not None:
        row, depth = found
        return AtStage(row.result, _named(row, inner[: depth + 1]) if row.result == TRANSFORM else "")
    return None


def in_state(standing: AtStage, state: int) -> AtStage:
    """The same; where no row tells, by what the kernel says of the thread."""
    return AtStage(_BY_STATE.get(state, SAMPLE)) if standing.stage == SAMPLE else standing


def handing_stage_of(stack: CallStack) -> AtStage | None:
    """Which stage of handing a batch over a stack is in; `None` of a failed look."""
    if not stack:
        return None
    own = own_part(stack)
    found = _EACH_TENSOR.first(own) or _HANDING.first(own)
    return AtStage(REST if found is None else found[0].result)


def _timed(call: Call, transforms: Collection[str]) -> str:
    function = call.function.replace(".<locals>", "")
    return next((name for name in transforms if function == name or function.startswith(f"{name}.")), "")


def _named(row: StageRow, stack: CallStack) -> str:
    """What a transform is called: by the outermost class of a library of transforms that does more than to call others,
    else by the function that tells."""
    for call in stack:
        owner = call.function.split(".")[0]
        if "." in call.function and owner not in _HOLDERS and is_file(_LIBRARY, call.file):
            return owner
    return "" if row.calls is None else stack[-1].function


_LIBRARY = re.compile(_AUGMENTING)
