"""How the stand-in refuses: in torch's own exceptions and words, and in one of its own for what it does not play."""

from __future__ import annotations

from typing import Any, NoReturn

import torch

ASSERTED = "device-side assert triggered"
ILLEGAL_ADDRESS = "an illegal memory access was encountered"
CAPTURING = "operation not permitted when stream is capturing"
CAPTURED_EVENT = "operation not permitted on an event last recorded in a capturing stream"
INVALIDATED = "operation failed due to a previous error during capture"
UNJOINED = "capturing stream has unjoined work"
ISOLATED = "dependency created on uncaptured work in another stream"
BUSY = "CUDA-capable device(s) is/are busy or unavailable"
NO_MEMORY = "out of memory"
NOT_READY = "device not ready"
INVALID_HANDLE = "invalid resource handle"
INVALID_VALUE = "invalid argument"


class NotPlayed(BaseException):
    """The program under test used something of torch.cuda that the stand-in has no rule for.

    No `Exception`: neither the program nor a hook shall take it for an error of CUDA's and go on.
    """


def cuda_error(what: str) -> torch.AcceleratorError:
    return torch.AcceleratorError(
        f"CUDA error: {what}\nCUDA kernel errors might be asynchronously reported at some other API call, so the "
        "stacktrace below might be incorrect."
    )


def not_played(name: str) -> NoReturn:
    raise NotPlayed(f"the stand-in does not play {name}")


def refusing(name: str) -> Any:
    """A function in the place of one that is not played."""

    def refused(*_args: Any, **_kwargs: Any) -> NoReturn:
        not_played(name)

    return refused
