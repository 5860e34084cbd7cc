"""A strict stand-in for torch.cuda: whole programs run on it with the project's real hooks, devices and recording.

Everything above `torch._C._cuda_*` is torch itself: its Python, its dispatcher, its autograd and optimizers, on small
tensors in ordinary memory that say they are on a device. Below that is a machine on a virtual clock (`machine.py`)
whose devices work in queues, and which keeps CUDA's rules for events, streams, copies to and from the host, memory and
the replay of simple graphs: what CUDA refuses it refuses, in torch's words. What it does not play raises `NotPlayed`.
Where docstrings give a rule's source, "docs" is the CUDA runtime's headers of CUDA 13.2, "guide" the CUDA programming
guide, other names are files of torch 2.15.
"""

from .clock import MS, US, S
from .install import installed
from .machine import GpuSpec, Machine, NotPlayed

__all__ = ["MS", "US", "GpuSpec", "Machine", "NotPlayed", "S", "installed"]
