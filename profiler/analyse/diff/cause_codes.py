"""The causes that a run can be forbidden to have: the contract's, without `none`."""

from __future__ import annotations

_FAMILIES = {
    "input": "serial too_few_workers cpu_exhausted oversubscribed worker_threads cpu_quota affinity foreign_load "
    "storage straggler prefetch_depth worker_restart pipeline_fill handoff sharding overkill",
    "copy": "pageable serial link",
    "host": "sync launch gc gil step_gap boundary",
    "device": "memory_pressure throttled contended shape_churn",
    "rank": "straggler exchange",
}
FAMILIES = tuple(_FAMILIES)
CAUSES = tuple(f"{family}.{name}" for family, names in _FAMILIES.items() for name in names.split())
