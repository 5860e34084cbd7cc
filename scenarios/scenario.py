"""What a scenario is, and which there are."""

from __future__ import annotations

from dataclasses import dataclass

from stallscope.errors import StallscopeError


@dataclass(frozen=True)
class Scenario:
    """A training of a published study. The module of the same name makes its data and its training."""

    name: str
    study: str
    question: str
    nets: tuple[str, ...]
    """The first is the default on a GPU and on emulated devices."""
    cpu_net: str
    """The default where the processor is the device: a size that trains there."""
    data: str
    batch_sizes: tuple[int, ...]

    def net_for(self, device: str, asked: str | None) -> str:
        """The net to train on a device: the asked one, else the default."""
        if asked is None:
            return self.cpu_net if device == "cpu" else self.nets[0]
        if asked not in self.nets:
            raise StallscopeError(f"scenario {self.name} has no net {asked!r}. It has {', '.join(self.nets)}.")
        return asked


SSD = Scenario(
    name="ssd",
    study="GumGum on the AWS blog, 2017: SSD on Caffe and MXNet",
    question="Why did a larger batch make Caffe's training longer and MXNet's shorter?",
    nets=("ssd300", "ssd512", "ssd-mini"),
    cpu_net="ssd-mini",
    data="Pascal-VOC layout; `stallscope data ssd --out DIR` composes a set",
    batch_sizes=(8, 16, 64, 192),
)

SCENARIOS = {s.name: s for s in (SSD,)}


def scenario(name: str) -> Scenario:
    """A scenario by name.

    Raises:
        StallscopeError: there is none of that name.
    """
    if name not in SCENARIOS:
        raise StallscopeError(f"unknown scenario {name!r}. `stallscope scenarios` lists all of them.")
    return SCENARIOS[name]
