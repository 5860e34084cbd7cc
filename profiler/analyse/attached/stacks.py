"""What a stack says its thread is doing: the classes of a training's thread, the stages of making a sample.

Rules are pairs of a pattern for `file:function` of a frame, and a pattern for the source line of the innermost
frame (calls into C have no frame of their own). The first match from the innermost frame outwards decides, with two
exceptions: what happens inside the making of a batch, or inside a checkpoint, belongs to that.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache

from ...record.stacks import Call, CallStack

CLASSES = (
    "data wait",
    "data making",
    "copy",
    "sync",
    "ranks",
    "forward",
    "backward",
    "optimizer",
    "compiling",
    "importing",
    "checkpoint",
    "logging",
    "python",
)
TRAINING = frozenset(("forward", "backward", "optimizer"))
BLOCKED = frozenset(("data wait", "sync", "ranks"))
"""In these a thread does not run, so its stack does not change while it is read."""
STAGES = ("read", "decode", "transform", "collate", "sample")
"""`sample` is the rest of a dataset's own code."""


@dataclass(frozen=True)
class _Rule:
    result: str
    where: re.Pattern[str] | None = None
    """Matches `file:function` of a frame; the function is without its class."""
    text: re.Pattern[str] | None = None
    """Matches the source line of the innermost frame."""


def _rules(*rules: tuple[str, str, str]) -> tuple[_Rule, ...]:
    return tuple(
        _Rule(result, re.compile(where) if where else None, re.compile(text) if text else None)
        for result, where, text in rules
    )


_ENCLOSING = _rules(
    ("data making", r"torch/utils/data/_utils/fetch\.py:fetch\Z", ""),
    ("checkpoint", r"torch/serialization\.py:_?(legacy_)?save\Z", ""),
    ("checkpoint", r"torch/distributed/checkpoint/|safetensors/torch\.py:save", ""),
    ("checkpoint", r":_?save_(checkpoint|model|pretrained|state|weights)\Z", ""),
)  # fmt: skip

_CLASS_RULES = _rules(
    ("ranks", r"torch/distributed/distributed_c10d\.py|torch/distributed/_functional_collectives", ""),
    ("sync", r"torch/(cuda|xpu)/(__init__|streams)\.py:(synchronize|wait_event|wait_stream|wait)\Z", ""),
    ("sync", r"torch/_tensor_str\.py|torch/_tensor\.py:__(repr|format|array)__\Z", ""),
    ("copy", r"send_to_device\Z|:move_data_to_device\Z|:batch_to_device\Z", ""),
    ("data wait", r"torch/utils/data/dataloader\.py:|torchdata/stateful_dataloader/", ""),
    ("data wait", r"torch/multiprocessing/reductions\.py", ""),
    ("data wait", r"multiprocessing/queues\.py:get\Z|nvidia/dali/plugin/", ""),
    ("data wait", r"spdl/(pipeline|dataloader)/|ffcv/loader/", ""),
    ("data making", r"webdataset/|torch/utils/data/datapipes/", ""),
    ("data making", r"/datasets/(arrow_dataset|iterable_dataset|formatting)", ""),
    ("logging", r"/logging/__init__\.py|/tqdm/|/wandb/|tensorboard(X)?/|/mlflow/|/rich/|/loguru/", ""),
    ("compiling", r"torch/(_dynamo/(?!eval_frame)|_inductor/(?!.*:call\Z)|_functorch/)", ""),
    ("compiling", r"triton/(compiler|runtime/jit)", ""),
    ("optimizer", r"torch/optim/|torch/amp/grad_scaler\.py|torch/nn/utils/clip_grad\.py|apex/optimizers/", ""),
    ("optimizer", r"bitsandbytes/optim/|deepspeed/ops/(adam|lamb)|transformers/optimization\.py", ""),
    ("backward", r"torch/autograd/|torch/_tensor\.py:backward\Z", ""),
    ("forward", r"torch/(nn|_ops|functional|_dynamo/eval_frame|amp|ao)\b", ""),
    ("forward", r"torchvision/(models|ops)/|transformers/models/", ""),
    ("checkpoint", "", r"\btorch\.save\(|\bpickle\.dump\("),
    ("sync", "", r"\.(item|tolist|cpu|numpy)\(|\bsynchronize\(|\bfloat\(|\.nonzero\("),
    ("copy", "", r"\.(to|cuda|copy_|pin_memory)\("),
    ("backward", "", r"\.backward\("),
    ("optimizer", "", r"\.zero_grad\("),
    ("logging", "", r"\bprint\(|\blog(ger|ging)?\.|\bjson\.dump|\.write\(|\.add_scalar\("),
)  # fmt: skip

_DATA_WAIT_KINDS = _rules(
    ("unpacking", r"torch/multiprocessing/reductions\.py", ""),
    ("unpacking", r"multiprocessing/(resource_sharer|connection)\.py:(get_connection|detach)", ""),
    ("starting workers", r"dataloader\.py:(_get_iterator|_reset)\Z", ""),
    ("starting workers", r"multiprocessing/(popen_|process\.py:start)", ""),
    ("ending workers", r"dataloader\.py:_shutdown_workers\Z", ""),
    ("unpacking", "", r"\.loads\(|\brecv_bytes\("),
)  # fmt: skip

_STAGE_RULES = _rules(
    ("collate", r"torch/utils/data/_utils/collate\.py|:collate(_fn)?\Z|:default_collate\Z", ""),
    ("transform", r"torchvision/transforms/|albumentations/|torchaudio/transforms", ""),
    ("transform", r"kornia/|imgaug/|/timm/data/|monai/transforms", ""),
    ("decode", r"PIL/(ImageFile|JpegImagePlugin|PngImagePlugin|WebPImagePlugin)\.py", ""),
    ("decode", r"PIL/Image\.py:(frombytes|convert)\Z", ""),
    ("decode", r"torchvision/io/|/imageio/|/soundfile\.py|torchaudio/", ""),
    ("decode", r"/decord/|/av/|/tifffile/|/pydicom/|/json/decoder\.py", ""),
    ("transform", r"PIL/(Image|ImageOps|ImageEnhance|ImageFilter)\.py:(resize|crop|transpose|rotate|transform)", ""),
    ("read", r"/(socket|ssl|http/client|urllib/\w+|zipfile|tarfile|gzip|pathlib)\.py", ""),
    ("read", r"/(fsspec|s3fs|gcsfs|botocore|h5py|zarr)/", ""),
    ("read", r"PIL/Image\.py:open\Z|pyarrow/|/lmdb/", ""),
    ("read", r"/numpy/lib/(format|_format_impl|npyio|_npyio_impl)\.py", ""),
    ("transform", r":(_?augment\w*|transforms?|_?preprocess\w*|normali[sz]e|resize|crop)\Z", ""),
    ("decode", r":_?decode\w*\Z", ""),
    ("read", r":_?(read|fetch_bytes|download|load_bytes)\w*\Z", ""),
    ("read", "", r"\bopen\(|\.read(bytes|_bytes|line|lines|into)?\("),
    ("read", "", r"\bp?read(v|into)?\(|np\.(load|memmap|fromfile)\(|\.recv\("),
    ("decode", "", r"imdecode\(|imread\(|decode\w*\(|\.load\(\)|\.loads\(|frombuffer\(|decompress\("),
    ("transform", "", r"\bresize\(|\bwarp\w+\(|\bcvtColor\(|\bflip\(|normali[sz]e\(|\btransforms?\("),
    ("collate", "", r"torch\.stack\(|torch\.cat\(|\bcollate\w*\("),
)  # fmt: skip

_WORKER = re.compile(r"torch/utils/data/_utils/worker\.py:_worker_loop\Z")
_FETCH = re.compile(r"torch/utils/data/_utils/fetch\.py:fetch\Z")
_PIN_THREAD = re.compile(r"torch/utils/data/_utils/pin_memory\.py:(_pin_memory_loop|do_one_step)\Z")
_BUILDING = re.compile(r"torch/nn/.*:(__init__|reset_parameters|load_state_dict|_apply)\Z")
"""Of a model, which is before it is trained."""
_TRAINING_LOADER = re.compile(r"torch/utils/data/dataloader\.py:(__next__|_next_data|__iter__)\Z")


@lru_cache(maxsize=65536)
def place(frame: Call) -> str:
    """`file:function`, without the class or outer function that newer Pythons put before it."""
    return f"{frame.file}:{frame.function.rpartition('.')[2]}"


def class_of(stack: CallStack) -> str:
    """What a training's thread is doing, as one of CLASSES."""
    if _imports(stack):
        return "importing"
    for rule in _ENCLOSING:
        assert rule.where is not None
        if any(rule.where.search(place(frame)) for frame in stack):
            return rule.result
    return _first(_CLASS_RULES, stack) or "python"


def training_part(stack: CallStack) -> str | None:
    """Of any stack: which part of TRAINING it is within, whatever its innermost frame does; `None` outside of them."""
    rules = [rule for rule in _CLASS_RULES if rule.result in TRAINING]
    return _first(rules, stack)


def data_wait_kind(stack: CallStack) -> str:
    """Of a stack that waits for data: `waiting`, `unpacking`, `starting workers` or `ending workers`."""
    return _first(_DATA_WAIT_KINDS, stack) or "waiting"


def is_worker(stack: CallStack) -> bool:
    """Whether this is the main thread of a loader's worker process."""
    return any(_WORKER.search(place(frame)) for frame in stack)


def is_pin_thread(stack: CallStack) -> bool:
    return any(_PIN_THREAD.search(place(frame)) for frame in stack)


def is_training(stack: CallStack) -> bool:
    """Whether only a thread that trains has such a stack."""
    if is_pin_thread(stack) or is_worker(stack):
        return False
    if class_of(stack) in TRAINING:
        return not any(_BUILDING.search(place(frame)) for frame in stack)
    return any(_TRAINING_LOADER.search(place(frame)) for frame in stack)


def stage_of(stack: CallStack) -> str | None:
    """Which stage of making a batch a stack is in, as one of STAGES; `None` outside of it."""
    begins = [depth for depth, frame in enumerate(stack) if _FETCH.search(place(frame))]
    if not begins:
        return None
    return _first(_STAGE_RULES, stack[begins[-1] + 1 :]) or ("sample" if len(stack) > begins[-1] + 1 else "collate")


def main_stage(stages: Mapping[str, float]) -> str:
    """The stage that takes most; empty where it has no name of its own."""
    first = next(iter(stages), "")
    return {"read": "reading", "decode": "decoding", "transform": "transforming", "collate": "collating"}.get(first, "")


def leaf_of(stack: CallStack) -> str:
    """Where a stack stands, for people: the innermost frame that is not of the standard library or torch; of one that
    imports, what it imports."""
    if class_of(stack) == "importing":
        return f"importing {_imported(stack)}"
    for frame in reversed(stack):
        if not _LIBRARY.search(frame.file):
            return f"{frame.function} ({short(frame.file)}:{frame.line})"
    leaf = stack[-1]
    return f"{leaf.function} ({short(leaf.file)}:{leaf.line})"


def _imports(stack: CallStack) -> bool:
    """Whether a module is being imported, and not one whose body trains."""
    begin = max((at for at, frame in enumerate(stack) if frame.file.startswith(_IMPORTS)), default=None)
    return begin is not None and not any(_STEPS.search(place(frame)) for frame in stack[begin:])


def _imported(stack: CallStack) -> str:
    """The outermost package that is being imported; where it is none that is installed, the outermost module."""
    files = [frame.file for frame in stack]
    begin = next((at for at, file in enumerate(files) if file.startswith(_IMPORTS)), 0)
    modules = [file for file in files[begin:] if not file.startswith("<")]
    packages = (file.rpartition("site-packages/")[2].partition("/")[0] for file in modules if "site-packages/" in file)
    told = next(packages, "") or (modules[0].rpartition("/")[2] if modules else "")
    statement = _IMPORT.match(stack[begin - 1].text) if begin and not told else None
    return told.removesuffix(".py") or (statement[1] if statement else "modules")


_IMPORTS = "<frozen importlib._bootstrap"
_STEPS = re.compile(
    r"torch/(autograd/graph\.py:_engine_run_backward|nn/modules/module\.py:_call_impl|optim/\w+\.py:(wrapper|step)"
    r"|utils/data/(dataloader\.py:__next__|_utils/worker\.py:_worker_loop))\Z"
)
_IMPORT = re.compile(r"(?:from|import) (\w+)")


def short(file: str) -> str:
    """A path as people know it: from the package on, else its last two parts."""
    _, found, rest = file.rpartition("site-packages/")
    return rest if found else "/".join(file.split("/")[-2:])


_LIBRARY = re.compile(r"/lib/python3\.\d+/(?!site-packages|dist-packages)|site-packages/torch/|\A<")


def _first(rules: Iterable[_Rule], stack: CallStack) -> str | None:
    innermost = True
    for frame in reversed(stack):
        where = place(frame)
        for rule in rules:
            if rule.where is not None and rule.where.search(where):
                return rule.result
            if innermost and rule.text is not None and rule.text.search(frame.text):
                return rule.result
        innermost = False
    return None


def is_blocked(stack: CallStack) -> bool:
    """Whether the thread waits for something, so that its stack stands still."""
    leaf = stack[-1]
    if _STANDING.search(place(leaf)) or "sleep(" in leaf.text:
        return True
    return class_of(stack) in BLOCKED


_STANDING = re.compile(r":(select|poll|wait|acquire|accept|_wait_for_tstate_lock|recv_into)\Z")
