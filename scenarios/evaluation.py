"""What a trained net does on held-out data."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch

from whyidle.devices.protocol import Device
from whyidle.pipelines.assemble import make_batch
from whyidle.pipelines.order import batches
from whyidle.pipelines.protocol import Batch, Dataset, Settings

from .copying import BatchCopier

BATCH = 256
MOST_CLASSES = 100
"""Of more, what was taken for what is not kept: a thousand classes are a million cells."""


def held_out(data: Dataset, device: Device, batch_size: int = BATCH) -> Iterator[Batch]:
    """All samples in their order, on the device, the short last batch too."""
    settings = Settings(batch_size, shuffle=False, drop_last=False)
    copier = BatchCopier(device)
    for indices in batches(len(data), settings, 0):
        yield copier.deliver(make_batch(data, indices, 0, settings, worker=0))


def classified(model: Any, data: Dataset, device: Device) -> dict[str, Any]:
    """`accuracy` (share), `loss` (mean cross entropy), `samples`, and of up to `MOST_CLASSES` classes `confusion`: how
    many samples of each class (row) were taken for which (column)."""
    samples, right, loss = 0, 0, 0.0
    confusion: torch.Tensor | None = None
    for batch in held_out(data, device):
        said = model(batch.inputs)
        classes = said.shape[1]
        loss += float(torch.nn.functional.cross_entropy(said, batch.targets, reduction="sum"))
        chosen = said.argmax(dim=1)
        right += int((chosen == batch.targets).sum())
        samples += batch.samples
        if classes <= MOST_CLASSES:
            cells = torch.bincount(batch.targets * classes + chosen, minlength=classes**2)
            table = cells.reshape(classes, classes).cpu()
            confusion = table if confusion is None else confusion + table
    told = {"accuracy": right / samples, "loss": loss / samples, "samples": samples}
    return told if confusion is None else told | {"confusion": confusion.tolist()}
