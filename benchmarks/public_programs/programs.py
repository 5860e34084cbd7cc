"""Training programs that nobody of this project wrote and that packages ship, with what is known of each.

What is known was found by hand: steps and batch size from the program's own log and arguments, the verdict and its line
from an independent profile (`docs/measurements/public-programs.md`). Where a package ships a model and its data but no
program, a script of a few lines calls them.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from . import inputs

LIGHTNING = """
import lightning
from lightning.pytorch.demos import LightningTransformer, WikiText2

lightning.seed_everything(1)
model = LightningTransformer(vocab_size=WikiText2(download=False).vocab_size)
trainer = lightning.Trainer(max_epochs=1, limit_train_batches=120, accelerator="cpu", logger=False)
trainer.fit(model)
print("weights", sum(parameter.double().sum().item() for parameter in model.parameters()))
print("trained", trainer.global_step)
"""
FASTAI = """
from fastai.basics import set_seed
from fastai.test_utils import synth_learner

set_seed(1)
learner = synth_learner(n_trn=300)
learner.fit(2)
print("trained", len(learner.recorder.losses))
"""
_LOAD = {"reader": "PILReader", "converter": "$lambda image: image.convert('L')"}
_CROP = {"roi_size": [32, 32], "random_size": False}
MONAI = {
    "imports": ["$import glob", "$import torch"],
    "initialize": ["$monai.utils.set_determinism(1)"],
    "run": ["$@train#trainer.run()"],
    "network": {"_target_": "BasicUNet", "spatial_dims": 2, "in_channels": 1, "out_channels": 1, "features": [4] * 6},
    "train": {
        "preprocessing": {
            "_target_": "Compose",
            "transforms": [
                {"_target_": "LoadImaged", "keys": "image", **_LOAD},
                {"_target_": "EnsureChannelFirstd", "keys": "image"},
                {"_target_": "ScaleIntensityd", "keys": "image"},
                {"_target_": "RandGaussianSmoothd", "keys": "image", "prob": 1.0},
                {"_target_": "RandSpatialCropd", "keys": "image", **_CROP},
                {"_target_": "CopyItemsd", "keys": "image", "names": "label"},
            ],
        },
        "dataset": {
            "_target_": "Dataset",
            "data": "$[{'image': path} for path in sorted(glob.glob('photos/*.jpg'))]",
            "transform": "@train#preprocessing",
        },
        "dataloader": {"_target_": "DataLoader", "dataset": "@train#dataset", "batch_size": 2, "num_workers": 0},
        "trainer": {
            "_target_": "SupervisedTrainer",
            "max_epochs": 2,
            "device": "$torch.device('cpu')",
            "train_data_loader": "@train#dataloader",
            "network": "@network",
            "loss_function": "$torch.nn.MSELoss()",
            "optimizer": "$torch.optim.Adam(@network.parameters(), 1e-3)",
            "train_handlers": [
                {
                    "_target_": "StatsHandler",
                    "name": "train_loss",
                    "tag_name": "train_loss",
                    "output_transform": "$monai.handlers.from_engine(['loss'], first=True)",
                }
            ],
        },
    },
}


@dataclass(frozen=True)
class Program:
    """A program, how it is started, and what has to be said of it."""

    name: str
    packages: tuple[str, ...]
    """What has to be importable."""
    command: tuple[str, ...]
    """`python` is the Python that runs this."""
    make: Callable[[Path], None]
    """Makes its data in the folder that it is started in."""
    counted: Callable[[str], int]
    """Optimizer steps, by what it prints."""
    printed: re.Pattern[str]
    """What of its output has to be the same in each run: losses."""
    steps: int
    batch_size: int
    causes: frozenset[str]
    """Verdicts that are right without a GPU: on a machine of its own the first that was checked, on one whose CPUs
    others use, or where a step is short beside what the loop does, the further ones."""
    lines: re.Pattern[str] | None
    """`FILE in FUNCTION` of lines that may be named; `None`: of none."""


def last(pattern: str) -> Callable[[str], int]:
    """The number that the last match tells."""
    return lambda printed: int(([0, *re.findall(pattern, printed)])[-1])


def summed(pattern: str) -> Callable[[str], int]:
    """The numbers of all matches, summed."""
    return lambda printed: sum(map(int, re.findall(pattern, printed)))


def _script(text: str, make: Callable[[Path], None]) -> Callable[[Path], None]:
    def made(folder: Path) -> None:
        make(folder)
        (folder / "train.py").write_text(text.lstrip())

    return made


def _bundle(folder: Path) -> None:
    inputs.photographs(folder)
    (folder / "train.json").write_text(json.dumps(MONAI, indent=1))


PROGRAMS = (
    Program(
        "yolo train",
        ("ultralytics", "cv2"),
        ("yolo", "train", "model=yolov8n.yaml", "data=data.yaml", "imgsz=64", "batch=4", "epochs=4", "device=cpu")
        + ("project=out", "plots=False", "seed=1"),
        inputs.boxes,
        summed(r"\b\d/4 [^\n\r]*: 100% \S+ (\d+)/\d+"),
        re.compile(r"\b\d/4 +\S+ +([\d.]+ +[\d.]+ +[\d.]+)[^\n\r]*: 100%"),
        steps=64,
        batch_size=4,
        causes=frozenset({"input.serial", "host.boundary", "input.foreign_load"}),
        lines=re.compile(r"/ultralytics/"),
    ),
    Program(
        "trl sft",
        ("trl", "transformers", "datasets", "accelerate"),
        ("trl", "sft", "--model_name_or_path", "model", "--dataset_name", "text", "--output_dir", "out")
        + ("--per_device_train_batch_size", "2", "--gradient_accumulation_steps", "2", "--num_train_epochs", "1")
        + ("--max_length", "64", "--logging_steps", "1", "--report_to", "none", "--use_cpu", "--bf16", "false")
        + ("--save_strategy", "no", "--activation_checkpointing", "false"),
        inputs.language,
        lambda printed: len(re.findall(r"'loss': ", printed)),
        re.compile(r"'loss': '?([\d.]+)"),
        steps=60,
        batch_size=2,
        causes=frozenset({"none"}),
        lines=None,
    ),
    Program(
        "lightning demo",
        ("lightning", "torch"),
        ("python", "train.py"),
        _script(LIGHTNING, inputs.corpus),
        last(r"trained (\d+)"),
        re.compile(r"weights (\S+)"),
        steps=120,
        batch_size=1,
        causes=frozenset({"none", "host.step_gap"}),
        lines=re.compile(r"/train\.py|/lightning/"),
    ),
    Program(
        "fastai synth_learner",
        ("fastai",),
        ("python", "train.py"),
        _script(FASTAI, inputs.nothing),
        last(r"trained (\d+)"),
        re.compile(r"\[[01], (\S+, \S+), "),
        steps=600,
        batch_size=16,
        causes=frozenset({"input.serial", "input.foreign_load"}),
        lines=re.compile(r"/train\.py|/fastai/"),
    ),
    Program(
        "monai.bundle run",
        ("monai", "ignite", "fire"),
        ("python", "-m", "monai.bundle", "run", "--config_file", "train.json"),
        _bundle,
        lambda printed: len(re.findall(r"Iter: \d+/\d+ -- train_loss", printed)),
        re.compile(r"train_loss: ([\d.]+)"),
        steps=60,
        batch_size=2,
        causes=frozenset({"input.serial", "input.foreign_load"}),
        lines=re.compile(r"/monai/(transforms|data)/"),
    ),
)
