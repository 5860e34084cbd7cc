"""The hook on waits of one stream for another."""

from __future__ import annotations

from collections.abc import Callable
from threading import get_ident
from typing import Any

import torch
from torch.compiler import is_dynamo_compiling

from ..steps import StepRecorder
from .loop import Loop
from .streams import Streams
from .switch import Patches, Switch


class StreamWaitHook:
    """Sees the computing stream being told to wait for another one: for a batch that was copied ahead, say."""

    def __init__(self, loop: Loop, steps: StepRecorder, switch: Switch, streams: Streams) -> None:
        self._loop = loop
        self._steps = steps
        self.switch = switch
        self._streams = streams
        self._patches = Patches()

    def install(self) -> None:
        self._patches.replace(torch.cuda.Stream, "wait_event", self._wrap, None, None)

    def remove(self) -> None:
        self._patches.put_back()

    def _wrap(self, original: Callable[..., Any]) -> Callable[..., Any]:
        loop, steps = self._loop, self._steps

        def wait_event(self_: Any, *args: Any, **kwargs: Any) -> Any:
            if is_dynamo_compiling() or not loop.inside or not steps.recording or not self._begins(self_):
                return original(self_, *args, **kwargs)
            try:
                return original(self_, *args, **kwargs)
            finally:
                self._ends()

        return wait_event

    def _begins(self, stream: Any) -> bool:
        loop = self._loop
        if not self.switch.on or get_ident() != loop.thread:
            return False
        try:
            if not self._streams.is_computing(stream.cuda_stream) or (loop.capturing is not None and loop.capturing()):
                return False
            self._steps.stream_wait_begin()
            return True
        except Exception as error:
            self.switch.fail(error)
            return False

    def _ends(self) -> None:
        try:
            self._steps.stream_wait_end()
        except Exception as error:
            self.switch.fail(error)
