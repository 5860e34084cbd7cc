"""SSD on Pascal VOC: the study in which a larger batch made Caffe's training longer.

Nets: `ssd300` and `ssd512` as in the paper, and `ssd-mini`, which trains on a processor. Augmentation, loss and
SGD settings are the study's. Stop by epochs (every batch size sees the same images) or by iterations (a larger
batch sees more: Caffe's rule, and one reading of the study's riddle).
"""

from __future__ import annotations

from pathlib import Path

import torch

from stallscope.devices.emulated import EmulatedDevice
from stallscope.devices.profiles import Accelerator
from stallscope.devices.protocol import Device
from stallscope.errors import StallscopeError
from stallscope.pipelines.protocol import Batch
from stallscope.pipelines.stages import plain_stages, ssd_stages

from .ssd_loss import multibox_loss
from .ssd_net import SsdNet, build, image_size, sgd
from .training import EmulatedTraining, TorchTraining, Training
from .voc.read import VocDataset


def open_data(folder: Path, net: str, augment: bool, limit: int | None = None) -> VocDataset:
    """The images for a net, with the stages that prepare them.

    Raises:
        DataError: no usable data there.
    """
    size = image_size(net)
    stages = ssd_stages(size) if augment else plain_stages(size)
    return VocDataset.open(folder, stages=stages, limit=limit)


def training(net: str, device: Device, batch_size: int, dataset: VocDataset) -> Training:
    """The training of a net on a device.

    Raises:
        DeviceOutOfMemory: an emulated device has too little memory for the batch.
        StallscopeError: an emulated device has no step time for this net.
    """
    if isinstance(device, EmulatedDevice):
        return EmulatedTraining(device, step_time(device, net), net, batch_size)
    model = build(net, dataset.classes + 1).to(device.torch_device)
    return TorchTraining(model, _loss, sgd(model, batch_size))


def step_time(device: Device, net: str) -> Accelerator:
    """The profile an emulated device takes a net's step times from.

    Raises:
        StallscopeError: it has none for this net.
    """
    if not isinstance(device, EmulatedDevice) or device.profile is None:
        raise StallscopeError(f"{device.title} has no profile to take step times from.")
    device.profile.net(net)
    return device.profile


def _loss(model: SsdNet, batch: Batch) -> torch.Tensor:
    locations, confidences = model(batch.images)
    return multibox_loss(locations, confidences, batch.targets, model.priors).total
