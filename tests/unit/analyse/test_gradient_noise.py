"""The gradient noise scale, of gradients whose noise is known."""

from __future__ import annotations

import numpy as np
import pytest

from whyidle.tune.batch.gradient_noise import LEAST_STEPS, NoiseScale, noise_scale

DIMENSIONS = 50


def gradients(scale: float, sizes: tuple[int, ...], steps: int, seed: int = 0) -> list[tuple[int, float]]:
    """(samples, |g|^2) of a gradient of length 1 with isotropic noise."""
    draws = np.random.default_rng(seed)
    mean = np.full(DIMENSIONS, DIMENSIONS**-0.5)
    deviation = np.sqrt(scale / DIMENSIONS)
    return [
        (size, float(((mean + draws.normal(0, deviation / np.sqrt(size), DIMENSIONS)) ** 2).sum()))
        for _ in range(steps)
        for size in sizes
    ]


def test_the_formulas_of_two_sizes_are_exact_on_expectations() -> None:
    gradient, trace = 3.0, 600.0
    exact = [(size, gradient + trace / size) for size in (16, 64)]
    found = noise_scale([each for each in exact for _ in range(LEAST_STEPS)])
    # All alike is what clipping looks like; so a hair apart.
    assert found == "gradients are clipped to a norm"
    apart = [(size, square * (1 + sign * 0.01)) for size, square in exact for sign in (-1, 1) * LEAST_STEPS]
    found = noise_scale(apart)
    assert isinstance(found, NoiseScale)
    assert found.estimate == pytest.approx(200)


@pytest.mark.parametrize("scale", [50.0, 400.0])
def test_the_scale_is_found_within_its_interval(scale: float) -> None:
    held = 0
    for seed in range(20):
        found = noise_scale(gradients(scale, (16, 64, 256), 40, seed))
        assert isinstance(found, NoiseScale)
        assert scale / 2 < found.estimate < 2 * scale
        held += found.low <= scale <= found.high
    assert held >= 14


def test_a_loss_that_is_summed_has_no_scale() -> None:
    """Its gradient grows with the batch."""
    summed = [(size, square * size**2) for size, square in gradients(100.0, (16, 64), 20)]
    assert "no clearly smaller gradients" in str(noise_scale(summed))


def test_a_gradient_that_noise_drowns_has_no_scale() -> None:
    assert "drowns" in str(noise_scale(gradients(1e6, (16, 64), 20)))


def test_too_few_steps_and_one_size_are_not_enough() -> None:
    assert noise_scale([]) == "no gradients were seen"
    assert "two batch sizes" in str(noise_scale(gradients(100.0, (16,), 50)))
    assert "two batch sizes" in str(noise_scale(gradients(100.0, (16, 64), LEAST_STEPS - 1)))


def test_gradients_that_are_not_finite_tell_nothing() -> None:
    assert noise_scale([(16, float("nan"))]) == "gradients are not finite"
