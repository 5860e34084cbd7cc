"""Loader settings as arguments of torch's DataLoader."""

from __future__ import annotations

from ...record.tuning import LoaderSettings


def arguments(settings: LoaderSettings) -> dict[str, str]:
    """As a DataLoader takes them; those that stand for its defaults are left out, `num_workers` never."""
    given = {"num_workers": str(settings.num_workers)}
    if settings.batch_size is not None:
        given["batch_size"] = str(settings.batch_size)
    if settings.prefetch_factor not in (None, 2):
        given["prefetch_factor"] = str(settings.prefetch_factor)
    if settings.pin_memory:
        given["pin_memory"] = "True"
    if not settings.in_order:
        given["in_order"] = "False"
    if settings.persistent_workers:
        given["persistent_workers"] = "True"
    return given
