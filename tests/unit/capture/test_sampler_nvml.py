"""NVML as the sampler uses it: the real `pynvml`, loading a library made from `tests/support/fakes/nvml.c`.

A driver that fails, before or in the midst of a run: each failure is a sentence of its own, what was read before is
kept, and what cannot be read is missing, never 0. Looked at are the GPUs that training processes of this host name.
"""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Callable, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from support.fakes.driver import HEALTHY, NAMES, FakeDriver, Named
from whyidle.capture.sampler import nvml
from whyidle.capture.sampler.devices import UNNAMED_NS, Devices
from whyidle.commands.main import main
from whyidle.record.files import write_json
from whyidle.record.run import SampledDevice, create_run, open_run, sampled_devices
from whyidle.record.schema import Row

Looks = Callable[..., tuple[list[str], list[list[Named]]]]

FIGURES = {"utilisation_pct", "sm_active_pct", "memory_used_bytes", "power_mw", "sm_clock_mhz", "temperature_c"}
ALL = HEALTHY + "gpm 61 12 8 33\n"
"""A GPU that answers everything."""
REFUSES = "This GPU or its driver does not give it"


def figures(look: list[Named]) -> set[str]:
    return set().union(*look) - {"t_ns", "device", "window_ns"} if look else set()


def test_the_source_says_what_the_driver_says(looks: Looks, driver: FakeDriver) -> None:
    script = HEALTHY + "gpm 61.5 12.25 8.5 33\n"
    said, found = looks(script, [i / 5 for i in range(12)])
    rows = [r for look in found for r in look]
    assert said == []
    assert {r["device"] for r in rows} == {0}

    assert [r["utilisation_pct"] for r in rows if "utilisation_pct" in r] == [37] * 12
    assert all("window_ns" not in r for r in rows if "utilisation_pct" in r)

    states = [r for r in rows if "memory_used_bytes" in r]
    assert len(states) == 3
    constant = {
        "utilisation_pct": 37,
        "memory_used_bytes": 5_000_000_000,
        "memory_total_bytes": 80_000_000_000,
        "power_mw": 312_500,
        "sm_clock_mhz": 1755,
        "sm_clock_max_mhz": 1980,
        "temperature_c": 64,
        "throttle_reasons": 4,
    }
    links = {"pcie_generation": 5, "pcie_width": 16, "pcie_max_generation": 5, "pcie_max_width": 16}
    for i, state in enumerate(states):
        # The counters count on, the one of 32 bits past its wrap.
        assert {n: v for n, v in state.items() if n != "t_ns"} == constant | (links if i == 2 else {}) | {
            "device": 0,
            "power_capped_ns": 500 + 100 * i,
            "thermal_ns": 1005 + 11 * i,
            "pcie_tx_bytes": 7_000_000_000 + 1000 * i,
            "pcie_rx_bytes": 4_000_000_000 + 3_000_000_000 * i,
        }

    gpm = [r for r in rows if "sm_active_pct" in r]
    assert len(gpm) == 11
    for before_this, window in pairwise(gpm):
        assert window["window_ns"] == window["t_ns"] - before_this["t_ns"] == 200_000_000
        shares = [window[n] for n in ("sm_active_pct", "tensor_active_pct", "dram_active_pct")]
        assert shares == [61.5, 8.5, 33]
    called = {name for name, _ in driver.calls()}
    assert not called & {"nvmlDeviceGetPcieThroughput", "nvmlDeviceGetComputeRunningProcesses_v3"}


def test_rare_readings_come_rarely(looks: Looks, driver: FakeDriver) -> None:
    steps = [i / 5 for i in range(5 * 60)]
    said, rows = looks(HEALTHY, steps)
    assert said == []
    of = {name: [t for t, look in zip(steps, rows, strict=True) if any(name in r for r in look)] for name in NAMES}
    assert of["pcie_generation"] == of["pcie_width"] == [2, 12, 22, 32, 42, 52]
    assert of["processes"] == [5, 25, 45]
    assert of["power_mw"] == list(range(60))
    calls = [name for name, _ in driver.calls()]
    assert calls.count("nvmlDeviceGetFieldValues") == 60
    last = [r for r in rows[25] if "processes" in r]
    assert [r["processes"] for r in last] == [2]


def test_devices_are_those_named_in_their_order(looks: Looks, driver: FakeDriver) -> None:
    script = HEALTHY + "devices 3\nfault nvmlDeviceGetPowerUsage 3 0 2\n"
    said, rows = looks(script, [0], uuids=("GPU-fake-2", "GPU-fake-0", "GPU-else"))
    assert [(r["device"], r.get("power_mw")) for r in rows[0]] == [(0, None), (1, 312_500)]
    assert {gpu for _, gpu in driver.calls()} == {0, 2}
    assert "The driver does not show the GPU GPU-else (Not Found), so it is not recorded." in said


def test_what_devices_and_driver_are_called_is_noted_once_and_what_is_refused_is_not_made_up(
    looks: Looks, tmp_path: Path
) -> None:
    script = "driver 570.133.20\ndevices 2\nfault nvmlDeviceGetEnforcedPowerLimit 3 0 1"
    said, _ = looks(HEALTHY + script, [0])
    devices = SampledDevice(0, "NVIDIA Fake 0", 700_000), SampledDevice(1, "NVIDIA Fake 1", None)
    assert sampled_devices(tmp_path / "run") == devices
    assert open_run(tmp_path / "run").info["device"] == {"kind": "cuda", "uuids": [], "driver": "570.133.20"}
    assert said == [f"Not measured: the power limit. {REFUSES} (Not Supported)."]
    # What the training wrote is left as it is.
    assert "driver" not in json.loads((tmp_path / "run" / "run.json").read_text())["device"]


def test_a_driver_that_does_not_tell_its_version_has_none(looks: Looks, tmp_path: Path) -> None:
    said, [rows] = looks(HEALTHY + "fault nvmlSystemGetDriverVersion 3", [0])
    assert any("power_mw" in row for row in rows)
    assert "driver" not in open_run(tmp_path / "run").info["device"]
    assert said == [f"Not measured: the version of the driver. {REFUSES} (Not Supported)."]


def test_where_nothing_trains_all_gpus_are_looked_at_at_once(
    driver: FakeDriver, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    driver.behave(HEALTHY + "devices 2")
    for name, value in driver.environment.items():
        monkeypatch.setenv(name, value)
    assert main(["live", "--gpus", "--once", "--json"]) == 0
    devices = json.loads(capsys.readouterr().out)["devices"]
    assert [(device["name"], device["memory_used_bytes"]) for device in devices] == [
        ("NVIDIA Fake 0", 5_000_000_000),
        ("NVIDIA Fake 1", 5_000_000_000),
    ]
    assert all(device["busy_pct"][-1] == 37 for device in devices)


def test_counters_fall_back_to_the_older_thermal_one(looks: Looks) -> None:
    script = """
        memory 1 2
        state 1 1 1 1 1 1 1 1
        field 75 3 900 50
        fieldfault 74 4
    """
    said, rows = looks(script, [0, 1, 2])
    states = [r for look in rows for r in look if "power_mw" in r]
    assert [s.get("thermal_ns") for s in states] == [None, 900, 950]
    assert not any({"power_capped_ns", "pcie_rx_bytes", "pcie_tx_bytes"} & set(s) for s in states)
    assert sorted(s.split(".")[0] for s in said) == [
        "Not measured: PCIe bytes received",
        "Not measured: PCIe bytes sent",
        "Not measured: time held down by temperature (hardware)",
        "Not measured: time held down by temperature (software)",
        "Not measured: time held down by the power cap",
    ]


NOT_GIVEN = f"{REFUSES} (Not Supported)."
PERMISSION = "The driver refuses it to this user (Insufficient Permissions); run as root"
LISTED = "NVIDIA's list of Xid errors says what that is"
WATCHED = "critical errors of the GPU (Xid, ECC), which the kernel log has"
NO_GPU = "The NVIDIA driver shows no GPU here, so there are no accelerator figures."
UNTOLD = 2**64 - 1
"""How the driver marks what it does not tell."""


@pytest.mark.parametrize(
    ("script", "said", "missing", "holds"),
    [
        # Refused for good: asked for once.
        *(
            (
                f"fault nvmlDeviceGetPowerUsage {code}",
                [f"Not measured: power draw. {REFUSES} ({words})."],
                "power_mw",
                {},
            )
            for code, words in (
                (3, "Not Supported"),
                (13, "Function Not Found"),
                (25, "fake error 25"),
                (2, "Invalid Argument"),
            )
        ),
        # A capability leaves the figure itself.
        *(
            (f"fault nvmlDeviceGet{call} 3", [f"Not measured: {metric}. {NOT_GIVEN}"], field, holds)
            for call, metric, field, holds in (
                ("Temperature", "temperature", "temperature_c", {}),
                ("CurrentClocksEventReasons", "clock event reasons", "throttle_reasons", {}),
                ("MaxClockInfo", "the highest multiprocessor clock", "sm_clock_max_mhz", {"sm_clock_mhz": 1755}),
                ("MaxPcieLinkGeneration", "the highest PCIe generation", "pcie_max_generation", {"pcie_generation": 5}),
                ("MaxPcieLinkWidth", "the greatest PCIe width", "pcie_max_width", {"pcie_width": 16}),
            )
        ),
        ("devices 0", [NO_GPU], "utilisation_pct power_mw", {}),
        # Older names of a call are tried.
        ("fault nvmlDeviceGetMemoryInfo_v2 13", [], "", {"memory_used_bytes": 5_000_000_000}),
        # A permission names the setting.
        (
            "fault nvmlGpmSampleGet 4",
            [
                f"Not measured: multiprocessor activity (GPM). {PERMISSION}, or load the driver with "
                "NVreg_RestrictProfilingToAdminUsers=0."
            ],
            "sm_active_pct",
            {},
        ),
        (
            "fault nvmlDeviceGetPowerUsage 4 2",
            [f"No longer measured: power draw. {PERMISSION}."],
            "",
            {"power_mw": 312_500},
        ),
        # A metric that is missing leaves the others; what is no number is not measured.
        (
            "gpm nan 12 -1 4",
            [f"Not measured: tensor_active_pct (GPM). {NOT_GIVEN}"],
            "sm_active_pct tensor_active_pct",
            {"dram_active_pct": 4},
        ),
        (f"memory {UNTOLD} 80000000000", [], "memory_used_bytes", {"memory_total_bytes": 80_000_000_000}),
        (
            "held 6000000000 2000000000",
            [],
            "",
            {"processes": 2, "processes_bytes": 8 * 10**9, "largest_process_bytes": 6 * 10**9},
        ),
        (f"held 6000000000 {UNTOLD}", [], "processes_bytes largest_process_bytes", {"processes": 2}),
        # A passing error leaves a hole, and is retried.
        (
            "fault nvmlDeviceGetPowerUsage 20",
            ["Reading power draw failed at least once (Insufficient Memory); those samples lack it."],
            "power_mw",
            {},
        ),
        # Critical errors are told once, with their time.
        (
            "devices 2\nevent 1 8 79 3\nevent 1 8 79 4\nevent 0 8 4242 4\nevent 0 2 0 7",
            [
                f"GPU 1 of the run reported Xid 79 ({LISTED}), 2 s after sampling began.",
                f"GPU 0 of the run reported Xid 4242 ({LISTED}), 2 s after sampling began.",
                "GPU 0 of the run reported an uncorrectable memory error (ECC), 3 s after sampling began.",
            ],
            "",
            {"power_mw": 312_500},
        ),
        *(
            (
                f"devices 2\n{script}",
                [f"{verb} measured: {WATCHED}. {why}."],
                "",
                {"power_mw": 312_500},
            )
            for script, verb, why in (
                ("fault nvmlDeviceRegisterEvents 4", "Not", PERMISSION),
                ("eventkinds 0", "Not", f"{REFUSES} (Not Supported)"),
                ("fault nvmlEventSetWait_v2 999 2", "No longer", f"{REFUSES} (Unknown Error)"),
            )
        ),
    ],
)
def test_what_a_driver_does_not_give_is_one_sentence_and_no_zero(
    looks: Looks, driver: FakeDriver, script: str, said: list[str], missing: str, holds: dict[str, float]
) -> None:
    found, rows = looks(f"{ALL}{script}\n", [0, 1, 2, 3, 4, 13])
    assert found == said
    seen: Named = {}
    for row in (row for look in rows for row in look):
        seen |= row
    assert not set(missing.split()) & set(seen)
    assert holds.items() <= seen.items()
    if script.startswith("fault nvmlDeviceGet") and said:
        asked = {"Not": 1, "No": 3, "Reading": 6}[said[0].split()[0]]
        assert [name for name, _ in driver.calls()].count(script.split()[1]) == asked


MIDWAY = 40
"""The number of the call from which on a scripted failure holds: three or four looks are done by then."""
REPLACED = (
    "The NVIDIA driver was replaced while its old kernel module is still loaded (RM has detected an NVML/RM version "
    "mismatch.): no accelerator figures from here on. Running CUDA programs go on; reload the module or reboot."
)
FAILURES = [
    (15, "GPU 0 of the run no longer answers (GPU is lost): its figures end here. The kernel log names the Xid."),
    (18, REPLACED),
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


@pytest.mark.parametrize(
    ("code", "sentence"),
    [
        (9, "No NVIDIA driver here (Driver Not Loaded): no accelerator figures."),
        (4, "The NVIDIA driver refuses this user (Insufficient Permissions): no accelerator figures."),
        (18, REPLACED),
    ],
)
def test_a_driver_that_does_not_start_is_one_sentence_and_no_record(looks: Looks, code: int, sentence: str) -> None:
    assert looks(f"init {code}\n", [0, 1]) == ([sentence], [[], []])


S = 1_000_000_000
START = 10**15


class Sampled:
    """A sampler on a machine with eight GPUs, and those it was told to look at, one entry for each time."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.devices = Devices(folder, lambda _: None, START)
        self.looked_at: list[tuple[list[str], int]] = []

    def process(self, rank: int, device: dict[str, Any], host: str | None = None) -> None:
        told = {"rank": rank, "pid": 100 + rank, "host": host or socket.gethostname(), "device": device}
        write_json(self.folder / f"process-{rank}-{100 + rank}.json", told)

    def look(self, seconds: float) -> None:
        self.devices.sample(START + round(seconds * S))


@pytest.fixture
def sampled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Sampled:
    made = Sampled(create_run(tmp_path / "run", {"command": ["python", "train.py"]}))

    class Source:
        driver = None
        devices = ()

        def __init__(self, _gateway: object, uuids: Sequence[str], start_ns: int) -> None:
            made.looked_at.append((list(uuids), (start_ns - START) // S))

        def sample(self, now_ns: int, last: bool = False) -> list[Row]:
            return []

    monkeypatch.setattr(time, "thread_time_ns", lambda: 0)
    monkeypatch.setattr(nvml, "NvmlSource", Source)
    monkeypatch.setattr(nvml, "Gateway", lambda _say: None)
    return made


def on(*uuids: str) -> dict[str, Any]:
    return {"kind": "cuda", "uuids": list(uuids), "count": 1}


CPU = {"kind": "cpu", "uuids": [], "count": 1}
LATE = UNNAMED_NS / S


@pytest.mark.parametrize(
    ("happens", "looked_at"),
    [
        ([(0, on("GPU-5")), 0, 60], [(["GPU-5"], 0)]),
        ([0, (0, on("GPU-5")), 2], [(["GPU-5"], 0)]),  # it names its GPU later, and is looked at from its begin
        ([(0, on("GPU-there"), "another-host"), (1, on("GPU-here")), 0], [(["GPU-here"], 0)]),
        ([(1, on("GPU-1")), 0, (0, on("GPU-0")), 3], [(["GPU-1"], 0), (["GPU-1", "GPU-0"], 3)]),
        ([(0, CPU), 0, LATE + 60], []),
        ([(0, CPU), 0, (0, on("GPU-3")), 2], [(["GPU-3"], 0)]),
        ([(0, on()), 0], [([], 0)]),  # torch tells no UUIDs
        ([0, LATE - 1], []),
        ([0, LATE - 1, LATE + 1], [([], 0)]),
    ],
)
def test_looked_at_are_the_gpus_that_processes_of_this_host_name_or_else_all_after_a_while(
    sampled: Sampled, happens: list[Any], looked_at: list[Any]
) -> None:
    for each in happens:
        sampled.process(*each) if isinstance(each, tuple) else sampled.look(each)
    assert sampled.looked_at == looked_at
