"""A strict stand-in for torch.cuda: whole programs run on it with the project's real hooks, devices and recording.

Everything above `torch._C._cuda_*` is torch itself: its Python, its dispatcher, its autograd and optimizers, on small
tensors in ordinary memory that say they are on a device. Below that is a machine on a virtual clock (`machine.py`)
whose devices work in queues (`gpu.py`), and which keeps CUDA's rules: what CUDA refuses it refuses, in torch's words.
What it does not play raises `NotPlayed` rather than pretend. No test that uses it waits.

Each rule is a method or property whose docstring says it in one sentence, with where it comes from; "docs" there is
the CUDA runtime's `cuda_runtime_api.h` and `driver_types.h` of CUDA 13.2, "guide" the CUDA programming guide, other
names are files of torch 2.15. Where no source settles what a device does, `GpuSpec` has a switch that plays either
answer.
"""

from .clock import MS, US, S
from .gpu import GpuSpec
from .install import installed
from .machine import Machine
from .refusals import NotPlayed

__all__ = ["MS", "US", "GpuSpec", "Machine", "NotPlayed", "S", "installed"]
