"""The hook on waits of one stream for another."""

from __future__ import annotations

from typing import Any

import torch

from ..steps import StepRecorder
from .loop import Loop
from .streams import Streams
from .switch import Switch
from .wrap import Wraps


class StreamWaitHook:
    """Sees the computing stream being told to wait for another one: for a batch that was copied ahead, say."""

    def __init__(self, loop: Loop, steps: StepRecorder, switch: Switch, streams: Streams) -> None:
        self._loop = loop
        self._steps = steps
        self.switch = switch
        self._streams = streams
        self._wraps = Wraps(switch, loop.in_step)

    def install(self) -> None:
        # Which `Stream.wait_event` and `wait_stream` call as well.
        self._wraps.around(torch.cuda.Event, "wait", self._begins, self._ends, None)

    def remove(self) -> None:
        self._wraps.put_back()

    def _begins(self, _event: Any, stream: Any = None) -> bool | None:
        waits = None if stream is None else stream.cuda_stream
        if not self._streams.is_computing(waits) or self._loop.captures():
            return None
        self._steps.stream_wait_begin()
        return True

    def _ends(self, _began: bool, _returned: Any) -> None:
        self._steps.stream_wait_end()
