"""What every time formula needs to know, gathered once per pricing: degrees, tokens, and the calibration by row."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property, wraps
from typing import Any, Concatenate, Final, ParamSpec, TypeVar

import numpy as np

from cost_models.alike import many, spread, told_apart
from cost_models.arrays import Array, IntArray, choose
from cost_models.calibration import Calibration
from cost_models.job import Job
from cost_models.specs.choices import ATTENTIONS, BACKENDS, PRECISIONS
from cost_models.specs.cluster import DeviceSpec
from cost_models.specs.model import ModelSpec
from cost_models.strategy import Strategy

ARCHITECTURES: Final = {
    "v100": "volta", "t4": "turing", "a100": "ampere", "ampere-consumer": "ampere", "ada": "ada", "h100": "hopper",
    "b200": "blackwell", "blackwell-consumer": "blackwell", "mi250": "cdna", "mi300": "cdna",
}  # fmt: skip
"""Architecture class of a device family: where a factor of the family is missing, the class's is used."""


def device_keys(device: DeviceSpec) -> tuple[str, ...]:
    """Particulars of a device for a factor look-up, narrowest first: name, family, architecture class, vendor."""
    return (device.name, device.family, ARCHITECTURES.get(device.family, device.family), device.vendor)


def lookup(column: Any, names: Sequence[str], value: Callable[[str], float]) -> Any:
    """Per row, `value` of the name that `column` holds; asked only for the names that occur."""
    index = np.asarray(column)
    if index.ndim == 0:
        return value(names[int(index)])
    occurring = np.flatnonzero(np.bincount(np.ravel(index), minlength=len(names)))
    values = [value(names[int(i)]) for i in occurring]
    if all(np.ndim(v) == 0 for v in values):
        table = np.zeros(len(names))
        table[occurring] = values
        return table[index]
    result: Any = 0.0
    for i, v in zip(occurring, values, strict=True):
        result = choose(index == i, v, result)
    return result


@dataclass(frozen=True, kw_only=True)
class Frame:
    """A job, its candidates and the calibration. Columns are floats of shape () or (n,)."""

    job: Job
    strategy: Strategy
    calibration: Calibration
    memo: dict[Any, Any] = field(default_factory=dict, repr=False, compare=False)
    """What `once` has computed already."""

    def alike(self, view: "AsSeen") -> "tuple[Frame, IntArray | None]":
        """The rows that a part of the formulas tells apart, and which of them every row is; None where it is itself."""
        if ("alike", view) not in self.memo:
            self.memo["alike", view] = self._alike(view)
        found: tuple[Frame, IntArray | None] = self.memo["alike", view]
        return found

    def _alike(self, view: "AsSeen") -> "tuple[Frame, IntArray | None]":
        if not many(self.strategy):
            return self, None
        few, which = told_apart(view(self.strategy))
        frame = Frame(job=self.job, strategy=few, calibration=self.calibration)
        frame.memo["alike", view] = (frame, None)
        return frame, which

    def column(self, name: str) -> Any:
        """A column of the strategy as floats."""
        return np.asarray(getattr(self.strategy, name), dtype=np.float64)[()]  # one number is no array

    @cached_property
    def model(self) -> ModelSpec:
        """The model."""
        return self.job.model

    @cached_property
    def device(self) -> DeviceSpec:
        """The device."""
        return self.job.device

    @cached_property
    def tp(self) -> Any:
        """Tensor-parallel degree."""
        return self.column("tensor_parallel")

    @cached_property
    def sp(self) -> Any:
        """Ranks that share the sequence in norms and residuals: tp with sequence parallelism, else 1."""
        return choose(self.column("sequence_parallel") > 0, self.tp, 1.0)

    @cached_property
    def cp(self) -> Any:
        """Context-parallel degree."""
        return self.column("context_parallel")

    @cached_property
    def ep(self) -> Any:
        """Expert-parallel degree."""
        return self.column("expert_parallel")

    @cached_property
    def etp(self) -> Any:
        """Expert-tensor-parallel degree."""
        return self.column("expert_tensor_parallel")

    @cached_property
    def pp(self) -> Any:
        """Pipeline-parallel degree."""
        return self.column("pipeline_parallel")

    @cached_property
    def dp(self) -> Any:
        """Data-parallel degree."""
        return self.column("data_parallel")

    @cached_property
    def replicas(self) -> Any:
        """Ranks over which a dense gradient is reduced: data- times context-parallel."""
        return self.dp * self.cp

    @cached_property
    def expert_replicas(self) -> Any:
        """Ranks over which an expert's gradient is reduced."""
        return np.maximum(self.tp * self.cp * self.dp / (self.ep * self.etp), 1.0)

    @cached_property
    def zero(self) -> Any:
        """ZeRO stage."""
        return self.column("zero_stage")

    @cached_property
    def sharded(self) -> Any:
        """1 where parameters live in shards (ZeRO-3, FSDP) and are gathered for every micro-batch.

        With a pipeline the gathered parameters are kept for the whole step, so nothing is gathered per micro-batch.
        """
        return (self.zero >= 3) & (self.pp == 1)

    @cached_property
    def tokens(self) -> Any:
        """Tokens of one micro-batch that one rank processes. [tokens]"""
        return self.column("micro_batch_size") * self.job.training.sequence_length / self.cp

    @cached_property
    def width(self) -> Any:
        """Bytes of one activation element. [bytes]"""
        return lookup(self.strategy.precision, PRECISIONS, lambda name: 4.0 if name == "fp32" else 2.0)

    @cached_property
    def overlap(self) -> Any:
        """1 where communication may run beside compute: not where the cores that compute also move the bytes.

        Source: ProcessGroupGloo runs collectives on host threads, pytorch `torch/csrc/distributed/c10d`.
        """
        return (self.column("communication_overlap") > 0) & (self.device.kind != "cpu")

    @cached_property
    def adapters(self) -> bool:
        """Whether only adapters are trained."""
        return self.job.training.adapters is not None

    @cached_property
    def constants(self) -> Calibration:
        """The calibration as it stands on this device."""
        return self.calibration.on(self.device.name, self.device.family)

    def factor(self, name: str, *particulars: str) -> float:
        """A factor of the calibration; see `Calibration.__call__`."""
        return self.constants(name, *particulars)

    def device_factor(self, name: str, suffix: str = "") -> float:
        """A factor of the device's family, else of its architecture class, else of its vendor."""
        return self.constants(name, *(key + suffix for key in device_keys(self.device)))

    def by_backend(self, name: str) -> Any:
        """A factor of each row's back end; `backend-adapters` is tried first when adapters are trained."""
        suffixes = ("-adapters", "") if self.adapters else ("",)
        return self._of_backend(name, lambda backend: [backend + suffix for suffix in suffixes])

    def by_backend_and_device(self, name: str) -> Any:
        """A factor of the back end on this device or its family, else of the device alone (narrowest first)."""
        keys = device_keys(self.device)
        return self._of_backend(name, lambda backend: [*(f"{key}.{backend}" for key in keys[:2]), *keys])

    def by_device_or_backend(self, name: str) -> Any:
        """A factor of the device or its class where it has one of its own, else of the back end."""
        return self._of_backend(name, lambda backend: [*device_keys(self.device), backend])

    def _of_backend(self, name: str, particulars: Callable[[str], list[str]]) -> Any:
        if name not in self.memo:
            self.memo[name] = lookup(
                self.strategy.backend, BACKENDS, lambda backend: self.constants(name, *particulars(backend))
            )
        return self.memo[name]

    def backend_is(self, *names: str) -> Any:
        """Rows whose back end is one of `names`."""
        index = np.asarray(self.strategy.backend)
        found = index == BACKENDS.index(names[0])
        for name in names[1:]:
            found = found | (index == BACKENDS.index(name))
        return found

    def attention_is(self, name: str) -> Any:
        """Rows whose attention kernel is `name`."""
        return np.asarray(self.strategy.attention)[()] == ATTENTIONS.index(name)

    def precision_is(self, name: str) -> Any:
        """Rows of that precision."""
        return np.asarray(self.strategy.precision)[()] == PRECISIONS.index(name)

    @cached_property
    def hbm(self) -> Any:
        """Memory bandwidth that streaming kernels reach. [bytes/s]"""
        return self.device.memory_bandwidth * self.device_factor("memory_efficiency")


AsSeen = Callable[[Strategy], Strategy]
"""Rows without what a part of the formulas does not read."""
Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")


def once(
    formula: Callable[Concatenate[Frame, Arguments], Result],
) -> Callable[Concatenate[Frame, Arguments], Result]:
    """Evaluate a formula once per frame and arguments: many terms share it, and its columns are long."""

    @wraps(formula)
    def remembered(frame: Frame, /, *args: Arguments.args, **kwargs: Arguments.kwargs) -> Result:
        key = (formula, args, tuple(kwargs.items()))
        if key not in frame.memo:
            frame.memo[key] = formula(frame, *args, **kwargs)
        result: Result = frame.memo[key]
        return result

    return remembered


def once_for(
    view: AsSeen,
) -> Callable[[Callable[Concatenate[Frame, Arguments], Result]], Callable[Concatenate[Frame, Arguments], Result]]:
    """Like `once`, for a formula that tells few rows apart: it is evaluated on those, and its columns are spread."""

    def decorated(
        formula: Callable[Concatenate[Frame, Arguments], Result],
    ) -> Callable[Concatenate[Frame, Arguments], Result]:
        @once
        @wraps(formula)
        def of_few(frame: Frame, /, *args: Arguments.args, **kwargs: Arguments.kwargs) -> Result:
            few, which = frame.alike(view)
            if which is None:
                return formula(frame, *args, **kwargs)
            return spread(of_few(few, *args, **kwargs), which, len(few.strategy))

        return of_few

    return decorated


def overlapped(busy: Array, communication: Array, exposed_share: Array, contention: Any) -> tuple[Any, Any]:
    r"""Exposed and hidden seconds of communication beside `busy` seconds of compute. [s]

    .. math:: e = \sigma g + \max(0, (1-\sigma) g - f) + \kappa \min((1-\sigma) g, f)

    with communication g, compute f, the share sigma that nothing can cover, and the slow-down kappa of compute by
    the communication that it covers (streaming multiprocessors and memory bandwidth are shared).
    Source: overlap of prefetched gathers, PyTorch FSDP, arXiv:2304.11277 section 3.3.
    """
    rest = (1 - exposed_share) * communication
    hidden = np.minimum(rest, busy)
    return communication - hidden + contention * hidden, hidden
