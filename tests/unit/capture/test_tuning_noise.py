"""Gradients taken at optimizer steps, of a problem whose noise is known."""

from __future__ import annotations

import pytest
import torch

from whyidle.capture.tuning.noise import MOST_STEPS, GradientWatch
from whyidle.tune.batch.gradient_noise import NoiseScale, noise_scale

DIMENSIONS = 30
NOISE = 2.0
"""Standard deviation of what the line does not explain."""


class Regression:
    """Least squares at a fixed distance from the solution.

    With inputs of unit variance the gradient's noise is exactly tr(Sigma) = (d + 1) |delta|^2 + d noise^2, and its
    square |delta|^2 = 1.
    """

    scale = (DIMENSIONS + 1) + DIMENSIONS * NOISE**2

    def __init__(self) -> None:
        torch.manual_seed(5)
        self.weights = torch.nn.Parameter(torch.full((DIMENSIONS,), DIMENSIONS**-0.5))
        self.optimizer = torch.optim.SGD([self.weights], lr=0.0)

    def backward(self, samples: int, share: float = 1.0) -> None:
        inputs = torch.randn(samples, DIMENSIONS)
        error = inputs @ self.weights - NOISE * torch.randn(samples)
        (share * 0.5 * error.square().mean()).backward()

    def step(self) -> None:
        self.optimizer.step()
        self.optimizer.zero_grad()


def train(watch: GradientWatch, of: Regression, samples: int, steps: int, micro: int = 1) -> list[tuple[int, float]]:
    watch.start()
    for _ in range(steps):
        for _ in range(micro):
            watch.fed(samples)
            of.backward(samples, 1 / micro)
        of.step()
    return list(watch.stop())


def test_the_noise_scale_of_a_known_problem_is_found_within_a_factor_of_two() -> None:
    watch, of = GradientWatch(), Regression()
    taken = [each for _ in range(6) for size in (8, 64) for each in train(watch, of, size, 10)]
    found = noise_scale(taken)
    assert isinstance(found, NoiseScale)
    assert of.scale / 2 < found.estimate < 2 * of.scale
    assert found.low < of.scale < found.high


def test_accumulated_gradients_count_as_one_of_all_their_samples() -> None:
    watch, of = GradientWatch(), Regression()
    taken = train(watch, of, 16, 6, micro=4)
    assert [samples for samples, _ in taken] == [64] * 6
    mixed = [each for _ in range(6) for each in (*train(watch, of, 16, 10, micro=4), *train(watch, of, 8, 10))]
    found = noise_scale(mixed)
    assert isinstance(found, NoiseScale)
    assert of.scale / 2 < found.estimate < 2 * of.scale


def test_what_comes_after_enough_steps_is_left_out() -> None:
    assert len(train(GradientWatch(), Regression(), 4, 3 * MOST_STEPS)) == MOST_STEPS


def test_a_first_step_counts_only_where_it_is_known_to_be_whole() -> None:
    watch, of = GradientWatch(), Regression()
    assert train(watch, of, 4, 1) == []
    assert len(train(watch, of, 4, 3)) == 3
    assert len(train(watch, of, 4, 1)) == 1
    # Begun between the two batches of a step.
    watch = GradientWatch()
    of.backward(4, 0.5)
    watch.start()
    watch.fed(4)
    of.backward(4, 0.5)
    of.step()
    for _ in range(2):
        for _ in range(2):
            watch.fed(4)
            of.backward(4, 0.5)
        of.step()
    assert [samples for samples, _ in watch.stop()] == [8, 8]


def test_a_step_tells_the_square_of_its_whole_gradient() -> None:
    watch = GradientWatch()
    parameters = [torch.nn.Parameter(torch.ones(3)), torch.nn.Parameter(torch.ones(2, 2))]
    optimizer = torch.optim.SGD(parameters, lr=0.1)
    watch.start()
    for _ in range(2):
        watch.fed(7)
        parameters[0].grad, parameters[1].grad = torch.full((3,), 2.0), torch.full((2, 2), 3.0)
        optimizer.step()
    assert watch.stop() == ((7, pytest.approx(3 * 4 + 4 * 9)),) * 2
    assert torch.allclose(parameters[0], torch.full((3,), 0.6))


def test_sparse_gradients_and_several_optimizers_are_left_alone() -> None:
    watch = GradientWatch()
    table = torch.nn.Embedding(10, 3, sparse=True)
    optimizer = torch.optim.SGD(table.parameters(), lr=0.1)
    watch.start()
    for _ in range(3):
        watch.fed(2)
        table(torch.tensor([1, 2])).sum().backward()
        optimizer.step()
    assert watch.stop() == ()
    assert watch.why == "gradients are sparse or sharded"
    watch, first, second = GradientWatch(), Regression(), Regression()
    watch.start()
    for of in (first, second, first, second):
        watch.fed(2)
        of.backward(2)
        of.step()
    assert watch.stop() == ()
    assert watch.why == "there are several optimizers"


def test_nothing_is_taken_outside_of_start_and_stop() -> None:
    watch, of = GradientWatch(), Regression()
    train(watch, of, 4, 3)
    before = torch.get_rng_state()
    for _ in range(3):
        of.step()
    assert watch.stop() == ()
    assert torch.equal(before, torch.get_rng_state())
