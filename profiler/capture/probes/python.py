"""A Python started as `whyidle run` starts one: whether our hooks get into it, what its torch can do, and libraries."""

from __future__ import annotations

import contextlib
import importlib.metadata
import json
import os
import subprocess
import sys
import tempfile
from functools import partial
from pathlib import Path
from typing import Any

from ... import native
from ...record.check import Check
from ...record.notices import ARMED, LOADED, TRAINING_NOTICES
from ..bootstrap import LEAST_TORCH, environment, too_old
from ..sampler.procfs import read_text

GROUP = "Python and torch"
RUN_WITH = "2.15"
"""The torch that the hooks were last run with, see docs/libraries.md."""
SECONDS = 120.0
"""A first import of torch from a cold network disk takes a minute."""
_MARK = "whyidle-doctor:"
RECORDING = 'In the training: from whyidle.capture.recording import recording; with recording("runs/mine"): …'
OTHER_PYTHON = (
    "Name the Python that has torch (whyidle run -- /path/to/python train.py), or install torch into this one."
)
UPDATE = "Update torch."
WITHOUT_TORCH = (
    "Trainings in this environment, and the studies (compare, data, tune SCENARIO). A command with its own Python "
    "uses that one's torch; `attach` and commands that read recordings need none."
)
LIBRARIES = (
    ("torchvision", "torchvision", "The studies: compare, data, and tune SCENARIO.", "studies"),
    ("Pillow", "pillow", "The studies: compare, data, and tune SCENARIO.", "studies"),
    ("SPDL", "spdl-core", "The `threads` loader of `compare`.", "studies"),
    ("simplejpeg", "simplejpeg", "The `fused` loaders of `compare`; rooflines use Pillow's decoding.", "fused"),
    ("OpenCV", "opencv-python*", "The `fused` loaders of `compare`; rooflines use Pillow's resizing.", "fused"),
    ("DALI", "nvidia-dali-cuda*", "The `dali-cpu` and `dali-gpu` loaders of `compare`.", "dali"),
    ("pyarrow", "pyarrow", "`report --format parquet`.", "parquet"),
    ("matplotlib", "matplotlib", "Pictures (`--plot`).", "plot"),
    ("lmdb", "lmdb", "Scenarios that store samples in LMDB.", "studies"),
)
"""Name, package as installed (where it ends in `*` the begin of it), what is lost without it, our extra with it."""
_ASK = """
import json, sys
said = {"sitecustomize": getattr(sys.modules.get("sitecustomize"), "__file__", None)}
try:
    import torch
    said["torch"] = torch.__version__
    said["cuda"], said["hip"] = torch.version.cuda, torch.version.hip
    said["available"] = torch.cuda.is_available()
    said["gpus"] = torch.cuda.device_count() if said["available"] else 0
    if said["cuda"] and not said["available"]:
        try:
            torch.cuda.init()
        except Exception as error:
            said["refused"] = str(error)
except ModuleNotFoundError as error:
    said["no_torch"] = "" if error.name == "torch" else f"{type(error).__name__}: {error}"
except Exception as error:
    said["no_torch"] = f"{type(error).__name__}: {error}"
print("whyidle-doctor:" + json.dumps(said))
"""


def python(gpus: float | str | None) -> list[Check]:
    """Check a Python started as `whyidle run` starts one. Takes as long as importing torch.

    Args:
        gpus: how many the driver shows; `None` without a driver.
    """
    with tempfile.TemporaryDirectory(prefix="st-") as folder:
        said, why = _ask(Path(folder))
        loaded, armed = ((Path(folder) / name).exists() for name in (LOADED, ARMED))
        noticed = read_text(Path(folder) / TRAINING_NOTICES).strip()
    if said is None:
        lost = "Whether a training can be recorded here."
        return [Check(GROUP, "Python", "missing", f"A Python started for this check failed: {why}.", lost)]
    return [_hooks(said, loaded, armed, noticed), _torch(said), _cuda(said, gpus)]


def _ask(folder: Path) -> tuple[dict[str, Any] | None, str]:
    try:
        done = subprocess.run(
            [sys.executable, "-c", _ASK],
            env=environment(folder, os.environ, {}),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=SECONDS,
        )
    except subprocess.TimeoutExpired:
        return None, f"no answer within {SECONDS:.0f} s"
    except OSError as error:
        return None, str(error.strerror)
    for line in done.stdout.splitlines():
        if line.startswith(_MARK):
            return json.loads(line.removeprefix(_MARK)), ""
    last = (done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[-1]
    return None, last[:200]


def _hooks(said: dict[str, Any], loaded: bool, armed: bool, noticed: str) -> Check:
    theirs, version = said.get("sitecustomize"), sys.version.split()[0]
    values = {
        "loaded": "yes" if loaded else "no",
        "armed": "yes" if armed else "no",
        "python": version,
        "executable": sys.executable,
        "sitecustomize": theirs,
        "in_c": "no" if native.extension is None else "yes",
    }
    found = partial(Check, GROUP, "Hooks (whyidle run)", values=values)
    lost = "`whyidle run` records no steps, only host and accelerator."
    if not loaded:
        fix = "Remove what makes it ignore PYTHONPATH: a wrapper with -I, -E or -S, say (PYTHONSAFEPATH is harmless)."
        return found("missing", "Python did not read our sitecustomize.", lost, fix)
    if "no_torch" in said:
        says = "Python reads our sitecustomize, but there is no torch to hook into."
        return found("missing", says, lost, OTHER_PYTHON)
    if not armed:
        says = f"Python reads our sitecustomize, but the hooks were not set up{f': {noticed}' if noticed else '.'}"
        return found("missing", says, lost, UPDATE if too_old(str(said["torch"])) else RECORDING)
    own = theirs is not None and Path(theirs).resolve().parent != Path(environment.__code__.co_filename).parent / "site"
    in_c = "in C" if native.extension is not None else f"in Python ({native.why_not}), so they cost more"
    says = f"They load in Python {version}{f'; {theirs} runs after ours' if own else ''}. Their steady path is {in_c}."
    return found("ok", f"{says} They do not load in python -I, -E or -S.")


def _torch(said: dict[str, Any]) -> Check:
    if "no_torch" in said:
        why = said["no_torch"]
        says = f"Cannot be imported: {why}"[:200] if why else f"Not installed in this environment ({sys.prefix})."
        fix = "Install torch for this machine's CUDA: pytorch.org/get-started."
        return Check(GROUP, "torch", "missing", says, WITHOUT_TORCH, fix, {"version": None})
    version, cuda, hip = str(said["torch"]), said["cuda"], said["hip"]
    found = partial(Check, GROUP, "torch", values={"version": version, "cuda": cuda, "hip": hip})
    says = f"{version}, built {f'for CUDA {cuda}' if cuda else 'for ROCm' if hip else 'for the CPU only'}."
    if too_old(version):
        lost = f"`whyidle run` and `tune` watch no training with it: the hooks need {LEAST_TORCH} or newer."
        return found("limited", says, lost, UPDATE)
    if not version.startswith(f"{RUN_WITH}."):
        says += f" The hooks were last tested with {RUN_WITH}; one that does not fit leaves itself out, with a notice."
    return found("ok", says)


def _cuda(said: dict[str, Any], gpus: float | str | None) -> Check:
    available, count = said.get("available"), said.get("gpus")
    values = {"available": "yes" if available else "no", "gpus": count}
    found = partial(Check, GROUP, "CUDA in torch", values=values)
    if available:
        return found("ok", f"{count} usable GPU{'' if count == 1 else 's'}.")
    if not gpus or "no_torch" in said:
        return found("not applicable", "No torch to use it." if gpus else "No GPU to use.")
    lost = "Trainings on a GPU; `compare --device emulated:NAME` can emulate one."
    if not said.get("cuda"):
        says = "There is a GPU, but this torch was built without CUDA."
        return found("missing", says, lost, "Install the CUDA build: pytorch.org/get-started.")
    why = " ".join(str(said.get("refused") or "torch does not say why").split())[:200]
    fix = "Usually the driver is older than this CUDA: update it, or install a torch for an older CUDA. "
    fix += "CUDA_VISIBLE_DEVICES may also hide every GPU."
    return found("missing", f"There is a GPU, but torch cannot use it: {why}", lost, fix)


def libraries() -> list[Check]:
    """Check the libraries that more of whyidle needs, or that it hooks into."""
    checks = []
    for name, package, lost, extra in LIBRARIES:
        version = _version(package)
        found = partial(Check, "Libraries", name, values={"version": version})
        fix = f"pip install 'whyidle[{extra}]'"
        checks.append(found("missing", "Not installed.", lost, fix) if version is None else found("ok", f"{version}."))
    return checks


def _version(package: str) -> str | None:
    with contextlib.suppress(importlib.metadata.PackageNotFoundError):
        if not package.endswith("*"):
            return importlib.metadata.version(package)
        for found in importlib.metadata.distributions():
            if (found.name or "").lower().startswith(package[:-1]):
                return found.version
    return None
