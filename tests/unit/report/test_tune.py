"""A tuning in words and as JSON."""

from __future__ import annotations

import json
from dataclasses import replace
from math import nan

import pytest

from support.rendered import rendered
from whyidle.analyse.predict.workload import Binding
from whyidle.analyse.statistics import Estimate
from whyidle.record.tuning import LoaderSettings
from whyidle.report.contract import tuning as tune_json
from whyidle.report.documents.tuning import tuning_document
from whyidle.terminal.console import json_text
from whyidle.tune.patch import Patch
from whyidle.tune.search.result import BatchAdvice, SearchEnd, Trial, Tuned
from whyidle.tune.search.tuning import Tuning, prediction_error

OWN = LoaderSettings(0)
FOUR = LoaderSettings(4, 2, persistent_workers=True)
FOUR_DEEP = LoaderSettings(4, 4, in_order=False)


def trial(settings: LoaderSettings, rate: float | None, predicted: float | None = None, **more: object) -> Trial:
    made = Trial(settings, "ok", None, rate and Estimate(rate, rate * 0.97, rate * 1.03), rate, predicted, 12.0, 6)
    return replace(made, **more)  # type: ignore[arg-type]


BASELINE = trial(OWN, 412.0, 400.0)
BEST = trial(FOUR, 754.0, 800.0)
FAILED = trial(FOUR_DEEP, None, 760.0, status="failed", error="RuntimeError: no\nroom", blocks=0)
SLOWER = trial(LoaderSettings(2, 2), 601.0, 640.0, dropped="20 % slower than 4 workers, prefetch 2")
TUNED = Tuned(
    BASELINE,
    BEST,
    (BASELINE, BEST, SLOWER, FAILED),
    Estimate(1.83, 1.76, 1.90),
    0.92,
    SearchEnd.DECIDED,
    "4 workers, prefetch 2 is 83 % faster",
    "cpu",
    ("pin_memory: no CUDA device",),
    0.031,
    64.2,
)
RESULT = Tuning("python train.py", {"kind": "cpu", "title": "A processor"}, TUNED, None, 16, 1432)


def shown(result: Tuning, width: int = 80) -> str:
    text = rendered(tuning_document(result), width)
    assert max(len(line) for line in text.splitlines()) <= width
    return text


def flat(text: str) -> str:
    return " ".join(text.split())


def test_the_headline_has_the_gain_and_its_interval() -> None:
    first, *_ = shown(RESULT, 120).splitlines()
    assert first.strip() == "python train.py on A processor: 1.83 times as fast (95 % interval 1.76 to 1.90)"
    assert "754 samples/s with 4 workers, prefetch 2; 412 as it stands (no workers)." in flat(shown(RESULT))
    assert "A loader that takes no time would give 791." in flat(shown(RESULT))


@pytest.mark.parametrize("width", [80, 120])
def test_the_change_names_only_arguments_that_change(width: int) -> None:
    lines = [line.strip() for line in shown(RESULT, width).splitlines()]
    assert "- DataLoader(…, num_workers=0)" in lines
    assert "+ DataLoader(…, num_workers=4, persistent_workers=True)" in lines


DIFF = "--- a/train.py\n+++ b/train.py\n@@ -1 +1 @@\n-loader = DataLoader(a)\n+loader = DataLoader(a, num_workers=4)\n"


def test_the_change_is_the_patch_where_there_is_one() -> None:
    result = replace(RESULT, patch=Patch(DIFF, "/home/me/it", ("python", "train.py", "-j", "4"), ("pin_memory is x.",)))
    lines = [line.strip() for line in shown(result, 120).splitlines()]
    at = lines.index("Change")
    assert lines[at + 1 : at + 6] == DIFF.splitlines()
    said = flat(" ".join(lines[at + 6 : at + 10]))
    assert said.startswith("Nothing was changed: `patch -p1` in /home/me/it takes this.")
    assert "Then run it so: python train.py -j 4" in said
    assert "By hand: pin_memory is x." in said
    assert not any("DataLoader(…" in line for line in lines)
    assert tune_json.read(json.loads(json_text(tune_json.tuning(result)))).patch == result.patch


def test_where_only_the_command_changes_no_source_does() -> None:
    text = flat(shown(replace(RESULT, patch=Patch(command=("python", "train.py", "-j", "4")))))
    assert "Change No source changes: run it so: python train.py -j 4" in text


def test_what_could_not_be_edited_is_said_beside_the_arguments() -> None:
    text = flat(shown(replace(RESULT, patch=Patch(by_hand=("num_workers comes from `n` (a.py:3): set it to 4.",)))))
    assert "+ DataLoader(…, num_workers=4, persistent_workers=True)" in text
    assert "By hand: num_workers comes from `n` (a.py:3): set it to 4." in text


@pytest.mark.parametrize(
    ("binding", "tried", "words"),
    [
        (Binding.SERIAL, LoaderSettings(2, 2), "That was tried, and is no faster here"),
        (Binding.SERIAL, None, "Next to try: workers"),
        (Binding.CPU, LoaderSettings(8, 2), "Next to try: samples that cost the CPU less"),
        (Binding.SAMPLER, None, "The sampler works in the training process, however many workers there are. Next to"),
    ],
)
def test_what_was_measured_to_be_no_faster_is_not_proposed(
    binding: str, tried: LoaderSettings | None, words: str
) -> None:
    trials = (BASELINE,) if tried is None else (BASELINE, trial(tried, 400.0))
    tuned = replace(TUNED, best=BASELINE, trials=trials, binding=binding, speedup=Estimate(1.0, 1.0, 1.0))
    text = flat(shown(replace(RESULT, tuned=tuned)))
    assert words in text
    assert ("Next to try" in text) != ("That was tried" in text)


def test_what_was_seen_to_fail_is_not_proposed() -> None:
    failed = replace(FAILED, settings=LoaderSettings(2, 2), error="RuntimeError: the number of workers should be 0")
    tuned = replace(TUNED, best=BASELINE, trials=(BASELINE, failed), binding=Binding.SERIAL)
    text = flat(shown(replace(RESULT, tuned=tuned)))
    assert "That was tried, and failed: see above." in text
    assert "Next to try" not in text


def test_workers_that_there_cannot_be_are_not_proposed() -> None:
    why = "num_workers: the dataset has workers of its own, and a loader's worker can start none"
    tuned = replace(TUNED, best=BASELINE, trials=(BASELINE,), binding=Binding.SERIAL, not_tested=(why,))
    text = flat(shown(replace(RESULT, tuned=tuned)))
    assert "Workers cannot be had here: see below." in text
    assert why in text
    assert "Next to try" not in text


def test_an_argument_that_is_taken_away_stands_in_the_old_line_alone() -> None:
    before = trial(LoaderSettings(8, 4, pin_memory=True), 700.0)
    result = replace(RESULT, tuned=replace(TUNED, baseline=before, trials=(before, BEST)))
    lines = [line.strip() for line in shown(result, 120).splitlines()]
    assert "- DataLoader(…, num_workers=8, prefetch_factor=4, pin_memory=True)" in lines
    assert "+ DataLoader(…, num_workers=4, persistent_workers=True)" in lines


def test_every_setting_that_was_run_is_a_row_with_why_it_went() -> None:
    text = flat(shown(RESULT))
    assert "0 - kept no 412 (400–424) 400 6 now" in text
    assert "4 2 kept yes 754 (731–777) 800 6 best" in text
    assert "2 2 kept no 601 (583–619) 640 6 out" in text
    assert "2 workers, prefetch 2: 20 % slower than 4 workers" in text
    assert "4 workers, prefetch 4, out of order: RuntimeError: no room" in text
    assert "What sets the pace with that The CPUs. They are all in use" in text
    assert "Next to try: samples that cost the CPU less" in text
    assert "pin_memory: no CUDA device" in text
    assert "64 s and 1432 steps" in text
    assert "prediction of 3 settings is off by 6 % (median), 6 % at most" in text


@pytest.mark.parametrize(
    ("ended", "because", "words"),
    [
        (SearchEnd.NOTHING_TO_GAIN, "at most 1.2 % to gain", "nothing to gain from the loader"),
        (SearchEnd.TOO_NOISY, "blocks differ by 22 %", "not decided, this machine is too noisy"),
        (SearchEnd.BUDGET, "the budget was used up", "nothing faster found so far"),
        (SearchEnd.STOPPED, "stopped by Ctrl-C", "nothing faster found so far"),
        (SearchEnd.FAILED, "the training was started 3 times", "not decided, the training ended too early"),
        (SearchEnd.DECIDED, "nothing is faster", "nothing faster found"),
    ],
)
def test_each_end_has_words_of_its_own_and_proposes_no_change(ended: str, because: str, words: str) -> None:
    tuned = replace(TUNED, best=BASELINE, speedup=Estimate(1.0, 1.0, 1.0), ended=ended, because=because)
    text = flat(shown(replace(RESULT, tuned=tuned)))
    assert f": {words} " in text
    assert because[1:] in text
    assert "DataLoader(" not in text
    assert "now" in text
    assert "best" not in text.split("What was tried")[1].split("What sets the pace")[0]


def test_what_was_found_until_ctrl_c_is_said_to_be_so_far() -> None:
    text = flat(shown(replace(RESULT, tuned=replace(TUNED, ended=SearchEnd.STOPPED, because="stopped by Ctrl-C"))))
    assert "1.83 times as fast (95 % interval 1.76 to 1.90), so far" in text
    assert "Stopped by Ctrl-C." in text


def test_what_is_promising_is_the_headline_of_a_search_that_was_cut_short() -> None:
    said = "6 workers, prefetch 2 was 2.9 times as fast in its one block"
    cut = replace(TUNED, best=BASELINE, speedup=Estimate(1.0, 1.0, 1.0), ended=SearchEnd.BUDGET, promising=said)
    text = flat(shown(replace(RESULT, tuned=cut)))
    assert f": promising, not proven: {said}; a larger --budget decides it" in text
    assert "nothing faster" not in text
    told = json.loads(json_text(tune_json.tuning(replace(RESULT, tuned=cut))))
    assert told["best"]["settings"] == told["baseline"]["settings"]

    # Why it ended does not say the finding again.
    both = replace(cut, because=f"the budget was used up; promising, not proven: {said}; a larger --budget decides it")
    text = flat(shown(replace(RESULT, tuned=both)))
    assert text.count(said) == 1
    assert "The budget was used up." in text


def test_a_ceiling_that_a_setting_exceeded_is_called_noise() -> None:
    text = flat(shown(replace(RESULT, tuned=replace(TUNED, headroom=0.5))))
    assert "A loader that takes no time" not in text
    assert "Batches that lay ready gave 618, the fastest setting 754: " in text
    assert "the two differ by noise" in text


def test_the_rate_within_an_epoch_is_told_where_beginnings_of_epochs_cost_much() -> None:
    assert "within an epoch" not in flat(shown(RESULT))
    best = replace(BEST, steady_samples_per_s=900.0)
    text = flat(shown(replace(RESULT, tuned=replace(TUNED, best=best, trials=(BASELINE, best)))))
    assert "it is 900 samples/s with 4 workers, prefetch 2." in text


@pytest.mark.parametrize("binding", sorted(value for name, value in vars(Binding).items() if name.isupper()))
def test_what_sets_the_pace_is_said_in_sentences(binding: str) -> None:
    text = flat(shown(replace(RESULT, tuned=replace(TUNED, binding=binding))))
    said = text.split("What sets the pace with that ")[1]
    assert said[0].isupper()
    assert "Next to try: " in said
    assert f"{binding}: " not in said


def test_settings_that_are_as_fast_and_cost_less_are_not_called_faster() -> None:
    cheap = replace(TUNED, speedup=Estimate(1.0, 0.98, 1.02), because="as fast and costs less")
    assert "as fast with less (1.00 times, 95 % interval 0.98 to 1.02)" in flat(shown(replace(RESULT, tuned=cheap)))


def test_for_a_scenario_the_change_is_a_command() -> None:
    own = replace(BASELINE, settings=LoaderSettings(0, pipeline="workers"))
    best = replace(BEST, settings=LoaderSettings(3, 2, pipeline="prefetch"))
    tuned = replace(TUNED, baseline=own, best=best, trials=(own, best))
    scenario = replace(RESULT, what="ssd · ssd300", scenario="ssd", batch_size=8, tuned=tuned)
    text = flat(shown(scenario))
    assert "whyidle compare ssd --pipelines prefetch --batch-sizes 8 --workers 3 --prefetch 2 --device cpu" in text
    emulated = {"kind": "emulated", "name": "emulated:h200", "title": "An emulated H200"}
    assert "--device emulated:h200" in flat(shown(replace(scenario, device=emulated)))


ADVICE = BatchAdvice(
    512,
    64,
    {16: Estimate(754.0, 740.0, 770.0), 64: Estimate(830.0, nan, nan)},
    {16: 812_000_000},
    {1024: "out of memory"},
    2.1e6,
    1.1e5,
    (64,),
    notes=("an estimate",),
)


def test_batch_sizes_have_two_answers_and_what_they_rest_on() -> None:
    text = flat(shown(replace(RESULT, tuned=replace(TUNED, batch=ADVICE))))
    assert "largest that fits 512" in text
    assert "1024 n/a n/a out of memory" in text
    assert "812 MB" in text
    assert "A step takes about 2.1 ms + 0.1 ms a sample." in text


def test_batch_answers_claim_no_more_than_was_tried() -> None:
    advice = replace(ADVICE, failed={}, b_95=None, loader_bound=True, alpha_ns=9e4, beta_ns=10.389e6)
    text = flat(shown(replace(RESULT, tuned=replace(TUNED, batch=advice))))
    assert "largest tried that fits 512" in text
    assert "n/a the loader sets the pace" in text
    assert "larger ones gain little" not in text
    assert "A step takes about 0.1 ms + 10.4 ms a sample." in text


KEYS = {
    *("format", "version", "what", "scenario", "device", "baseline", "best", "speedup", "speedup_low", "speedup_high"),
    *("headroom", "ended", "because", "wall_s", "cost", "noise", "prediction", "trials", "batch", "binding_constraint"),
    *("not_tested", "notes", "batch_size", "promising", "patch"),
}
SETTINGS = ["num_workers", "prefetch_factor", "pin_memory", "batch_size", "pipeline", "in_order", "persistent_workers"]


def test_the_json_is_the_contracts() -> None:
    told = json.loads(json_text(tune_json.tuning(RESULT)))
    assert set(told) == KEYS
    assert (told["format"], told["version"]) == ("whyidle-tune", 1)
    assert told["baseline"]["samples_per_s"] == 412.0
    assert list(told["best"]["settings"]) == SETTINGS
    # What the program's own setting stands for.
    assert told["best"]["settings"]["batch_size"] == told["baseline"]["settings"]["batch_size"] == 16
    assert {"samples_per_s", "low", "high"} < set(told["best"])
    assert (told["speedup"], told["wall_s"], told["binding_constraint"]) == (1.83, 64.2, "cpu")
    assert {"settings", "samples_per_s", "predicted", "seconds"} < set(told["trials"][0])
    assert told["trials"][3]["samples_per_s"] is None
    assert told["trials"][3]["error"] == "RuntimeError: no\nroom"
    assert told["cost"] == {"seconds": 64.2, "steps": 1432, "starts": 1}
    assert told["not_tested"] == ["pin_memory: no CUDA device"]


def test_batch_answers_that_are_not_known_are_null() -> None:
    told = json.loads(json_text(tune_json.tuning(RESULT)))
    assert {key: told["batch"][key] for key in ("b_max", "b_95", "b_star")} == dict.fromkeys(
        ("b_max", "b_95", "b_star")
    )
    some = json.loads(json_text(tune_json.tuning(replace(RESULT, tuned=replace(TUNED, batch=ADVICE)))))
    assert (some["batch"]["b_max"], some["batch"]["b_95"], some["batch"]["b_star"]) == (512, 64, None)
    assert some["batch"]["samples_per_s"] == {"16": 754.0, "64": 830.0}


def test_an_interval_without_an_end_is_null() -> None:
    nothing = replace(TUNED, speedup=Estimate(1.83, 0.0, float("inf")))
    assert json.loads(json_text(tune_json.tuning(replace(RESULT, tuned=nothing))))["speedup_high"] is None


def test_predictions_are_compared_where_both_are_known() -> None:
    error = prediction_error((BASELINE, BEST, FAILED))
    assert error is not None
    assert error[2] == 2
    assert error[1] == pytest.approx(abs(800 / 754 - 1))
    assert prediction_error((FAILED,)) is None
