"""What the experiments of the studies train: a row for each question asked of one."""

from __future__ import annotations

from itertools import product
from typing import Any

import pytest

from whyidle.devices.profiles import load
from whyidle.errors import WhyidleError
from whyidle.scenarios.cost import nets as cost_nets
from whyidle.scenarios.registry import scenario
from whyidle.scenarios.scenario import ExperimentRequest
from whyidle.scenarios.variant import TrainingPhase, Variant

OLD, NEW = "emulated:k80", "emulated:v100"
CNNS = ("cnn1", "cnn2", "cnn3", "cnn4", "cnn5")
LOADERS = ("caffe", "naive", "workers")


def variants(study: str, name: str | None, *devices: str, cpus: int = 2, **rest: Any) -> list[Variant]:
    kind = devices[0].partition(":")[0]
    asked = ExperimentRequest(kind=kind, devices=devices, pipelines=LOADERS, cpus=cpus, **rest)
    return scenario(study).experiment(name).variants(asked)


CASES: list[tuple[str, dict[str, Any], str, object]] = [
    # SSD: as many images at every size; the same loaders under both rules; the study's machines and networks.
    (
        "ssd accuracy cpu",
        {},
        "net evaluate batch_size iterations",
        [("ssd-micro", "end", n, 96_000 // n) for n in (8, 64, 192)],
    ),
    ("ssd accuracy cuda", {"full": True}, "net batch_size", [("ssd300", 8), *product(("ssd512",), (8, 64, 192))]),
    ("ssd accuracy cpu", {"epochs": 2}, "epochs iterations", [(2, None)]),
    (
        *("ssd stop-rule emulated:v100", {}, "plan epochs iterations pipeline batch_size"),
        [
            (*rule, *cell)
            for rule in (("epochs", 4, None), ("iterations", None, 60))
            for cell in product(("caffe", "prefetch"), (8, 16))
        ],
    ),
    (
        *("ssd machines emulated:k520", {"iterations": 3}, "ranks batch_size interconnect iterations"),
        [(1, 8, None, 3), (2, 8, "ethernet-10g", 3), (5, 8, "ethernet-10g", 3)],
    ),
    (
        *("ssd machines emulated:gtx1080", {}, "ranks batch_size interconnect"),
        [(1, 8, None), (1, 32, None), (2, 8, "ethernet-1g"), (2, 32, "ethernet-1g")],
    ),
    ("ssd machines emulated:gtx1080", {"interconnects": ("9Mbit/s",), "ranks": (2,)}, "interconnect", [("9Mbit/s",)]),
    (
        *("ssd devices emulated:titanx", {"feeds": ("real",)}, "ranks batch_size workers"),
        [(n, size, max(1, 2 // n)) for n in (1, 2, 3, 4) for size in (24 // n, 16)],
    ),
    # Fashion-MNIST: nets and loaders alone once, together each time.
    (
        *("fashion-mnist floor emulated:k80 emulated:v100", {}, "device feed net augment"),
        [
            *product((OLD, NEW), ("real",), CNNS, (False, True)),
            *product((OLD, NEW), ("synthetic",), CNNS, (False,)),
            *product((OLD, NEW), ("loader-only",), ("cnn5",), (False, True)),
        ],
    ),
    (
        *("fashion-mnist floor emulated:k80", {"full": True}, "pipeline workers batch_size epochs iterations"),
        [("workers", 1, 512, 2, None)],
    ),
    ("fashion-mnist floor cpu", {}, "net batch_size", [("cnn1", 64), ("cnn2", 64)]),
    (
        "fashion-mnist floor emulated:k80",
        {"nets": ("mlp",), "pipelines_asked": True, "workers": 3, "augment": False}
        | {"batch_sizes": (32,), "iterations": 50, "feeds": ("real",)},
        "net workers augment batch_size iterations pipeline",
        [("mlp", 3, False, 32, 50, loader) for loader in LOADERS],
    ),
    (
        *("fashion-mnist plan cpu", {}, "net evaluate plan"),
        [("cnn1", "end", f"quick: 2+2 epochs as written, {n} augmented") for n in (0, 2, 4)],
    ),
    # Convnets: the net alone once, all else for each store; devices share the processors; the benchmark has no loader.
    (
        *("convnets differential cpu", {}, "net feed store"),
        [("cifar10", *each) for each in (*product(("loader-only", "real"), ("files", "lmdb")), ("synthetic", "files"))],
    ),
    (
        *("convnets scaling emulated:p100", {"interconnects": ("nvlink",)}, "batch_size ranks workers interconnect"),
        [(size, *each) for size in (32, 128, 512) for each in ((1, 2, None), (2, 1, "nvlink"))],
    ),
    (
        *("convnets scaling emulated:p100", {"full": True}, "net ranks"),
        [*product(("alexnet", "googlenet", "resnet50"), (1, 2, 4, 8))],
    ),
    (
        *("convnets placement emulated:p100", {}, "pipeline store feed"),
        [
            *product(("naive", "workers"), ("files",), ("real",)),
            *product(("prefetch",), ("lmdb",), ("real", "synthetic")),
        ],
    ),
    (
        *("convnets forward emulated:p100", {}, "net feed batch_size"),
        [("alexnet-forward", "synthetic", 128), ("alexnet-forward-backward", "synthetic", 128)],
    ),
    (
        "convnets differential emulated:p100",
        {"nets": ("alexnet",), "feeds": ("real",), "stores": ("files",), "batch_sizes": (4,), "iterations": 3},
        *("net batch_size iterations workers", [("alexnet", 4, 3, 2)]),
    ),
    # Costs: threads are swept on a processor, devices elsewhere; accuracy is asked of nets that have some.
    ("cost threads cpu", {"cpus": 6}, "threads pipeline", [(1, "naive"), (2, "naive"), (4, "naive")]),
    (
        *("cost threads cpu", {"cpus": 32, "full": True}, "threads net epochs"),
        [(threads, *each) for threads in (8, 16, 32) for each in cost_nets.EPOCHS.items()],
    ),
    (
        *("cost accuracy cpu", {"full": True}, "net evaluate"),
        [(net, "epochs") for net in cost_nets.NETS if net not in ("lstm-text", "text-generator")],
    ),
]


@pytest.mark.parametrize(("experiment", "asked", "fields", "expected"), CASES)
def test_an_experiment_trains_what_it_asks_about(
    experiment: str, asked: dict[str, Any], fields: str, expected: list[object]
) -> None:
    cells = variants(*experiment.split(), **asked)
    assert len(set(cells)) == len(cells)
    assert {tuple(getattr(cell, field) for field in fields.split()) for cell in cells} == set(expected)


def test_the_articles_plans_of_fashion_mnist() -> None:
    cells = variants("fashion-mnist", "plan", OLD, full=True)
    first = (TrainingPhase(epochs=10, lr=1e-3), TrainingPhase(epochs=10, lr=1e-4))
    further = [(), *((TrainingPhase(epochs=n, lr=1e-4, augment=True),) for n in (25, 50))]
    assert [cell.phases for cell in cells] == [(*first, *more) for more in further]
    assert [cell.plan for cell in cells] == [f"10+10 epochs as written, {n} augmented" for n in (0, 25, 50)]
    assert {(cell.net, cell.batch_size, cell.evaluate, cell.workers) for cell in cells} == {("cnn5", 512, "epochs", 1)}
    run = variants("fashion-mnist", "plan-as-run", NEW, full=True)
    assert {phase.lr for cell in run for phase in cell.phases} == {1e-3}


def test_studies_say_their_rounds_and_limits() -> None:
    names = [each.name for each in scenario("ssd").experiments]
    assert names == ["loaders", "stop-rule", "accuracy", "machines", "devices"]
    plan, threads = scenario("fashion-mnist").experiment("plan"), scenario("cost").experiment(None)
    assert (plan.repeats, plan.limit, threads.name, threads.repeats) == (2, 4000, "threads", 1)
    assert scenario("convnets").experiment(None).name == "differential"
    assert {each.net for each in variants("cost", None, OLD)} <= set(load("k80").nets)


@pytest.mark.parametrize(
    ("study", "name", "device", "nets", "said"),
    [
        ("ssd", "accuracy", NEW, None, "--device cpu"),
        ("fashion-mnist", "floor", NEW, ("cnn6",), "no net 'cnn6'"),
        ("convnets", "placement", "cpu", None, "Add --device emulated:k40"),
        ("cost", "accuracy", "cpu", ("vgg",), "has no net 'vgg'"),
    ],
)
def test_what_cannot_be_asked_is_refused(
    study: str, name: str, device: str, nets: tuple[str, ...] | None, said: str
) -> None:
    with pytest.raises(WhyidleError, match=said):
        variants(study, name, device, nets=nets)
