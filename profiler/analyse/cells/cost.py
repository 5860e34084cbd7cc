"""What trainings cost: per epoch, in all, until an accuracy is reached; and what waiting cost.

Every figure is a time and the price of an hour of the machine. What is not known is `None`, never 0.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import mean, median

from ...errors import WhyidleError
from ..run.facts import Facts
from .epoch_logs import EpochLog
from .prices import Price, Prices

COMPUTE, BOUNDARY = "compute", "boundary"


@dataclass(frozen=True, kw_only=True)
class Bill:
    """What one training of some epochs cost on one machine."""

    test: str
    machine: str
    price: Price | None
    epochs: int
    median_s: float
    """Median time of an epoch."""
    total_s: float
    """Time of all epochs."""
    usd: float | None
    """Cost of all epochs; `None` without a price."""
    usd_per_epoch: float | None
    """Cost of the median epoch; `None` without a price."""
    accuracy: float | None
    """Accuracy on held-out data after the last epoch, 0..1."""
    loss: float | None
    """Loss on the training data in the last epoch."""
    target_epoch: int | None = None
    """The first epoch, from 1, that reached the accuracy asked for; `None` if none did."""
    target_usd: float | None = None
    """Cost of all epochs up to that one."""
    time_ratio: float | None = None
    """`total_s` over that of the same training on the machine chosen for comparison."""
    cost_ratio: float | None = None
    """`usd` over that of the same training on the machine chosen for comparison."""


def bill(log: EpochLog, price: Price | None, target: float | None = None) -> Bill:
    """What a logged training cost; `target` is a share of held-out samples."""
    seconds = [epoch.seconds for epoch in log.epochs]
    reached = first_reaching([epoch.accuracy for epoch in log.epochs], target)
    return Bill(
        test=log.test,
        machine=log.machine,
        price=price,
        epochs=len(seconds),
        median_s=median(seconds),
        total_s=sum(seconds),
        usd=None if price is None else price.of(sum(seconds)),
        usd_per_epoch=None if price is None else price.of(median(seconds)),
        accuracy=log.epochs[-1].accuracy,
        loss=log.epochs[-1].loss,
        target_epoch=reached,
        target_usd=None if price is None or reached is None else price.of(sum(seconds[:reached])),
    )


def first_reaching(accuracies: Sequence[float | None], target: float | None) -> int | None:
    """The first epoch, from 1, with at least this accuracy; `None` if there was none."""
    if target is None:
        return None
    return next((n for n, each in enumerate(accuracies, 1) if each is not None and each >= target), None)


def bills(
    logs: Sequence[EpochLog], prices: Prices, relative_to: str | None = None, target: float | None = None
) -> list[Bill]:
    """The bills of all logs, each beside the same training on the machine `relative_to` (the GPU, or the first, unless
    named).

    Raises:
        WhyidleError: nothing was logged on that machine.
    """
    machines = list(dict.fromkeys(log.machine for log in logs))
    base = relative_to or default_base(machines)
    if base not in machines:
        raise WhyidleError(f"there is no log of {base!r}. There are logs of {', '.join(machines)}.")
    made = [bill(log, prices.of_logs(log.machine.rpartition("/")[2]), target) for log in logs]
    bases = {each.test: each for each in made if each.machine == base}
    return [_beside(each, bases.get(each.test)) for each in made]


def default_base(machines: Sequence[str]) -> str:
    """The machine that others are compared with unless one is named: the GPU where there is one, else the first."""
    return next((name for name in machines if name.rpartition("/")[2] == "gpu"), machines[0])


def _beside(one: Bill, base: Bill | None) -> Bill:
    if base is None:
        return one
    return replace(one, time_ratio=ratio(one.total_s, base.total_s), cost_ratio=ratio(one.usd, base.usd))


def ratio(one: float | None, base: float | None) -> float | None:
    """One over the other, where both are known and there is something to divide by."""
    return None if one is None or not base else one / base


def of_epoch(
    samples: int | None, samples_per_s: float | None, price: Price | None, outside: float = 0.0
) -> float | None:
    """USD for one pass over so many samples at this rate, less the share of the time that was outside the steps."""
    if samples is None or not samples_per_s or price is None:
        return None
    return price.of(samples / samples_per_s * (1 - outside))


@dataclass(frozen=True)
class Spent:
    """What a recorded run cost, and what of it went into waiting."""

    price: Price
    usd: float | None
    """Cost from its start to its end, the start of the program included."""
    waited_usd: float | None
    """Cost of the time within steps in which the device waited, in the part of the run that was judged."""
    waited_share: float | None
    """Share of the judged part, 0..1, that was such waiting."""
    waiter: str = "device"
    """Who waited: the training itself where the processor is the device."""
    boundary_usd: float | None = None
    """Cost of the time outside the steps in the part that was judged: validation, checkpoints."""
    boundary_share: float | None = None
    """Share of the judged part, 0..1, that lay outside the steps."""


def spent(price: Price, duration_s: float | None, facts: Sequence[Facts]) -> Spent:
    """What a run cost. `facts` are those of its ranks: the machine waits as their devices do on average."""
    told = [(share, boundary(each.shares)) for each in facts if (share := waiting(each.shares)) is not None]
    usd = None if duration_s is None else price.of(duration_s)
    waiter = facts[0].waiter if facts else "device"
    if not told or len(told) < len(facts):
        return Spent(price, usd, None, None, waiter)
    walls = [each.parts.wall_ns / 1e9 for each in facts]
    (waited, waited_usd), (outside, outside_usd) = (
        (mean(shares), price.of(mean(share * wall for share, wall in zip(shares, walls, strict=True))))
        for shares in zip(*told, strict=True)
    )
    return Spent(price, usd, waited_usd, waited, waiter, outside_usd, outside)


def waiting(shares: Mapping[str, float]) -> float | None:
    """Share of wall time within steps, 0..1, without computation; `None` where computing is not told apart."""
    return max(0.0, 1.0 - shares[COMPUTE] - boundary(shares)) if COMPUTE in shares else None


def boundary(shares: Mapping[str, float]) -> float:
    """Share of wall time outside the steps, 0..1: validation, checkpoints. It is work, not waiting."""
    return shares.get(BOUNDARY, 0.0)
