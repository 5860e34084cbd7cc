"""A driver that fails, before or in the midst of a run: each failure is a sentence of its own, what was read before is
kept, and what cannot be read is missing, never 0."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from support.fakes.driver import HEALTHY, FakeDriver, Named

Looks = Callable[..., tuple[list[str], list[list[Named]]]]

FIGURES = {"utilisation_pct", "sm_active_pct", "memory_used_bytes", "power_mw", "sm_clock_mhz", "temperature_c"}
ALL = HEALTHY + "gpm 61 12 8 33\n"
"""A GPU that answers everything."""


def figures(look: list[Named]) -> set[str]:
    return set().union(*look) - {"t_ns", "device", "window_ns"} if look else set()


MIDWAY = 40
"""The number of the call from which on a scripted failure holds: three or four looks are done by then."""
FAILURES = [
    (15, "GPU 0 of the run no longer answers (GPU is lost): its figures end here. The kernel log names the Xid."),
    (
        18,
        "The NVIDIA driver was replaced while its old kernel module is still loaded (RM has detected an NVML/RM "
        "version mismatch.): no accelerator figures from here on. Running CUDA programs go on; reload the "
        "module or reboot.",
    ),
    (
        999,
        "The NVIDIA driver stopped answering (Unknown Error): no accelerator figures from here on. A container loses "
        "its /dev/nvidia* this way when systemd reloads on the host; restart the container.",
    ),
    (4, "The NVIDIA driver refuses this user (Insufficient Permissions): no accelerator figures from here on."),
    (9, "The NVIDIA driver was unloaded (Driver Not Loaded): no accelerator figures from here on."),
]


@pytest.mark.parametrize(("code", "sentence"), FAILURES, ids=lambda value: value if isinstance(value, int) else "")
def test_a_failure_in_the_midst_of_a_run_is_one_sentence_and_keeps_what_was_read(
    looks: Looks, driver: FakeDriver, code: int, sentence: str
) -> None:
    said, rows = looks(ALL + f"fault * {code} {MIDWAY}\n", [float(i) for i in range(12)])
    assert said == [sentence]
    assert figures(rows[1]) >= FIGURES
    ended = next(i for i, look in enumerate(rows) if not look)
    assert 2 <= ended < 12
    assert all(look == [] for look in rows[ended:])
    # The look in which it failed keeps what it had read: all of it figures that were really there.
    values = {name: {r[name] for look in rows[:ended] for r in look if name in r} for name in FIGURES}
    assert values == {
        "utilisation_pct": {37},
        "sm_active_pct": {61},
        "memory_used_bytes": {5_000_000_000},
        "power_mw": {312_500},
        "sm_clock_mhz": {1755},
        "temperature_c": {64},
    }
    # Nothing is asked of it any more, but for the calls that told one metric's failure from the driver's.
    assert len(driver.calls()) <= MIDWAY + 3


def test_a_metric_that_ends_midway_says_that_it_was_there(looks: Looks) -> None:
    said, rows = looks(ALL + "fault nvmlDeviceGetPowerUsage 4 2\n", [0, 1, 2, 3])
    assert [[r["power_mw"] for r in look if "power_mw" in r] for look in rows] == [[312_500], [312_500], [], []]
    assert all("temperature_c" in figures(look) for look in rows)
    assert said == [
        "No longer measured: power draw. The driver refuses it to this user (Insufficient Permissions); run as root."
    ]


def test_a_process_list_gives_counts_and_memory_but_no_owner(looks: Looks) -> None:
    _, rows = looks(ALL + "held 6000000000 2000000000\n", [5])
    (state,) = [r for r in rows[0] if "processes" in r]
    assert (state["processes"], state["processes_bytes"], state["largest_process_bytes"]) == (2, 8 * 10**9, 6 * 10**9)


def test_processes_whose_memory_is_not_told_are_counted_only(looks: Looks) -> None:
    """The driver marks what it does not tell with 2^64 - 1."""
    _, rows = looks(ALL + f"held 6000000000 {2**64 - 1}\n", [5])
    (state,) = [r for r in rows[0] if "processes" in r]
    assert state["processes"] == 2
    assert not {"processes_bytes", "largest_process_bytes"} & set(state)


def test_critical_errors_are_told_once_with_their_time(looks: Looks) -> None:
    script = ALL + "devices 2\nevent 1 8 79 3\nevent 1 8 79 4\nevent 0 8 4242 4\nevent 0 2 0 7\n"
    said, rows = looks(script, [0, 1, 2, 3, 4])
    assert said == [
        "GPU 1 of the run reported Xid 79 (the GPU has fallen off the bus), 2 s after sampling began.",
        "GPU 0 of the run reported Xid 4242, 2 s after sampling began.",
        "GPU 0 of the run reported an uncorrectable memory error (ECC), 3 s after sampling began.",
    ]
    assert all("power_mw" in figures(look) for look in rows)


@pytest.mark.parametrize(
    ("script", "sentence"),
    [
        ("fault nvmlDeviceRegisterEvents 4\n", "Not watched: {} (Insufficient Permissions); the kernel log has them."),
        ("eventkinds 0\n", "Not watched: {} (Not Supported); the kernel log has them."),
        ("fault nvmlEventSetWait_v2 999 2\n", "No longer watched: {} (Unknown Error); the kernel log has them."),
    ],
)
def test_errors_that_cannot_be_watched_are_one_sentence(looks: Looks, script: str, sentence: str) -> None:
    said, rows = looks(ALL + "devices 2\n" + script, [0, 1, 2, 3])
    what = "critical errors of the GPU (Xid, ECC). The driver does not report them here"
    assert said == [sentence.format(what)]
    assert figures(rows[-1]) >= {"power_mw", "memory_used_bytes"}


@pytest.mark.parametrize(("code", "words"), [(15, "GPU is lost"), (16, "GPU requires restart")])
def test_a_lost_gpu_ends_alone(looks: Looks, driver: FakeDriver, code: int, words: str) -> None:
    script = HEALTHY + f"devices 2\nfault * {code} 30 1\n"
    said, rows = looks(script, [float(i) for i in range(10)])
    powers = [[r["device"] for r in look if "power_mw" in r] for look in rows]
    assert powers[0] == [0, 1]
    assert powers[-1] == [0]
    assert len([gpu for _, gpu in driver.calls() if gpu == 1]) == 31
    assert said == [
        f"GPU 1 of the run no longer answers ({words}): its figures end here. The kernel log names the Xid."
    ]


def test_a_passing_error_leaves_a_hole_and_is_retried(looks: Looks, driver: FakeDriver) -> None:
    said, rows = looks(HEALTHY + "fault nvmlDeviceGetPowerUsage 20\n", [0, 1, 2])
    assert not any("power_mw" in r for look in rows for r in look)
    assert [name for name, _ in driver.calls()].count("nvmlDeviceGetPowerUsage") == 3
    assert set(said) == {"Reading power draw failed at least once (Insufficient Memory); those samples lack it."}


@pytest.mark.parametrize(
    ("code", "sentence"),
    [
        (9, "No NVIDIA driver here (Driver Not Loaded): no accelerator figures.\n"),
        (4, "The NVIDIA driver refuses this user (Insufficient Permissions): no accelerator figures.\n"),
        (
            18,
            "The NVIDIA driver was replaced while its old kernel module is still loaded (RM has detected an NVML/RM "
            "version mismatch.): no accelerator figures from here on. Running CUDA programs go on; reload "
            "the module or reboot.\n",
        ),
    ],
)
def test_a_driver_that_does_not_start_is_one_sentence_and_no_record(
    recorded: Callable[..., tuple[list[Named], str]], code: int, sentence: str
) -> None:
    assert recorded(f"init {code}\n") == ([], sentence)
