"""What the tools' own words mean in whyidle's cause codes: from their documentation and sources, before any run.

The reading is generous. A word that lists several remedies at once for whatever it found (more workers, prefetching or
faster storage) names the part of the training and no cause in it. One that says what is special about this run (no
workers, the processor used up, a setting that was tried and is faster) names the cause, also where it might mean two.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from .tools import FOURNEX, GPU_IDLE, LOADTUNE, TRACEML, WHYIDLE


@dataclass(frozen=True)
class Meaning:
    """Of one word of a tool's."""

    exact: frozenset[str] = frozenset()
    """Causes that it names."""
    families: frozenset[str] = frozenset()
    """Parts of the training that it names, by the first part of a code."""
    alarms: bool = True
    """It asks for something to be changed."""
    needs_gpu: bool = False
    """Without a GPU the tool says this because its figures are missing: it counts neither for it nor against it."""


def _names(*exact: str, part: str = "", alarms: bool = True) -> Meaning:
    """Names these causes, and so their parts; or a part without a cause."""
    parts = {code.partition(".")[0] for code in exact} | ({part} if part else set())
    return Meaning(frozenset(exact), frozenset(parts), alarms)


NOTHING = Meaning(alarms=False)
GPU = Meaning(alarms=False, needs_gpu=True)

_TRIED: Mapping[str, Meaning] = {
    "workers": _names("input.serial"),
    "more workers": _names("input.too_few_workers"),
    "fewer workers": _names("input.oversubscribed"),
    "no workers": _names("input.overkill"),
    # In its own words deeper prefetching "absorbs straggler batches".
    "prefetch": _names("input.prefetch_depth", "input.straggler"),
    "persistent": _names("input.worker_restart"),
    "threads": _names(part="input"),
    "compiled": NOTHING,
    "amp": NOTHING,
}
"""Settings of loadtune's, if the configuration that it found fastest has them and the case had not."""

WORDS: Mapping[str, Mapping[str, Meaning]] = {
    TRACEML: {
        "INPUT_BOUND": _names(part="input"),
        # "Inspect CPU-side preprocessing or host contention", printed beside the verdict.
        "HIGH_CPU": _names("input.cpu_exhausted", "input.foreign_load"),
        "HIGH_PROCESS_CPU": _names("input.cpu_exhausted", "input.foreign_load"),
        "H2D_BOUND": _names(part="copy"),
        # What is left of a step: "CPU stalls, logging, checkpointing, validation".
        "RESIDUAL_HEAVY": _names("host.step_gap", part="host"),
        "INPUT_STRAGGLER": _names("rank.straggler"),
        "COMPUTE_STRAGGLER": _names("rank.straggler"),
        "H2D_STRAGGLER": _names("rank.straggler"),
        "STRAGGLER": _names("rank.straggler"),
        "COMPUTE_BOUND": NOTHING,
        "NO_CLEAR_PERFORMANCE_BOTTLENECK": NOTHING,
        "INSUFFICIENT_STEP_TIME_DATA": NOTHING,
        "LOW_GPU_UTILIZATION_UNEXPLAINED": GPU,
    },
    LOADTUNE: {
        "input-bound": _names(part="input"),
        "CPU already saturated": _names("input.cpu_exhausted"),
        "mildly contended": _names(part="input", alarms=False),
        "compute-bound": NOTHING,
        **{f"recommends {change}": meaning for change, meaning in _TRIED.items()},
        **{f"suggests {change}": Meaning(each.exact, each.families, False) for change, each in _TRIED.items()},
    },
    FOURNEX: {
        "input_bound": _names(part="input"),
        "copy_bound": _names(part="copy"),
        "sync_bound": _names("host.sync"),
        "shape_instability": _names("device.shape_churn"),
        "memory_pressure": _names("device.memory_pressure"),
        "inconclusive": NOTHING,
        "insufficient_telemetry": NOTHING,
        "underutilized_gpu": GPU,
        "launch_bound": GPU,
    },
    GPU_IDLE: {
        "dataloader": _names(part="input"),
        "dataloader, num_workers=0": _names("input.serial"),
        "h2d_copy": _names(part="copy"),
        "smallbatch": GPU,
        "unattributed": GPU,
    },
}


def meaning(tool: str, word: str) -> Meaning:
    """
    Raises:
        ValueError: the tool's documentation and sources have no such word.
    """
    if tool == WHYIDLE:
        code, _, minor = word.partition(", ")
        return _names(code, alarms=not minor)
    if word not in WORDS[tool]:
        raise ValueError(f"{tool} is not known to say {word!r}")
    return WORDS[tool][word]
