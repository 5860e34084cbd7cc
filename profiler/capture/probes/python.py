"""A Python started as `whyidle run` starts one: whether our hooks get into it, and what its torch can do."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from ... import native
from ...record.check import Check
from ...record.notices import ARMED, LOADED, TRAINING_NOTICES
from ..bootstrap import LEAST_TORCH, environment, too_old

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
_ASK = """
import json, multiprocessing, sys
said = {"sitecustomize": getattr(sys.modules.get("sitecustomize"), "__file__", None)}
said["start_method"] = multiprocessing.get_start_method()
try:
    import torch
    said["torch"] = torch.__version__
    said["cuda"], said["hip"] = torch.version.cuda, torch.version.hip
    said["sharing"] = torch.multiprocessing.get_sharing_strategy()
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
    """`gpus`: how many the driver shows; `None` without a driver. Takes as long as importing torch."""
    with tempfile.TemporaryDirectory(prefix="st-") as folder:
        said, why = _ask(Path(folder))
        loaded, armed = (Path(folder) / LOADED).exists(), (Path(folder) / ARMED).exists()
        notices = Path(folder) / TRAINING_NOTICES
        noticed = notices.read_text(errors="replace").strip() if notices.exists() else ""
    if said is None:
        lost = "Whether a training can be recorded here."
        return [Check(GROUP, "Python", "missing", f"A Python started for this check failed: {why}.", lost)]
    return [_hooks(said, loaded, armed, noticed), _torch(said), _cuda(said, gpus), _workers(said)]


def _ask(folder: Path) -> tuple[dict[str, Any] | None, str]:
    settings = environment(folder, os.environ, {})
    try:
        done = subprocess.run(
            [sys.executable, "-c", _ASK],
            env=settings,
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
    name = "Hooks (whyidle run)"
    theirs = said.get("sitecustomize")
    values: dict[str, float | str | None] = {
        "loaded": "yes" if loaded else "no",
        "armed": "yes" if armed else "no",
        "python": sys.version.split()[0],
        "executable": sys.executable,
        "sitecustomize": theirs,
        "in_c": "no" if native.extension is None else "yes",
    }
    lost = "`whyidle run` records no steps, only host and accelerator."
    if not loaded:
        says = "Python did not read our sitecustomize."
        fix = "Remove what makes it ignore PYTHONPATH: a wrapper with -I, -E or -S, say (PYTHONSAFEPATH is harmless)."
        return Check(GROUP, name, "missing", says, lost, fix, values)
    if "no_torch" in said:
        says = "Python reads our sitecustomize, but there is no torch to hook into."
        return Check(GROUP, name, "missing", says, lost, OTHER_PYTHON, values)
    if not armed:
        says = f"Python reads our sitecustomize, but the hooks were not set up{f': {noticed}' if noticed else '.'}"
        fix = UPDATE if too_old(str(said["torch"])) else RECORDING
        return Check(GROUP, name, "missing", says, lost, fix, values)
    own = theirs is not None and Path(theirs).resolve().parent != Path(environment.__code__.co_filename).parent / "site"
    says = f"They load in Python {values['python']}" + (f"; {theirs} runs after ours." if own else ".")
    in_c = "in C" if native.extension is not None else f"in Python ({native.why_not}), so they cost more"
    says += f" Their steady path is {in_c}. They do not load in python -I, -E or -S."
    return Check(GROUP, name, "ok", says, values=values)


def _torch(said: dict[str, Any]) -> Check:
    if "no_torch" in said:
        why = said["no_torch"]
        says = f"Cannot be imported: {why}"[:200] if why else f"Not installed in this environment ({sys.prefix})."
        fix = "Install torch for this machine's CUDA: pytorch.org/get-started."
        return Check(GROUP, "torch", "missing", says, WITHOUT_TORCH, fix, {"version": None})
    version = str(said["torch"])
    values: dict[str, float | str | None] = {"version": version, "cuda": said["cuda"], "hip": said["hip"]}
    built = f"for CUDA {said['cuda']}" if said["cuda"] else "for ROCm" if said["hip"] else "for the CPU only"
    says = f"{version}, built {built}."
    if too_old(version):
        lost = f"`whyidle run` and `tune` watch no training with it: the hooks need {LEAST_TORCH} or newer."
        return Check(GROUP, "torch", "limited", says, lost, UPDATE, values)
    if not version.startswith(f"{RUN_WITH}."):
        says += f" The hooks were last tested with {RUN_WITH}; one that does not fit leaves itself out, with a notice."
    return Check(GROUP, "torch", "ok", says, values=values)


def _cuda(said: dict[str, Any], gpus: float | str | None) -> Check:
    name = "CUDA in torch"
    built, count = said.get("cuda"), said.get("gpus")
    values: dict[str, float | str | None] = {"available": "yes" if said.get("available") else "no", "gpus": count}
    if said.get("available"):
        says = f"{count} usable GPU{'' if count == 1 else 's'}."
        return Check(GROUP, name, "ok", says, values=values)
    lost = "Trainings on a GPU; `compare --device emulated:NAME` can emulate one."
    if not gpus or "no_torch" in said:
        why = "No torch to use it." if gpus else "No GPU to use."
        return Check(GROUP, name, "not applicable", why, values=values)
    if not built:
        says = "There is a GPU, but this torch was built without CUDA."
        return Check(GROUP, name, "missing", says, lost, "Install the CUDA build: pytorch.org/get-started.", values)
    why = " ".join(str(said.get("refused") or "torch does not say why").split())[:200]
    fix = "Usually the driver is older than this CUDA: update it, or install a torch for an older CUDA. "
    fix += "CUDA_VISIBLE_DEVICES may also hide every GPU."
    return Check(GROUP, name, "missing", f"There is a GPU, but torch cannot use it: {why}", lost, fix, values)


def _workers(said: dict[str, Any]) -> Check:
    method = said["start_method"]
    values: dict[str, float | str | None] = {"start_method": method, "sharing_strategy": said.get("sharing")}
    says = f"Started by {method}" + (f", share memory by {said['sharing']}." if said.get("sharing") else ".")
    return Check(GROUP, "Workers", "ok", says, values=values)
