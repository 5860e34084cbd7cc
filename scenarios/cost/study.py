"""What a training costs on more or fewer CPU threads, or on an accelerator: the six nets of the article and the seventh
of its repository, as the study trained them (`nets.py`), and its bidirectional LSTM once more in one call.

Batches are slices of arrays in memory, made in the training itself, as Keras made them; `--pipelines` takes others.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from whyidle.devices.protocol import Device
from whyidle.pipelines.protocol import Batch

from ..evaluation import classified
from ..scenario import DataRequest, Experiment, ExperimentRequest, Scenario, ScenarioData
from ..variant import Variant, grid
from . import data as cost_data
from . import nets as cost_nets

QUICK_NETS = ("mnist-mlp", "mnist-cnn", "imdb-bilstm", "imdb-bilstm-unfused", "lstm-text")
"""Those of which a step takes less than a second on two CPUs."""
EMULATED_NETS = ("mnist-mlp", "mnist-cnn", "cifar10-cnn")
"""Those whose times on a GPU, as published, say what one step takes."""
QUICK_ITERATIONS = 50
QUICK_EPOCHS = 4
QUICK_LEARNERS = ("mnist-mlp", "mnist-cnn")
STUDY_THREADS = (8, 16, 32, 64)


class Cost(Scenario):
    name = "cost"
    study = "Max Woolf, 2017: seven Keras nets on cloud CPUs and on a cloud GPU"
    question = "Which machine trains a net for the least money, and how much of that pays for waiting?"
    nets = cost_nets.NETS
    cpu_nets = cost_nets.NETS
    data = (
        "folder with mnist/ (IDX), cifar10/ (binary version), imdb/ (aclImdb) and text/*.txt, or a FILE.txt for text; "
        "`whyidle data cost --out DIR` downloads it. Without --data, stand-ins are made in memory"
    )
    batch_sizes = (32, 128)
    stores = ("memory",)

    @property
    def experiments(self) -> tuple[Experiment, ...]:
        return (
            Experiment("threads", "What does an epoch cost on more threads, or another device?", self._threads, 1),
            Experiment("accuracy", "What does it cost to train a net to an accuracy?", self._accuracy, 1, limit=6000),
            self.loaders(),
        )

    def find_data(self, net: str, say: Callable[[str], None]) -> Path:
        """Where published sets may lie; for those that do not, `open_data` makes stand-ins."""
        if cost_data.is_stand_in(net):
            say(f"No --data: {net} trains on a stand-in for {cost_data.folder_name(net)}, made in memory")
        return cost_data.stand_in_folder()

    def open_data(self, request: DataRequest) -> ScenarioData:
        return cost_data.opened(request)

    def make_data(self, folder: Path, samples: int, seed: int, progress: Callable[[int, int], None]) -> None:
        cost_data.download(folder, progress)

    def build(self, net: str, data: Any) -> torch.nn.Module:
        return cost_nets.build(net, data.describe().get("symbols", 0))

    def loss(self, model: Any, batch: Batch) -> torch.Tensor:
        return cost_nets.loss(model(batch.inputs), batch.targets)

    def optimizer(self, model: torch.nn.Module, net: str, batch_size: int) -> torch.optim.Optimizer:
        return cost_nets.optimizer(model, net)

    def evaluate(self, model: Any, net: str, data: Any, device: Device) -> dict[str, Any]:
        return classified(lambda inputs: cost_nets.classes(model(inputs)), data, device)

    def _threads(self, asked: ExperimentRequest) -> list[Variant]:
        default = EMULATED_NETS if asked.kind == "emulated" else self.nets if asked.full else QUICK_NETS
        nets = self.nets_for(asked.kind, asked.nets) if asked.nets else default
        stop = {"iterations": asked.iterations or (None if asked.epochs or asked.full else QUICK_ITERATIONS)}
        return self._each(asked, nets, stop, self._counts(asked))

    def _accuracy(self, asked: ExperimentRequest) -> list[Variant]:
        learners = tuple(net for net in self.nets if cost_data.folder_name(net) != "text")
        nets = self.nets_for(asked.kind, asked.nets) if asked.nets else learners if asked.full else QUICK_LEARNERS
        made = self._each(asked, nets, {"iterations": asked.iterations}, asked.threads or (None,))
        return [replace(each, evaluate="epochs") for each in made]

    def _each(
        self, asked: ExperimentRequest, nets: Sequence[str], stop: dict[str, int | None], threads: Sequence[int | None]
    ) -> list[Variant]:
        """Every net at the study's batch size, or the asked ones, on each device and number of threads."""
        made = []
        for net in nets:
            epochs = asked.epochs or (cost_nets.EPOCHS[net] if asked.full else QUICK_EPOCHS)
            base = Variant(
                net=net,
                pipeline="naive",
                batch_size=cost_nets.BATCH_SIZES.get(net, 32),
                store=self.stores[0],
                augment=asked.augment is not False,
                workers=asked.workers or (asked.cpus if asked.pipelines_asked else 0),
                epochs=None if stop["iterations"] else epochs,
                iterations=stop["iterations"],
            )
            made += grid(
                base,
                device=asked.devices,
                threads=threads,
                feed=asked.feeds or ("real",),
                pipeline=asked.pipelines if asked.pipelines_asked else ("naive",),
                batch_size=asked.batch_sizes or (base.batch_size,),
            )
        return made

    def _counts(self, asked: ExperimentRequest) -> Sequence[int | None]:
        """Of threads: the study's where there are so many CPUs, else powers of two; of no matter on an accelerator."""
        if asked.threads or asked.kind != "cpu":
            return asked.threads or (None,)
        study = [count for count in STUDY_THREADS if count <= asked.cpus]
        return study if asked.full and study else [2**n for n in range(asked.cpus.bit_length())]


SCENARIO = Cost()
