"""What a trained net does on held-out data."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch

from stallscope.devices.protocol import Device
from stallscope.pipelines.assemble import make_batch
from stallscope.pipelines.order import batches
from stallscope.pipelines.protocol import Batch, Dataset, Settings

from .copying import BatchCopier

BATCH = 256


def held_out(data: Dataset, device: Device, batch_size: int = BATCH) -> Iterator[Batch]:
    """All samples in their order, on the device, the short last batch too."""
    settings = Settings(batch_size, shuffle=False, drop_last=False)
    copier = BatchCopier(device)
    for indices in batches(len(data), settings, 0):
        yield copier.deliver(make_batch(data, indices, 0, settings, worker=0))


def classified(model: Any, data: Dataset, device: Device) -> dict[str, Any]:
    """`accuracy` (share), `loss` (mean cross entropy), `samples`, and `confusion`: how many samples of each class (row)
    were taken for which (column)."""
    samples, loss = 0, 0.0
    confusion: torch.Tensor | None = None
    for batch in held_out(data, device):
        said = model(batch.inputs)
        classes = said.shape[1]
        loss += float(torch.nn.functional.cross_entropy(said, batch.targets, reduction="sum"))
        cells = torch.bincount(batch.targets * classes + said.argmax(dim=1), minlength=classes**2)
        table = cells.reshape(classes, classes).cpu()
        confusion = table if confusion is None else confusion + table
        samples += batch.samples
    assert confusion is not None
    return {
        "accuracy": float(confusion.diagonal().sum()) / samples,
        "loss": loss / samples,
        "samples": samples,
        "confusion": confusion.tolist(),
    }
