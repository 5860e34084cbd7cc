"""Fixtures for the sampler's tests against a made-up driver."""

from __future__ import annotations

from fakes.driver import driver, library, looks, recorded

__all__ = ["driver", "library", "looks", "recorded"]
