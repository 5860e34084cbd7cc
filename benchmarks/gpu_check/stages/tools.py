"""What the machine's tools and its driver tell, and whether ours tell the same."""

from __future__ import annotations

import json
import re
import shutil
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np

from whyidle.record.run import open_run
from whyidle.record.schema import DEVICE

from ..checks import NotMeasured, Seen, Stage
from ..rig import Rig

stage = Stage("tools", "Tools and driver", 80)
NEAR_POINTS = 15.0


@stage.check("it ends with exit code 0")
def nvidia_smi_runs(rig: Rig) -> Seen:
    done = rig.command([_smi(rig)])
    driver = re.search(r"Driver Version: *([\d.]+)", done.out)
    return Seen(done.code == 0, f"driver {driver.group(1) if driver else 'unknown'}, exit code {done.code}")


@stage.check("torch sees a CUDA device and computes on it")
def torch_computes_on_the_GPU(_rig: Rig) -> Seen:  # noqa: N802
    import torch

    total = torch.ones(64, 64, device="cuda").sum().item()
    names = [torch.cuda.get_device_properties(index).name for index in range(torch.cuda.device_count())]
    return Seen(total == 4096, f"torch {torch.__version__} for CUDA {torch.version.cuda}: {', '.join(names)}")


@stage.check("it ends with exit code 0 and finds the driver and a GPU")
def whyidle_doctor(rig: Rig) -> Seen:
    done = rig.command([sys.executable, "-m", "whyidle", "doctor", "--json"])
    checks = json.loads(done.out)["checks"]
    driver = next(check["status"] for check in checks if check["name"] == "NVIDIA driver")
    gpus = [check for check in checks if check["name"].startswith("GPU ")]
    limited = [f"{check['name']}: {check['says']}" for check in checks if check["status"] in ("limited", "missing")]
    text = f"driver {driver}, {len(gpus)} rows of GPUs; not all there: {'; '.join(limited) or 'nothing'}"
    return Seen(done.code == 0 and driver == "ok" and bool(gpus), text, {"checks": checks})


@stage.check(f"of a GPU that is busy half of the time, means are within {NEAR_POINTS:.0f} points of nvidia-smi's")
def utilisation_beside_nvidia_smi(rig: Rig) -> Seen:
    return _beside(rig, "utilisation_pct", 0, lambda line: line.strip())


@stage.check(f"the sampler's mean is within {NEAR_POINTS:.0f} points of that of nvidia-smi dmon")
def multiprocessors_beside_nvidia_smi(rig: Rig) -> Seen:
    return _beside(rig, "sm_active_pct", 1, lambda line: "" if line.startswith("#") else line.split()[-1])


def _beside(rig: Rig, field: str, which: int, number: Callable[[str], str]) -> Seen:
    if "busy" not in rig.kept:
        rig.kept["busy"] = _busy(rig)
    rows, told = rig.kept["busy"]
    values = rows[field][rows["device"] == 0].astype(float)
    ours = values[(values >= 0) & np.isfinite(values)]
    theirs = _numbers(told[which], number)
    # Both also saw the program start.
    ours, theirs = ours[ours > 0], theirs[theirs > 0]
    if not len(ours) or not len(theirs):
        return Seen(None, f"{len(ours)} samples of ours, {len(theirs)} of nvidia-smi's")
    text = f"{ours.mean():.0f} % in {len(ours)} samples, nvidia-smi {theirs.mean():.0f} % in {len(theirs)}"
    figures = {"ours": ours.tolist(), "nvidia_smi": theirs.tolist()}
    return Seen(abs(ours.mean() - theirs.mean()) <= NEAR_POINTS, text, figures)


def _busy(rig: Rig) -> tuple[np.ndarray, tuple[Path, Path]]:
    """Samples of a GPU that is kept busy for a while, and what nvidia-smi said of it meanwhile in two ways."""
    smi = _smi(rig)
    rates = [smi, "--query-gpu=utilization.gpu", "--format=csv,noheader,nounits", "-i", "0", "-lms", "200"]
    gpm = [smi, "dmon", "-i", "0", "--gpm-metrics", "2", "-d", "1"]
    with rig.beside(rates) as rates_out, rig.beside(gpm) as gpm_out:
        recording = rig.run(rig.program("busy", "2" if rig.played else "14"))
    if recording.done.code:
        raise RuntimeError(f"exit code {recording.done.code}: {recording.done.last}")
    return open_run(recording.folder).records(DEVICE), (rates_out, gpm_out)


def _numbers(out: Path, number: Callable[[str], str]) -> np.ndarray:
    found = [number(line) for line in out.read_text().splitlines() if line.strip()]
    return np.array([float(each) for each in found if re.fullmatch(r"[\d.]+", each)])


def _smi(rig: Rig) -> str:
    found = shutil.which("nvidia-smi", path=rig.environment.get("PATH"))
    if found is None:
        raise NotMeasured("there is no nvidia-smi")
    return found
