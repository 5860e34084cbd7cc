"""DALI on the GPU, where its wheel is given: it is a large one."""

from __future__ import annotations

import importlib.util
import sys

from ..checks import NotMeasured, Seen, Stage
from ..rig import ROOT, Rig
from . import compare

stage = Stage("dali", "NVIDIA DALI", 260)


@stage.check("what it decodes and augments on the GPU is what others make on the processor")
def dali_makes_the_same_batches(rig: Rig) -> Seen:
    _needs_dali(rig)
    test = str(ROOT / "tests" / "unit" / "pipelines" / "test_loaders_dali.py")
    done = rig.command([sys.executable, "-m", "pytest", "-q", "-m", "gpu", "-p", "no:cacheprovider", test])
    return Seen(done.code == 0, done.out.strip().splitlines()[-1] if done.out.strip() else done.last)


@stage.check("dali-gpu trains at batch 8 and 16, with parts of its time and a verdict")
def compare_ssd_with_dali(rig: Rig) -> Seen:
    _needs_dali(rig)
    return compare.judged(*compare.compared(rig, "dali-gpu", "8,16"), 2)


def _needs_dali(rig: Rig) -> None:
    rig.needs("DALI")
    try:
        there = importlib.util.find_spec("nvidia.dali") is not None
    except ModuleNotFoundError:  # nothing of NVIDIA's is
        there = False
    if not there:
        raise NotMeasured("DALI is not installed: no wheel of it was given")
