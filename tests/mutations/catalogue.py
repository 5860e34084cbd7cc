"""Planted mistakes in all that explains a recording: what is wrong then, and which tests ought to say so.

A mistake is told by its source, so that it is found in whichever file that lies; blanks and line breaks may be others.
Where the code says the same otherwise by now, `python -m tests.mutations --list` says so, and the entry is to be
written anew.

Longer than other modules: it is a catalogue, and `--only` and `--list` are its table of contents.
"""

from __future__ import annotations

from dataclasses import dataclass

ANALYSE, REPORT, TUNE, COMMANDS = (f"tests/unit/{layer}" for layer in ("analyse", "report", "tune", "commands"))
GOLDEN = "tests/golden -k "
CAUSES = f"{ANALYSE}/test_diagnosis.py"


def golden(*recordings: str) -> str:
    """The outputs of recordings whose name begins so."""
    return f"{GOLDEN}'{' or '.join(recordings)}'"


@dataclass(frozen=True)
class Mutation:
    """One mistake."""

    name: str
    source: str
    """Has to be found once under `profiler/`."""
    instead: str
    tests: tuple[str, ...]
    """What pytest is given, one after the other, until a test fails."""


MUTATIONS: tuple[Mutation, ...] = (
    # Where the time goes.
    Mutation(
        "a finding may explain more of a part than is left of it",
        "taken = min(left, max(0.0, claim))",
        "taken = max(0.0, claim)",
        (CAUSES, f"{ANALYSE}/test_causes_table.py", f"{ANALYSE}/test_causes_device.py", golden("several-causes")),
    ),
    Mutation(
        "findings are ranked from the least gain",
        "found.sort(key=lambda f: _took_ns(facts, f), reverse=True)",
        "found.sort(key=lambda f: _took_ns(facts, f))",
        (CAUSES, golden("several-causes")),
    ),
    Mutation("a verdict on half the steps", "LEAST_STEPS = 30", "LEAST_STEPS = 15", (CAUSES, golden("too-few-steps"))),
    Mutation(
        "what is worth changing is twice as much",
        "LEAST_GAIN = 0.05",
        "LEAST_GAIN = 0.10",
        (CAUSES, golden("headroom")),
    ),
    Mutation(
        "a gain as if the rest shrank too",
        "gain = self.share / (1 - self.share)",
        "gain = self.share * (1 + self.share)",
        (CAUSES, golden("serial")),
    ),
    Mutation(
        "a tenth is no minor gain",
        "MAJOR_GAIN, CRITICAL_GAIN = 0.10, 0.30",
        "MAJOR_GAIN, CRITICAL_GAIN = 0.20, 0.30",
        (CAUSES, golden("copy")),
    ),
    Mutation(
        "missing stamps of the device are let pass",
        "facts.parts.unresolved_steps > MOST_UNRESOLVED * steps",
        "facts.parts.unresolved_steps < 0",
        (CAUSES, golden("device-silent")),
    ),
    # Causes.
    Mutation(
        "slow links are as they should be",
        "LEAST_LINK_LOSS = 0.05",
        "LEAST_LINK_LOSS = 0.95",
        (f"{ANALYSE}/test_causes_copy.py",),
    ),
    Mutation(
        "pinned copies are taken for pageable ones",
        "if facts.pinned is not False:",
        "if facts.pinned is False:",
        (f"{ANALYSE}/test_causes_copy.py",),
    ),
    Mutation(
        "copies ahead are asked for where they are made",
        "if facts.pinned is not True or facts.copied_ahead:",
        "if facts.pinned is not True:",
        (f"{ANALYSE}/test_causes_copy.py", golden("copy")),
    ),
    Mutation(
        "compiling is said of any new shape",
        "compiles = seen.compiling_ns >= MOSTLY * seen.total_ns",
        "compiles = seen.compiling_ns >= 0",
        (f"{ANALYSE}/test_causes_device.py", golden("shape-churn")),
    ),
    Mutation(
        "cooling is advised against the power cap",
        'if held.by == "the power cap"',
        'if held.by != "the power cap"',
        (f"{ANALYSE}/test_causes_clocks.py", golden("throttled")),
    ),
    Mutation(
        "the clock's share of the looks lacks its hundred",
        "{held.full_mhz:.0f} MHz for {100 * held.share:.0f} %",
        "{held.full_mhz:.0f} MHz for {held.share:.0f} %",
        (f"{ANALYSE}/test_causes_clocks.py", golden("throttled")),
    ),
    Mutation(
        "the idling behind a call is told in µs as ms",
        "longest = None if calls is None else calls.longest_ns / 1e6",
        "longest = None if calls is None else calls.longest_ns / 1e3",
        (f"{ANALYSE}/test_causes_host.py", golden("sync")),
    ),
    Mutation(
        "waiting for the lock at finished batches is not the lock's",
        "gil_ns = pieces_of(facts)[Piece.GIL] + held_ns",
        "gil_ns = pieces_of(facts)[Piece.GIL]",
        (f"{ANALYSE}/test_causes_host.py", f"{ANALYSE}/test_causes_input_pieces.py", golden("gil")),
    ),
    Mutation(
        "workers with uneven shares are as good as even ones",
        "UNEVEN = 0.75",
        "UNEVEN = 0.0",
        (f"{ANALYSE}/test_causes_input.py", golden("sharding")),
    ),
    Mutation(
        "too few workers are called busy when they are not",
        "if not wait.workers_busy or not wait.cpu_known or wait.starved:",
        "if not wait.cpu_known or wait.starved:",
        (f"{ANALYSE}/test_causes_input.py", golden("too-few-workers")),
    ),
    Mutation(
        "workers are busy from a tenth of the time on",
        "BUSY = 0.8",
        "BUSY = 0.1",
        (f"{ANALYSE}/test_causes_input.py", f"{ANALYSE}/test_diagnosis_input.py", golden("too-few-workers")),
    ),
    Mutation(
        "a loader that mostly reads does not",
        "MOSTLY_READING = 0.5",
        "MOSTLY_READING = 1.0",
        (f"{ANALYSE}/test_causes_input.py", golden("storage")),
    ),
    Mutation(
        "no hand-over is most of the wait",
        "queue_capacity is not None and handed >= MOSTLY",
        "queue_capacity is not None and handed > 1",
        (f"{ANALYSE}/test_causes_input_pieces.py", golden("handoff")),
    ),
    Mutation(
        "more workers than CPUs count from three times as many on",
        "HEAVILY_QUEUED_PCT = 40.0",
        "HEAVILY_QUEUED_PCT = 90.0",
        (f"{ANALYSE}/test_causes_input.py", golden("oversubscribed")),
    ),
    Mutation(
        "a validation that waits is one that computes",
        'if most == "waiting" and evaluation is not None:',
        'if most == "evaluating" and evaluation is not None:',
        (f"{ANALYSE}/test_causes_boundary.py", golden("validation")),
    ),
    Mutation(
        "ends of epochs are told of workers that live on",
        "facts.persistent_workers is not False or not outside.epochs_ended",
        "not outside.epochs_ended",
        (f"{ANALYSE}/test_causes_boundary.py", golden("ends-of-epochs")),
    ),
    # Ranks.
    Mutation(
        "a rank is late by chance",
        "SIGMAS = 3.0",
        "SIGMAS = 300.0",
        (f"{ANALYSE}/test_ranks.py", golden("ranks-late")),
    ),
    Mutation(
        "the others wait a thousand times as long",
        "The other ranks wait {straggler.others_wait_ns / 1e6:.1f} ms",
        "The other ranks wait {straggler.others_wait_ns / 1e3:.1f} ms",
        (f"{ANALYSE}/test_ranks.py", f"{REPORT}/test_ranks.py", golden("ranks-late-for-data")),
    ),
    Mutation(
        "what makes a rank late is advised where it is on all",
        "changes.insert(0 if all(alike) else len(changes), _CHANGE[part])",
        "changes.insert(len(changes), _CHANGE[part])",
        (f"{ANALYSE}/test_ranks.py", golden("ranks-late")),
    ),
    Mutation(
        "a stage that lasts from look to look is as sure as one seen each time anew",
        "wilson(share, len(holds) * (1 - alike) / (1 + alike))",
        "wilson(share, len(holds))",
        (f"{ANALYSE}/test_where_stage_shares.py",),
    ),
    Mutation(
        "what PIL decodes for a transform is the transform's",
        "if timed is not None and (found is None or timed[0] >= found[1] or found[0].result in (TRANSFORM, COLLATE)):",
        "if timed is not None:",
        (f"{ANALYSE}/test_where_stages.py",),
    ),
    # A process seen from outside, headroom.
    Mutation(
        "a verdict on a process after one look",
        "LEAST_LOOKS = 30 MOSTLY = 0.5",
        "LEAST_LOOKS = 1\nMOSTLY = 0.5",
        (f"{ANALYSE}/test_attached.py", golden("attached")),
    ),
    Mutation(
        "a process seen from outside trains while it imports",
        'if _imports(stack): return "importing"',
        "",
        (f"{ANALYSE}/test_attached_stacks.py",),
    ),
    Mutation(
        "what came before a training counts for its shares",
        "first = int(trains.argmax()) if timed and trains.any() else 0",
        "first = 0",
        (f"{ANALYSE}/test_attached.py",),
    ),
    Mutation(
        "headroom is the slowest stretch",
        "median(rates), min(rate - error",
        "min(rates), min(rate - error",
        (f"{ANALYSE}/test_headroom.py", golden("headroom")),
    ),
    Mutation("a stretch settles at once", "SETTLING = 4", "SETTLING = 0", (f"{ANALYSE}/test_headroom.py",)),
    # Cells.
    Mutation(
        "efficiency forgets the ranks",
        "None if self.speedup is None else self.speedup.divided_by(self.ranks)",
        "None if self.speedup is None else self.speedup.divided_by(1)",
        (f"{ANALYSE}/test_scaling.py", golden("compare-ranks")),
    ),
    Mutation(
        "the range of a speed-up is turned round",
        "self.low / other.high, self.high / other.low, repeats",
        "self.low / other.low, self.high / other.high, repeats",
        (f"{ANALYSE}/test_scaling.py", f"{ANALYSE}/test_statistics.py", golden("compare-ranks")),
    ),
    Mutation(
        "time per sample is in ns",
        "per_sample = 1e-3 / facts.samples",
        "per_sample = 1 / facts.samples",
        (f"{ANALYSE}/test_batch_size.py", golden("compare-sizes")),
    ),
    Mutation(
        "single runs are taken to be exact",
        "RUN_NOISE = 0.03",
        "RUN_NOISE = 0.003",
        (f"{ANALYSE}/test_batch_size_doubts.py", f"{ANALYSE}/test_diff_noise.py", golden("compare-sizes", "diff")),
    ),
    Mutation(
        "augmentation is free up to half the time",
        "FREE = 0.05",
        "FREE = 0.5",
        (f"{ANALYSE}/test_differential.py", f"{ANALYSE}/test_compare.py", golden("compare")),
    ),
    Mutation(
        "the model may be off by ten times as much",
        "TRIAL_SD = 0.015",
        "TRIAL_SD = 0.15",
        (
            f"{ANALYSE}/test_replay_learning.py",
            f"{ANALYSE}/test_replay_predict.py",
            f"{TUNE}/test_search.py",
            golden("tuned"),
        ),
    ),
    # Two sides.
    Mutation(
        "a difference has the wrong sign",
        "ratio = log(total_a / total_b)",
        "ratio = log(total_b / total_a)",
        (f"{ANALYSE}/test_diff.py", golden("diff-slower-loader")),
    ),
    Mutation(
        "what appeared has vanished",
        "tuple(found for cause, found in of_b.items() if cause not in of_a)",
        "tuple(found for cause, found in of_a.items() if cause not in of_b)",
        (f"{ANALYSE}/test_diff.py", f"{REPORT}/test_diff_text.py", golden("diff")),
    ),
    Mutation(
        "slower is faster in words",
        "'faster' if speedup >= 1 else 'slower'",
        "'slower' if speedup >= 1 else 'faster'",
        (f"{REPORT}/test_diff_text.py", golden("diff")),
    ),
    Mutation(
        "a part counts as changed within noise",
        "return self.enough and away and abs(self.change.value) >= self.least",
        "return self.enough and abs(self.change.value) >= self.least",
        (f"{ANALYSE}/test_diff_noise.py", golden("diff")),
    ),
    Mutation(
        "emulated and measured are compared",
        "if len(kinds) > 1:",
        "if len(kinds) > 2:",
        (f"{ANALYSE}/test_diff.py", f"{COMMANDS}/test_check_regression.py", golden("diff-devices", "mistakes")),
    ),
    Mutation(
        "a loss that noise may explain fails",
        "elif lost.value > max(limit, usual):",
        "elif lost.value > limit:",
        (f"{COMMANDS}/test_check_regression.py", golden("check")),
    ),
    Mutation(
        "the most allowed is the least",
        "value <= limit if at_most else value >= limit",
        "value >= limit if at_most else value <= limit",
        (f"{COMMANDS}/test_check.py", golden("check")),
    ),
    Mutation(
        "what was not measured passes",
        "return self.allowed or self.passed is True",
        "return self.allowed or self.passed is not False",
        (f"{COMMANDS}/test_check.py", golden("check")),
    ),
    Mutation(
        "a check that fails ends with 0",
        "return 0 if all(each.holds for each in found) else FAILED",
        "return 0",
        (f"{COMMANDS}/test_check.py", golden("check")),
    ),
    # Tuning.
    Mutation(
        "the winner is the dearest of those alike",
        "return Best(min(ties, key=lambda arm: cost(arm, self._plan.baseline)), leader)",
        "return Best(max(ties, key=lambda arm: cost(arm, self._plan.baseline)), leader)",
        (f"{TUNE}/test_search.py", golden("tuned")),
    ),
    Mutation(
        "blocks of other rounds prove a setting",
        "isinstance(each.round, tuple) and each.round[1] >= first",
        "isinstance(each.round, tuple) and each.round[1] >= 0",
        (f"{TUNE}/test_search.py", golden("tuned")),
    ),
    Mutation(
        "the first of a pass is not part of it",
        "rate if samples is None else samples / (samples / rate + start_ns / 1e9)",
        "rate if samples is None else samples / (samples / rate)",
        (f"{TUNE}/test_search.py", golden("tuned")),
    ),
    Mutation(
        "what is hopeless is tried",
        "HOPELESS = 0.5",
        "HOPELESS = 0.0",
        (f"{TUNE}/test_candidates.py", f"{TUNE}/test_search.py"),
    ),
    Mutation(
        "blocks are half as noisy as they are taken to be",
        "BLOCK_PRIOR = NoisePrior(0.04, 2.0)",
        "BLOCK_PRIOR = NoisePrior(0.02, 2.0)",
        (f"{TUNE}/test_block_fit.py", golden("tuned"), f"{ANALYSE}/test_statistics.py"),
    ),
    Mutation(
        "half of the best rate is as good as it",
        "NEAR_BEST = 0.95",
        "NEAR_BEST = 0.5",
        (f"{ANALYSE}/test_batch_choice.py", f"{TUNE}/test_batch_advise.py", f"{TUNE}/test_batch_ladder.py"),
    ),
    Mutation(
        "a bent line of memory is trusted as a straight one",
        "max(0, fits if self.straight else min(fits, EXTRAPOLATED * self.largest))",
        "max(0, fits)",
        (f"{ANALYSE}/test_batch_choice.py", f"{TUNE}/test_batch_advise.py", f"{TUNE}/test_batch_ladder.py"),
    ),
    # Text, Markdown, pages.
    Mutation(
        "a step's share of the overhead is told in ns",
        'f"{ns / 1e3:.0f} µs" if ns >= 10_000',
        'f"{ns:.0f} µs" if ns >= 10_000',
        (f"{REPORT}/test_texts.py", golden("serial", "long")),
    ),
    Mutation(
        "bars lack their last character",
        "[: width - sum(whole.values())]",
        "[: width - sum(whole.values()) - 1]",
        (REPORT, golden("serial")),
    ),
    Mutation(
        "rows of a Markdown table end in their cells",
        r"[\\`*_{}\[\]|~$]|^[-+]",
        r"[\\`*_{}\[\]~$]|^[-+]",
        (f"{REPORT}/test_markdown.py", golden("compare", "odd-words")),
    ),
    Mutation(
        "Markdown lets HTML through",
        '.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")',
        "",
        (f"{REPORT}/test_markdown.py", golden("odd-words")),
    ),
    Mutation(
        "pages escape nothing",
        "autoescape=True,",
        "autoescape=False,",
        (f"{REPORT}/test_page_run.py", golden("odd-words")),
    ),
    Mutation(
        "control characters reach a page",
        "return plain(value) if isinstance(value, str) and not isinstance(value, Markup) else value",
        "return value",
        (
            f"{REPORT}/test_page_run.py",
            f"{REPORT}/test_page_attach.py",
            f"{REPORT}/test_page_compare.py",
            golden("odd-words"),
        ),
    ),
    Mutation(
        "a table loses its last row of evidence",
        "rows[:MOST_EVIDENCE],",
        "rows[: MOST_EVIDENCE - 1][:-1],",
        (f"{REPORT}/test_markdown.py", golden("serial")),
    ),
    Mutation(
        "emulated figures stand in an ordinary column",
        'return f"{EMULATED}\\n{words}" if emulated else words',
        "return words",
        (f"{REPORT}/test_compare_axes.py", f"{REPORT}/test_page_compare.py", golden("compare")),
    ),
    Mutation(
        "busy is told of a part that is not computing",
        'share(shares.get("compute"), 0) for shares in known',
        'share(shares.get("input"), 0) for shares in known',
        (f"{REPORT}/test_compare_axes.py", golden("compare")),
    ),
    # For other programs.
    Mutation(
        "Prometheus gets milliseconds for seconds",
        '"Length of a step, the median.", 1e-3)',
        '"Length of a step, the median.", 1.0)',
        (f"{REPORT}/test_prometheus.py", golden("serial")),
    ),
    Mutation(
        "quotes in a label end it",
        """.replace('"', '\\\\"')""",
        "",
        (f"{REPORT}/test_prometheus.py", golden("odd-words")),
    ),
    Mutation(
        "a spreadsheet runs a file's name",
        """return f"'{shown}" if shown.startswith(_FORMULA) else shown""",
        "return shown",
        (f"{REPORT}/test_export_tables.py", golden("odd-words")),
    ),
    Mutation(
        "what was not measured is -1 in a table",
        'cells[row] = ""',
        "cells[row] = -1",
        (f"{REPORT}/test_export_tables.py", golden("serial")),
    ),
    Mutation(
        "a line of a check becomes a command of GitHub's",
        r""".replace("\r", "%0D").replace("\n", "%0A")""",
        "",
        (f"{COMMANDS}/test_check_outputs.py", golden("check", "odd-words")),
    ),
    Mutation(
        "the JSON of a difference swaps its ends",
        "SpeedupJson(faster.value, faster.low, faster.high,",
        "SpeedupJson(faster.value, faster.high, faster.low,",
        (f"{REPORT}/test_diff_text.py", golden("diff")),
    ),
    Mutation(
        "a share of a finding is not in percent",
        "CauseJson(found.cause, found.title, 100 * found.share, found.severity)",
        "CauseJson(found.cause, found.title, found.share, found.severity)",
        (golden("diff"),),
    ),
    Mutation(
        "a timeline's bins hold more than the time",
        "unseen = np.diff(edges) - sum(parts.values(), np.zeros(count, dtype=np.int64))",
        "unseen = np.diff(edges)",
        (f"{ANALYSE}/test_timeline_bins.py", golden("thinned")),
    ),
    # What a line is given, and what is used of it.
    Mutation(
        "two things that samples share are shared together",
        "next((part for parts in found if len(parts) == 1 for part in parts if part != EACH), None)",
        "next((part for parts in found for part in parts if part != EACH), None)",
        (f"{ANALYSE}/test_where_given.py",),
    ),
    Mutation(
        "a loop that makes samples goes through the same each time",
        "self._add(names_in(loop.target), frozenset((FRESH,)))",
        "pass",
        (f"{ANALYSE}/test_where_given.py",),
    ),
    Mutation(
        "a part is used though all is given back",
        "if not cuts or self._kept_whole(list(cuts)):",
        "if not cuts:",
        (f"{ANALYSE}/test_where_given.py",),
    ),
    Mutation(
        "an iterator that was used up was left early",
        "left.append(len(made) > 0 and made.max() > taken)",
        "left.append(len(made) > 0 and made.max() >= taken)",
        (f"{ANALYSE}/test_exposed_data_wait.py",),
    ),
    Mutation(
        "work grows that was looked at more often",
        "[count[half] / seen[half] * time_ns for half, time_ns in halves]",
        "[count[half] for half, time_ns in halves]",
        (f"{ANALYSE}/test_own_loop.py",),
    ),
    # Comparisons while they run.
    Mutation(
        "runs that were left out are not counted",
        'self.setting["budget"] = {"seconds": budget.seconds, "runs_left_out": missing}',
        'self.setting["budget"] = {"seconds": budget.seconds, "runs_left_out": 0}',
        (f"{COMMANDS}/test_compare_budget.py",),
    ),
    Mutation(
        "a full disk ends a comparison",
        'outcome = TrialOutcome("failed", str(error))',
        "raise",
        (f"{COMMANDS}/test_compare_budget.py",),
    ),
    # Promises.
    Mutation(
        "what leaves the loop for the workers is made nowhere",
        "cpu_ns=cpu + gone.loop_ns if gone.moved else cpu,",
        "cpu_ns=cpu,",
        (f"{ANALYSE}/test_replay_what_if.py",),
    ),
    Mutation(
        "a promise is kept by whatever is more",
        "if self.low <= measured.value <= self.high:",
        "if self.low <= measured.value:",
        (f"{ANALYSE}/test_diff_promise.py",),
    ),
    Mutation(
        "settings that A had already count as followed",
        "return same and any(each is not None and each.changed for each in known)",
        "return same",
        (f"{ANALYSE}/test_diff_promise.py",),
    ),
    Mutation(
        "a literal that is not what ran is edited",
        "if applies and found.value != recorded and found.value is not None:",
        "if False:",
        (f"{TUNE}/test_patch.py",),
    ),
    Mutation(
        "a batch size that was too slow to be tried does not fit",
        "return self.outcome != ProbeOutcome.LATE",
        "return True",
        (f"{TUNE}/test_batch_ladder.py",),
    ),
)
