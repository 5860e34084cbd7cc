"""How batches reach the device: what the loaders' `Copier` is made of."""

from __future__ import annotations

from dataclasses import replace

from whyidle.devices.protocol import Copy, Device
from whyidle.pipelines.protocol import Batch


class _Pinned:
    """Marks a batch that lies in page-locked memory."""


PINNED = _Pinned()


class BatchCopier:
    """Copies batches to one device; `Batch.copy` holds the device's `Copy` once that has begun."""

    def __init__(self, device: Device) -> None:
        self._device = device
        self.own_memory = device.torch_device.type != "cpu"

    def pin(self, batch: Batch) -> Batch:
        inputs, targets = self._device.pin((batch.inputs, batch.targets))
        return replace(batch, inputs=inputs, targets=targets, copy=PINNED)

    def start(self, batch: Batch) -> Batch:
        return self._copy(batch, ahead=True)

    def deliver(self, batch: Batch) -> Batch:
        """The batch on the device, for computation: copied now, or the wait for a copy already begun.

        A batch that a loader made on the device is passed on as it is.
        """
        if isinstance(batch.copy, Copy):
            self._device.wait_for(batch.copy, (batch.inputs, batch.targets))
        else:
            batch = self._copy(batch, ahead=False)
        if batch.on_device is None:
            return batch
        return replace(batch, inputs=batch.on_device(batch.inputs), on_device=None)

    def _copy(self, batch: Batch, ahead: bool) -> Batch:
        there = self._device.torch_device.type
        tensors = [batch.inputs, batch.targets]
        host = [t for t in tensors if there == "cpu" or t.device.type == "cpu"]
        if not host:
            return batch
        stream = self._device.side_stream() if ahead else None
        moved, copy = self._device.copy(host, pinned=batch.copy is PINNED, stream=stream)
        arrived = iter(moved)
        inputs, targets = (next(arrived) if any(t is h for h in host) else t for t in tensors)
        return replace(batch, inputs=inputs, targets=targets, copy=copy)
