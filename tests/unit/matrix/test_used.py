"""What the command names is used, or refused before the first run."""

from __future__ import annotations

from typing import Any

import pytest

from whyidle.errors import WhyidleError
from whyidle.matrix.used import require_used
from whyidle.scenarios.registry import NAMES, scenario
from whyidle.scenarios.scenario import ExperimentRequest
from whyidle.scenarios.variant import plain


def checked(name: str, experiment: str, kind: str = "emulated", **named: Any) -> set[Any]:
    """The variants, if all that was named is used."""
    devices = {"emulated": ("emulated:v100",), "cpu": ("cpu",)}[kind]
    given: dict[str, Any] = {"devices": devices, "pipelines": ("naive", "workers"), "cpus": 2} | named
    asked = ExperimentRequest(kind=kind, **given)
    chosen = scenario(name).experiment(experiment)
    variants = list(dict.fromkeys(plain(each) for each in chosen.variants(asked)))
    require_used(asked, variants, chosen.name, name)
    return set(variants)


@pytest.mark.parametrize("name", NAMES)
def test_every_scenario_takes_every_option_with_its_loaders(name: str) -> None:
    lists: dict[str, Any] = {"ranks": (1, 2), "threads": (1, 3), "batch_sizes": (4, 8)}
    lists["feeds"] = ("real", "synthetic", "loader-only")
    made = checked(name, "loaders", "cpu", **lists, pipelines_asked=True, workers=3, augment=False, iterations=7)
    real = [each for each in made if each.feed == "real"]
    assert {(each.ranks, each.threads) for each in real} == {(1, 1), (1, 3), (2, 1), (2, 3)}
    assert {each.ranks for each in checked(name, "loaders", ranks=(2,), interconnects=("pcie3",))} == {2}


@pytest.mark.parametrize("name", NAMES)
def test_every_experiment_runs_as_it_is(name: str) -> None:
    for experiment in scenario(name).experiments:
        kind = "cpu" if (name, experiment.name) == ("ssd", "accuracy") else "emulated"
        assert checked(name, experiment.name, kind)


@pytest.mark.parametrize(
    ("name", "experiment", "named", "said"),
    [
        ("fashion-mnist", "plan", {"ranks": (2,)}, "plan of fashion-mnist takes no --ranks 2"),
        ("fashion-mnist", "plan", {"epochs": 3}, "no --epochs 3"),
        ("fashion-mnist", "plan", {"iterations": 30}, "no --iterations 30"),
        ("fashion-mnist", "plan", {"feeds": ("synthetic",)}, "no --feed synthetic"),
        ("fashion-mnist", "plan", {"augment": False}, "no --no-augment"),
        ("cost", "threads", {"ranks": (1, 2)}, "no --ranks 2"),
        ("convnets", "placement", {"pipelines": ("threads",), "pipelines_asked": True}, "no --pipelines threads"),
        ("convnets", "forward", {"threads": (1, 2)}, "no --threads 2"),
        ("cost", "loaders", {"interconnects": ("pcie3",)}, "no --interconnect pcie3.*several --ranks"),
    ],
)
def test_what_has_no_place_is_refused(name: str, experiment: str, named: dict[str, Any], said: str) -> None:
    with pytest.raises(WhyidleError, match=f"{said}.*Leave it out or choose another --experiment"):
        checked(name, experiment, **named)


def test_a_batch_from_memory_has_no_loader_to_complain_of() -> None:
    made = checked("fashion-mnist", "loaders", feeds=("synthetic",), pipelines_asked=True, workers=3)
    assert {each.workers for each in made} == {0}
