"""Calibration: every measured, cited or fitted constant, as an immutable value passed to the formulas."""

from collections.abc import Mapping
from functools import cached_property
from typing import Any

from pydantic import Field

from cost_models.errors import MissingCalibration
from cost_models.specs.base import Spec


class Factor(Spec):
    """One constant with where it comes from."""

    value: float
    unit: str = "1"
    sigma: float | None = None
    """Standard deviation of its logarithm, where known: how far sites, or later measurements, may lie from it."""
    prior: float | None = None
    """Centre of the log-normal prior from which a refit starts; None: no refit moves this factor."""
    source: str


class Calibration(Spec):
    """Named factors. Keys are dotted, general to particular: `gemm_efficiency.a100.bf16`, `launch_floor.megatron`."""

    version: str
    factors: Mapping[str, Factor] = Field(default_factory=dict)
    data: Mapping[str, str] = Field(default_factory=dict)
    """SHA-256 of the measurement files behind the fitted factors, by file name."""

    @cached_property
    def _values(self) -> dict[str, float]:
        return {key: factor.value for key, factor in self.factors.items()}

    @cached_property
    def _answered(self) -> dict[tuple[str, ...], float]:
        """Look-ups done before: a pricing asks for the same hundred factors again and again."""
        return {}

    @cached_property
    def _scopes(self) -> dict[str, dict[str, Factor]]:
        """Factors that hold for one device only, `name@device`, by device."""
        scopes: dict[str, dict[str, Factor]] = {}
        for key, factor in self.factors.items():
            name, at, device = key.partition("@")
            if at:
                scopes.setdefault(device, {})[name] = factor
        return scopes

    def on(self, *devices: str) -> "Calibration":
        """This calibration as it stands on a device, named narrowest first: its own factors replace the general ones.

        A site's measurements state such factors, so that rows of one device never move another's predictions.
        """
        own = [self._scopes[device] for device in reversed(devices) if device in self._scopes]
        if not own:
            return self
        if devices not in self._scoped:
            factors = dict(self.factors)
            for scope in own:
                factors.update(scope)
            self._scoped[devices] = Calibration(version=self.version, factors=factors, data=self.data)
        return self._scoped[devices]

    @cached_property
    def _scoped(self) -> "dict[tuple[str, ...], Calibration]":
        """What `on` has made."""
        return {}

    def __call__(self, name: str, *particulars: str) -> float:
        """The factor `name.particular`, for the first particular that has one; `name` alone where none is asked.

        Raises:
            MissingCalibration: no such factor; the message lists what was tried.
        """
        asked = (name, *particulars)
        if asked in self._answered:
            return self._answered[asked]
        keys = [f"{name}.{particular}" for particular in particulars] if particulars else [name]
        for key in keys:
            if key in self._values:
                self._answered[asked] = self._values[key]
                return self._values[key]
        raise MissingCalibration(f"no calibration factor for {name}: tried {', '.join(keys)}")

    def known(self, name: str, *particulars: str) -> bool:
        """Whether the first particular itself has a factor (else a fallback is used and the interval is wider)."""
        return ".".join((name, *particulars[:1])) in self._values

    def scaled(self, changes: Mapping[str, Any], version: str) -> "Calibration":
        """A new calibration with some factors' values replaced."""
        factors = {
            k: f.model_copy(update={"value": changes[k]}) if k in changes else f for k, f in self.factors.items()
        }
        return Calibration(version=version, factors=factors, data=self.data)
