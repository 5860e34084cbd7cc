from __future__ import annotations

import pytest

from whyidle.record.memory_signs import WITHOUT_MEMORY


@pytest.mark.parametrize(
    "said",
    [
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB",
        "RuntimeError: [enforce fail at alloc_cpu.cpp:117] DefaultCPUAllocator: can't allocate memory",
        "OSError: [Errno 12] Cannot allocate memory",
        "RuntimeError: unable to mmap 4096 bytes from file </torch_1_2_3>",
        "RuntimeError: unable to write to file </torch_7_8_9>: No space left on device (28)",
        "RuntimeError: DataLoader worker (pid 5) is killed by signal: Bus error. It is possible ...",
        "ValueError: no more (worker 5 was ended by signal: Killed)",
        "RuntimeError: CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`",
    ],
)
def test_what_lacked_memory_is_known_by_what_it_says(said: str) -> None:
    assert WITHOUT_MEMORY.search(said)


@pytest.mark.parametrize(
    "said", ["OSError: [Errno 28] No space left on device: 'log.txt'", "RuntimeError: shape mismatch"]
)
def test_a_full_disk_is_no_want_of_memory(said: str) -> None:
    assert not WITHOUT_MEMORY.search(said)
