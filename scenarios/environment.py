"""What a run was made with, beyond what every recording says: the versions that studies compare."""

from __future__ import annotations

import os
from typing import Any

import numpy
import torch
import torchvision

from whyidle.devices.protocol import Device

THREADS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS")


def environment(device: Device) -> dict[str, Any]:
    """Versions of what computes and loads; those of CUDA and cuDNN where torch was built with them."""
    cuda = device.kind == "cuda"
    return {
        "torchvision": torchvision.__version__,
        "numpy": numpy.__version__,
        "cuda": torch.version.cuda,
        "cudnn": torch.backends.cudnn.version() if cuda else None,  # type: ignore[no-untyped-call]
        "gpu": torch.cuda.get_device_name(device.torch_device) if cuda else None,
        "threads": torch.get_num_threads(),
        "threads_asked": {
            name: os.environ[name] for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS") if name in os.environ
        },
    }
