"""Loaders by name."""

from __future__ import annotations

import sys
from typing import Any

import pytest
import torch

from whyidle.errors import MissingExtra, WhyidleError
from whyidle.pipelines import registry
from whyidle.pipelines.protocol import Settings


def test_the_names_are_those_of_the_contract_and_each_leads_to_a_loader_and_one_line() -> None:
    names = "naive caffe workers threads prefetch fused fused-exact dali-cpu dali-gpu"
    assert tuple(names.split()) == registry.NAMES
    for name in registry.NAMES:
        assert registry.factory(name).name == name  # type: ignore[attr-defined]
        line = registry.describe(name)
        assert 10 < len(line) < 100
        assert "\n" not in line


@pytest.mark.parametrize("ask", [registry.factory, registry.describe, registry.unavailable])
def test_an_unknown_name_is_answered_with_the_known_ones(ask: Any) -> None:
    with pytest.raises(WhyidleError, match=r"no loader 'wokers'.*naive, caffe, workers, threads"):
        ask("wokers")


@pytest.mark.parametrize(
    ("name", "module", "install"),
    [("dali-cpu", "nvidia.dali", "whyidle[dali]"), ("threads", "spdl.pipeline", "whyidle[studies]")],
)
def test_a_missing_library_says_what_to_install(
    name: str, module: str, install: str, photos: Any, copier: Any, monkeypatch: Any
) -> None:
    def no_parent(wanted: str) -> None:
        raise ModuleNotFoundError(wanted)

    monkeypatch.setitem(sys.modules, module, None)  # what makes an import fail
    with pytest.raises(MissingExtra) as caught:
        registry.factory(name)(photos, Settings(batch_size=4), copier)
    assert f"pip install '{install}'" in str(caught.value)
    for find in (lambda wanted: None, no_parent):
        monkeypatch.setattr(registry, "find_spec", find)
        assert f"pip install '{install}'" in (registry.unavailable(name) or "")


@pytest.mark.skipif(registry.unavailable("dali-cpu") is not None, reason="DALI is not installed")
def test_dali_on_a_gpu_needs_one(photos: Any, copier: Any, monkeypatch: Any) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert "CUDA device" in (registry.unavailable("dali-gpu") or "")
    with pytest.raises(WhyidleError, match=r"needs a CUDA device.*dali-cpu"):
        registry.factory("dali-gpu")(photos, Settings(batch_size=4), copier)
