from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import pytest

from whyidle.analyse.predict.workload import Binding, Prediction
from whyidle.record.tuning import LoaderSettings
from whyidle.tune.search.candidates import Predicted, choose, cost, describe, space
from whyidle.tune.search.plan import SearchPlan

OWN = LoaderSettings(2, 2)


@dataclass
class Formula:
    rate: Callable[[LoaderSettings], float]
    refuse: Callable[[LoaderSettings], str | None] = lambda settings: None

    def predict(self, settings: Sequence[LoaderSettings]) -> list[Prediction]:
        def one(each: LoaderSettings) -> Prediction:
            rate = self.rate(each)
            return Prediction(each, rate, 0.9 * rate, 1.1 * rate, 0.2, Binding.WORKERS, self.refuse(each))

        return [one(each) for each in settings]

    def learn(self, trials: Sequence[tuple[LoaderSettings, float]], *, steady: bool = False) -> None:
        pass


def saturating(at: int) -> Callable[[LoaderSettings], float]:
    return lambda settings: 100.0 * min(at, max(0.8, settings.num_workers))


def chosen(model: Formula, plan: SearchPlan, most: int = 7) -> tuple[tuple[LoaderSettings, ...], str]:
    said = Predicted(model, plan, False, [plan.baseline, *space(plan)])
    found = choose(said, plan, most)
    return found.arms, "\n".join(
        (*found.not_tested, *(f"{describe(arm)}: {why}" for arm, why in found.left_out.items()))
    )


def plan(**given: object) -> SearchPlan:
    return replace(SearchPlan(OWN, 32, 60.0, most_workers=16), **given)  # type: ignore[arg-type]


def test_the_current_setting_comes_first_then_the_cheapest_that_is_fast_and_its_neighbours() -> None:
    arms, _ = chosen(Formula(saturating(6)), plan())
    assert arms[:2] == (OWN, LoaderSettings(6, 1))
    assert {LoaderSettings(5, 1), LoaderSettings(7, 1), LoaderSettings(6, 2)} <= set(arms)


def test_there_are_at_most_as_many_as_allowed_and_the_rest_is_named() -> None:
    arms, rest = chosen(Formula(saturating(6)), plan(), most=3)
    assert len(arms) == 3
    assert "5 workers, prefetch 1: left out to keep the trials few" in rest


def test_no_workers_are_tried_only_where_that_is_not_hopeless() -> None:
    arms, rest = chosen(Formula(saturating(6)), plan())
    assert LoaderSettings(0) not in arms
    assert "no workers: 7.5 times slower" in rest
    _, rest = chosen(Formula(saturating(6)), plan(baseline=LoaderSettings(0)))
    assert "no workers" not in rest
    arms, _ = chosen(Formula(lambda settings: 100.0 - settings.num_workers), plan())
    assert LoaderSettings(0) in arms


def test_settings_are_described_and_persistence_only_beside_the_same_without_it() -> None:
    kept = replace(OWN, persistent_workers=True)
    assert describe(kept, OWN) == f"{describe(OWN)}, persistent"
    assert describe(kept) == describe(OWN, OWN) == describe(OWN)
    assert "persistent" not in describe(replace(kept, num_workers=7), OWN)
    some = LoaderSettings(1, 4, pin_memory=True, in_order=False)
    assert describe(some) == "1 worker, prefetch 4, out of order, pinned"
    assert describe(LoaderSettings(0, pipeline="naive")) == "naive: no workers"


def test_loaders_that_wait_get_more_workers_than_there_are_cpus() -> None:
    arms, _ = chosen(Formula(saturating(40)), plan(most_workers=64, cpus=2.0))
    assert arms[1].num_workers == 40


def test_batches_come_out_of_order_only_where_that_is_allowed() -> None:
    model = Formula(lambda settings: saturating(6)(settings) * (1.0 if settings.in_order else 1.3))
    arms, rest = chosen(model, plan())
    assert all(arm.in_order for arm in arms)
    assert "in_order=False: batches would come in another order (predicted: +30 %); ask with --out-of-order" in rest
    arms, rest = chosen(model, plan(out_of_order=True))
    assert LoaderSettings(6, 1, in_order=False) in arms
    assert "in_order" not in rest


def test_without_a_cuda_device_pinning_is_not_tested_and_says_so() -> None:
    _, rest = chosen(Formula(saturating(6)), plan())
    assert "pin_memory: no CUDA device" in rest
    _, rest = chosen(Formula(saturating(6)), plan(cuda=True))
    assert "pin_memory" not in rest


def test_what_cannot_run_is_no_candidate_and_named_where_it_would_be_faster() -> None:
    model = Formula(saturating(8), lambda settings: "/dev/shm is too small" if settings.num_workers > 4 else None)
    arms, rest = chosen(model, plan())
    assert max(arm.num_workers for arm in arms) == 4
    assert "5 workers, prefetch 1: /dev/shm is too small" in rest


def test_what_the_program_fixes_stays() -> None:
    arms, rest = chosen(Formula(saturating(6)), plan(fixed={"num_workers": "the data are one stream"}))
    assert arms == (OWN,)
    assert "num_workers: the data are one stream" in rest
    arms, _ = chosen(Formula(saturating(6)), plan(fixed={"prefetch_factor": "set by the program"}))
    assert {arm.prefetch_factor for arm in arms if arm.num_workers} == {2}


def test_other_pipelines_come_on_top() -> None:
    arms, _ = chosen(Formula(saturating(6)), plan(pipelines=("threads", "dali-cpu")), most=3)
    assert [arm.pipeline for arm in arms] == [None, None, None, "threads", "dali-cpu"]
    assert {arm.num_workers for arm in arms[3:]} == {6}


@pytest.mark.parametrize(
    ("cheaper", "dearer"),
    [
        (LoaderSettings(2, 8), LoaderSettings(3, 1)),
        (LoaderSettings(3, 1), LoaderSettings(3, 2)),
        (LoaderSettings(2, 2), LoaderSettings(2, 2, pin_memory=True)),
        (LoaderSettings(0), LoaderSettings(1, 1)),
    ],
)
def test_fewer_workers_are_cheaper_then_fewer_batches(cheaper: LoaderSettings, dearer: LoaderSettings) -> None:
    assert cost(cheaper, OWN) < cost(dearer, OWN)
