"""What is said when there is no memory: of the device, of the machine, or of /dev/shm."""

from __future__ import annotations

import re

WITHOUT_MEMORY = re.compile(
    r"out of memory|OutOfMemory|MemoryError|DefaultCPUAllocator|can(?:no|')t allocate memory|_ALLOC_FAILED"
    r"|unable to mmap|unable to allocate shared memory|(?:out of|insufficient) shared memory"
    r"|torch_\S*>: No space left on device|bus error|sigbus|sigkill|signal: killed",
    re.IGNORECASE,
)
"""Of a message, or of a line that a program printed: by torch, its libraries, Python or the kernel. That a disk is full
is none of them."""
