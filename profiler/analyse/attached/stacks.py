"""What a stack says its thread is doing: the classes of a training's thread, by rows as those of stages are
(`where/stages.py`), with two exceptions: what happens inside the making of a batch, or inside a checkpoint, belongs to
that.
"""

from __future__ import annotations

import re

from ...record.stacks import CallStack
from ..where.places import is_users
from ..where.source import draws_for_evaluation
from ..where.stages import Rows, place

CLASSES = (
    "data wait",
    "data making",
    "validation wait",
    "validation making",
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
VALIDATION = {"data wait": "validation wait", "data making": "validation making"}
"""What waiting for data, and making them, are called while the training evaluates."""
BLOCKED = frozenset(("data wait", "sync", "ranks"))
"""In these a thread does not run, so its stack does not change while it is read."""

_ENCLOSING = Rows(
    ("data making", r"torch/utils/data/_utils/fetch\.py:fetch\Z", ""),
    ("checkpoint", r"torch/serialization\.py:_?(legacy_)?save\Z", ""),
    ("checkpoint", r"torch/distributed/checkpoint/|safetensors/torch\.py:save", ""),
    ("checkpoint", r":_?save_(checkpoint|model|pretrained|state|weights)\Z", ""),
)  # fmt: skip

_EVALUATION = re.compile(
    r"loops/evaluation_loop\.py:|transformers/trainer\w*\.py:(evaluate|evaluation_loop|predict(ion_loop)?)\Z"
)
"""Where libraries evaluate."""

_CLASSES = (
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
_CLASS_RULES = Rows(*_CLASSES)

_TRAINING_RULES = Rows(*(row for row in _CLASSES if row[0] in TRAINING))

_DATA_WAIT_KINDS = Rows(
    ("unpacking", r"torch/multiprocessing/reductions\.py", ""),
    ("unpacking", r"multiprocessing/(resource_sharer|connection)\.py:(get_connection|detach)", ""),
    ("starting workers", r"dataloader\.py:(_get_iterator|_reset)\Z", ""),
    ("starting workers", r"multiprocessing/(popen_|process\.py:start)", ""),
    ("ending workers", r"dataloader\.py:_shutdown_workers\Z", ""),
    ("unpacking", "", r"\.loads\(|\brecv_bytes\("),
)  # fmt: skip

_WORKER = re.compile(r"torch/utils/data/_utils/worker\.py:_worker_loop\Z")
_PIN_THREAD = re.compile(r"torch/utils/data/_utils/pin_memory\.py:(_pin_memory_loop|do_one_step)\Z")
_BUILDING = re.compile(r"torch/nn/.*:(__init__|reset_parameters|load_state_dict|_apply)\Z")
"""Of a model, which is before it is trained."""
_TRAINING_LOADER = re.compile(r"torch/utils/data/dataloader\.py:(__next__|_next_data|__iter__)\Z")


def class_of(stack: CallStack) -> str:
    """What a training's thread is doing, as one of CLASSES."""
    if _imports(stack):
        return "importing"
    return _ENCLOSING.any(stack) or _CLASS_RULES.of(stack) or "python"


def is_validation(stack: CallStack) -> bool:
    """Whether a stack that waits for data, or makes them, does so for an evaluation: by a library's function, or by the
    source of the user's own."""
    return any(_EVALUATION.search(place(each)) or (is_users(each) and draws_for_evaluation(each)) for each in stack)


def training_part(stack: CallStack) -> str | None:
    """Of any stack: which part of TRAINING it is within, whatever its innermost frame does; `None` outside of them."""
    return _TRAINING_RULES.of(stack)


def data_wait_kind(stack: CallStack) -> str:
    """Of a stack that waits for data: `waiting`, `unpacking`, `starting workers` or `ending workers`."""
    return _DATA_WAIT_KINDS.of(stack) or "waiting"


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
    module = modules[0].rpartition("/")[2] if modules else "modules"
    return next(packages, module).removesuffix(".py")


_IMPORTS = "<frozen importlib._bootstrap"
_STEPS = re.compile(
    r"torch/(autograd/graph\.py:_engine_run_backward|nn/modules/module\.py:_call_impl|optim/\w+\.py:(wrapper|step)"
    r"|utils/data/(dataloader\.py:__next__|_utils/worker\.py:_worker_loop))\Z"
)


def short(file: str) -> str:
    """A path as people know it: from the package on, else its last two parts."""
    _, found, rest = file.rpartition("site-packages/")
    return rest if found else "/".join(file.split("/")[-2:])


_LIBRARY = re.compile(r"/lib/python3\.\d+/(?!site-packages|dist-packages)|site-packages/torch/|\A<")


def is_blocked(stack: CallStack) -> bool:
    """Whether the thread waits for something, so that its stack stands still."""
    leaf = stack[-1]
    if _STANDING.search(place(leaf)) or "sleep(" in leaf.text:
        return True
    return class_of(stack) in BLOCKED


_STANDING = re.compile(r":(select|poll|wait|acquire|accept|_wait_for_tstate_lock|recv_into)\Z")
