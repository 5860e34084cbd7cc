"""Under which conditions an emulated device works, and what its driver would say of them."""

from __future__ import annotations

from dataclasses import dataclass

SM_CLOCK_MAX_MHZ = 1500
"""What an emulated device calls its highest clock."""
POWER_CAP_REASONS = 0x4
"""NVML's bits of clock event reasons: held down by the power cap."""
THERMAL_REASONS = 0x20 | 0x40
"""Held down by temperature, by software or by hardware."""


@dataclass(frozen=True)
class Conditions:
    """Without any of them a device works as its profile says.

    Raises:
        ValueError: no device works like that.
    """

    sm_clock: float = 1.0
    """Share of its highest clock that the device computes at."""
    throttle_reasons: int = 0
    """NVML bit mask of clock event reasons; it says why, and changes no time."""
    pcie_generation: int = 4
    pcie_width: int = 16
    pcie_max_generation: int = 4
    """PCIe generation of the link that the profile's copies ran on."""
    pcie_max_width: int = 16
    others: float = 0.0
    """Share of the device's time that kernels of other processes take."""
    processes: int = 1
    """Those with a context on the device, the training included."""

    def __post_init__(self) -> None:
        if not 0 < self.sm_clock <= 1:
            raise ValueError(f"sm_clock is {self.sm_clock}; it is a share of the highest clock, above 0 up to 1")
        if not 0 <= self.others < 1:
            raise ValueError(f"others is {self.others}; it is a share of the device's time, from 0 to below 1")
        link = (self.pcie_generation, self.pcie_max_generation), (self.pcie_width, self.pcie_max_width)
        if not all(1 <= now <= most for now, most in link):
            raise ValueError(f"a PCIe link is between 1 and what it is capable of, not {link}")
        if min(self.throttle_reasons, self.processes) < 0:
            raise ValueError("throttle_reasons and processes are not negative")

    @property
    def computing(self) -> float:
        """How much longer a computation takes."""
        return 1 / (self.sm_clock * (1 - self.others))

    @property
    def copying(self) -> float:
        """How much longer bytes take over the link: each generation doubles its speed."""
        generations = self.pcie_max_generation - self.pcie_generation
        return 2.0**generations * self.pcie_max_width / self.pcie_width

    def state(self, lasted_ns: int) -> dict[str, float]:
        """Fields of a DEVICE record when they have lasted so long."""
        return {
            "sm_clock_mhz": round(SM_CLOCK_MAX_MHZ * self.sm_clock),
            "sm_clock_max_mhz": SM_CLOCK_MAX_MHZ,
            "throttle_reasons": self.throttle_reasons,
            "thermal_ns": lasted_ns if self.throttle_reasons & THERMAL_REASONS else 0,
            "power_capped_ns": lasted_ns if self.throttle_reasons & POWER_CAP_REASONS else 0,
            "pcie_generation": self.pcie_generation,
            "pcie_width": self.pcie_width,
            "pcie_max_generation": self.pcie_max_generation,
            "pcie_max_width": self.pcie_max_width,
            "processes": self.processes,
        }
