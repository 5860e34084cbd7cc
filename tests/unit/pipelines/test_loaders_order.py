"""The common order and randomness."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from whyidle.pipelines.order import batches, count, epoch_order, randomness
from whyidle.pipelines.protocol import Settings

ANY = st.builds(
    Settings,
    batch_size=st.integers(1, 12),
    drop_last=st.booleans(),
    shuffle=st.booleans(),
    seed=st.integers(0, 2**40),
)


@given(st.integers(0, 60), ANY, st.integers(0, 1000))
def test_an_epoch_visits_every_sample_once(samples: int, settings: Settings, epoch: int) -> None:
    order = epoch_order(samples, settings, epoch)
    assert sorted(order) == list(range(samples))
    assert settings.shuffle or order == sorted(order)


@given(st.integers(0, 60), ANY, st.integers(0, 1000))
def test_batches_are_the_order_cut_up(samples: int, settings: Settings, epoch: int) -> None:
    groups = batches(samples, settings, epoch)
    order = epoch_order(samples, settings, epoch)
    joined = [index for group in groups for index in group]
    assert joined == order[: len(joined)]
    assert len(groups) == count(samples, settings)
    assert all(len(group) == settings.batch_size for group in groups[:-1])
    left_out = samples - len(joined)
    assert left_out == (samples % settings.batch_size if settings.drop_last else 0)


def test_epochs_and_seeds_shuffle_differently_and_repeatably() -> None:
    def order(seed: int, epoch: int) -> list[int]:
        return epoch_order(50, Settings(batch_size=4, seed=seed), epoch)

    orders = [order(seed, epoch) for seed in range(3) for epoch in range(3)]
    assert len({tuple(o) for o in orders}) == 9
    assert order(1, 2) == order(1, 2)


def test_augmentation_depends_on_seed_epoch_and_index_alone() -> None:
    def drawn(seed: int, epoch: int, index: int, batch_size: int = 4) -> float:
        return randomness(Settings(batch_size=batch_size, seed=seed), epoch, index).random()

    numbers = {drawn(seed, epoch, index) for seed in range(3) for epoch in range(3) for index in range(3)}
    assert len(numbers) == 27
    assert drawn(1, 2, 0) == drawn(1, 2, 0, batch_size=9)


def test_the_shuffling_is_not_the_augmentation_of_sample_zero() -> None:
    settings = Settings(batch_size=4)
    assert epoch_order(50, settings, 3) != randomness(settings, 3, 0).permutation(50).tolist()
