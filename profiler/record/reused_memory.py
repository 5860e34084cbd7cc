"""Memory of large arrays, kept for the next one instead of handed back to the system."""

from __future__ import annotations

import ctypes

M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3
"""Parameters of glibc's `mallopt`."""
MOST_BYTES = 32 << 20
"""Of an array that is kept: the most that glibc takes. Columns of a day's steps have 7 to 14 MB."""
KEPT_BYTES = 1 << 30


def reuse_memory() -> None:
    """For the rest of this process; does nothing where the C library is not glibc.

    Judging a long recording makes and drops hundreds of arrays. To get as much from the system each time, page by page,
    took a tenth of the time.
    """
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError, TypeError):
        return
    mallopt(M_MMAP_THRESHOLD, MOST_BYTES)
    mallopt(M_TRIM_THRESHOLD, KEPT_BYTES)
