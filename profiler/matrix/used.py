"""What is asked for must be used: an experiment that cannot vary something says so before the first run."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from ..errors import WhyidleError

if TYPE_CHECKING:
    from whyidle.scenarios.scenario import ExperimentRequest
    from whyidle.scenarios.variant import Variant

    from .experiment import Request

_SEVERAL = {
    "--device": ("devices", "device"),
    "--net": ("nets", "net"),
    "--pipelines": ("pipelines", "pipeline"),
    "--batch-sizes": ("batch_sizes", "batch_size"),
    "--feed": ("feeds", "feed"),
    "--store": ("stores", "store"),
    "--ranks": ("ranks", "ranks"),
    "--interconnect": ("interconnects", "interconnect"),
    "--threads": ("threads", "threads"),
}
"""Option → what it is called in `ExperimentRequest` and in a `Variant`."""
_ONE = {"--workers": "workers", "--epochs": "epochs", "--iterations": "iterations"}
_OF_LOADING = {"pipeline", "store", "workers"}
"""What a batch that is served from memory has none of."""


def require_used(asked: ExperimentRequest, variants: Sequence[Variant], experiment: str, scenario: str) -> None:
    """
    Args:
        variants: those that the experiment made of it, each told in one way only (`plain`).

    Raises:
        WhyidleError: the command names something that none of them has.
    """
    loading = [each for each in variants if each.feed != "synthetic"]
    wanted: list[tuple[str, str, Iterable[Any]]] = [
        (option, name, getattr(asked, field) or ()) for option, (field, name) in _SEVERAL.items()
    ]
    wanted += [(option, name, (getattr(asked, name),)) for option, name in _ONE.items()]
    for option, name, values in wanted:
        if name == "pipeline" and not asked.pipelines_asked:
            continue
        among = loading if name in _OF_LOADING else variants
        there = {getattr(each, name) for each in among}
        for value in values:
            if value is None or value in there or not among:
                continue
            several = " Gradients travel between several --ranks only." if name == "interconnect" else ""
            _refuse(f"{option} {value}", experiment, scenario, several)
    if asked.augment is False and any(_augments(each) for each in variants):
        _refuse("--no-augment", experiment, scenario)


def beyond_cpus(request: Request, budget: float) -> list[str]:
    """What is asked for more often than there are CPUs: allowed, and no faster for it."""
    asked = {"--threads": max(request.threads or (0,)), "--workers": request.workers or 0}
    return [
        f"{option} {number} is more than the {budget:g} CPUs that this job may use: they take turns"
        for option, number in asked.items()
        if number > budget
    ]


def _augments(variant: Variant) -> bool:
    return any(phase.augment for phase in variant.phases) if variant.phases else variant.augment


def _refuse(what: str, experiment: str, scenario: str, more: str = "") -> None:
    raise WhyidleError(
        f"experiment {experiment} of {scenario} takes no {what}: none of its trainings would differ by it.{more} "
        "Leave it out or choose another --experiment."
    )
