"""An advice that is tried: what came is measured beside the training as it is, and held against what was promised."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pytest

from support.loader_clock import SPECS
from support.rendered import rendered
from support.simulated_bench import SimulatedBench, rate
from whyidle.analyse.causes.finding import Finding, Next
from whyidle.analyse.statistics import Speedup
from whyidle.record.tuning import Block, LoaderSettings
from whyidle.report.contract.tuning import proof as contract
from whyidle.report.documents.tuning import proof_document
from whyidle.tune.prove import LEAST_ROUNDS, MOST_ROUNDS, Advised, Proof, advised_of, prove
from whyidle.tune.standing import Entry, SearchPlan
from whyidle.tune.training import TrialFailed

OWN, MORE = LoaderSettings(2, 2), LoaderSettings(4, 2)
SPEC = SPECS["constant"]
TRUTH = float(rate(SPEC, MORE) / rate(SPEC, OWN))


def finding(cause: str, *changes: Next) -> Finding:
    return Finding(cause, "", 0.5, 0.9, next=changes)


def change(speedup: Speedup | None, settings: Mapping[str, object]) -> Next:
    return Next("num_workers=4", speedup=speedup, settings=settings)


def tried(
    bench: SimulatedBench, speedup: Speedup | None, outside: float = 0.0, budget_s: float = 1000.0
) -> tuple[Proof, list[Entry]]:
    plan = SearchPlan(baseline=OWN, batch_size=SPEC.batch_size, budget_s=budget_s)
    advised = Advised("input.too_few_workers", change(speedup, {"num_workers": 4}), MORE, True)
    told: list[Entry] = []
    return prove(bench, plan, advised, outside, told.append), told


def test_the_advice_and_the_training_as_it_is_take_turns() -> None:
    bench = SimulatedBench(SPEC, noise=0.01)
    proof, told = tried(bench, Speedup(TRUTH, TRUTH / 1.1, TRUTH * 1.1))
    assert proof.measured.value == pytest.approx(TRUTH, rel=0.03)
    assert proof.measured.low <= TRUTH <= proof.measured.high
    assert proof.kept
    assert proof.rounds >= LEAST_ROUNDS
    first_of_round = [entry.settings for entry in told[::2]]
    assert first_of_round[:4] == [OWN, MORE, OWN, MORE]
    assert {entry.settings for entry in told} == {OWN, MORE}


@pytest.mark.parametrize(("promised", "kept"), [(Speedup(2 * TRUTH, 1.5 * TRUTH, 3 * TRUTH), False), (None, None)])
def test_a_promise_is_broken_where_what_came_lies_outside(promised: Speedup | None, kept: bool | None) -> None:
    proof, _ = tried(SimulatedBench(SPEC, noise=0.01), promised)
    assert proof.kept is kept


def test_time_outside_the_steps_is_not_gained_by_a_loader() -> None:
    measured = tried(SimulatedBench(SPEC), None, outside=0.5)[0].measured
    assert (measured and measured.value) == pytest.approx(1 / (0.5 + 0.5 / TRUTH), rel=0.03)


def test_noise_takes_more_rounds_and_their_number_is_bounded_and_so_is_the_time() -> None:
    assert tried(SimulatedBench(SPEC), None)[0].rounds == LEAST_ROUNDS
    assert LEAST_ROUNDS < tried(SimulatedBench(SPEC, noise=0.4, drift=0.2), None)[0].rounds <= MOST_ROUNDS
    bench = SimulatedBench(SPEC, noise=0.4)
    tried(bench, None, budget_s=8.0)
    assert bench.now() < 8.0 + 10.0


class _Short(SimulatedBench):
    """A training that ends within longer blocks."""

    longest_s = 0.3

    def measure(self, settings: LoaderSettings, seconds: float) -> Block:
        if seconds > self.longest_s:
            raise TrialFailed("the training ended after 64 steps", ended=True)
        return super().measure(settings, seconds)


def test_a_training_that_ends_within_a_block_gets_shorter_ones() -> None:
    proof, told = tried(_Short(SPEC, noise=0.01), None)
    assert proof.measured.value == pytest.approx(TRUTH, rel=0.05)
    assert len(told) >= 2 * LEAST_ROUNDS
    ends_at_once = _Short(SPEC)
    ends_at_once.longest_s = 0.01
    proof, told = tried(ends_at_once, None)
    assert (proof.measured, proof.why_not, told) == (None, "the training ended after 64 steps", [])


def test_what_cannot_be_run_is_not_measured_and_says_why() -> None:
    bench = SimulatedBench(SPEC, fails={MORE: TrialFailed("no memory for 4 workers")})
    proof, _ = tried(bench, Speedup(2.0, 1.5, 3.0))
    assert (proof.measured, proof.kept) == (None, None)
    shown = rendered(proof_document("python train.py", proof))
    assert "Not measured: no memory for 4 workers." in shown
    told = contract("python train.py", proof, finding("a"))
    assert (told["measured"], told["kept"], told["why_not"]) == (None, None, "no memory for 4 workers")


def test_ctrl_c_leaves_what_was_measured_until_then() -> None:
    enough, _ = tried(SimulatedBench(SPEC, interrupt_after=6), None)
    assert enough.measured is not None
    early, _ = tried(SimulatedBench(SPEC, interrupt_after=1), None)
    assert (early.measured, early.why_not) == (None, "stopped by Ctrl-C")


def test_the_first_advice_that_is_a_setting_is_tried() -> None:
    code = Next("train.py:3: keep what it gives", kind="once")
    now = change(None, {"num_workers": 2})
    more = change(None, {"num_workers": 4})
    assert advised_of((finding("a", code), finding("b")), OWN) is None
    assert advised_of((finding("a", now),), OWN) is None
    first = advised_of((finding("a", more, code),), OWN)
    assert (first.cause, first.settings, first.first) == ("a", MORE, True)
    second = advised_of((finding("a", code), finding("b", now, more)), OWN)
    assert (second.cause, second.settings.num_workers, second.first) == ("b", 4, False)


def test_where_no_advice_is_a_setting_that_is_all_that_is_said() -> None:
    proof = Proof(None, OWN, None, 0, "Nothing to prove: it is code.")
    assert rendered(proof_document("python train.py", proof)).strip() == proof.why_not
    told = contract("python train.py", proof, finding("a"))
    assert (told["advice"], told["settings"], told["kept"], told["first"]) == (None, None, None, False)


def test_promised_and_measured_stand_side_by_side() -> None:
    proof, _ = tried(SimulatedBench(SPEC, noise=0.01), Speedup(3 * TRUTH, 2 * TRUTH, 4 * TRUTH))
    lines = rendered(proof_document("python train.py", proof)).splitlines()
    assert lines[0].startswith("python train.py: the promise was not kept")
    rows = {line.split()[0]: line for line in lines if line.split()[:1] in (["promised"], ["measured"])}
    assert "90 %" in rows["promised"]
    assert "95 %" in rows["measured"]
    other = replace(proof, advised=replace(proof.advised, first=False))
    assert "The first advice that changes a loader setting" in rendered(proof_document("x", other))
