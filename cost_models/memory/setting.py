"""The numbers that every memory formula reads, one per candidate: degrees, shards, tokens and the facts of its back
end.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, cached_property, wraps
from typing import Any, ParamSpec, TypeVar

import numpy as np

from cost_models.arrays import Array, ceil_div, choose
from cost_models.job import Job
from cost_models.parameters import padded_vocabulary
from cost_models.specs.choices import ATTENTIONS, BACKENDS, COMPRESSIONS, CROSS_ENTROPIES, PRECISIONS
from cost_models.specs.framework import FrameworkFacts
from cost_models.specs.model import LayerKind, ModelSpec
from cost_models.specs.training import LoraSpec
from cost_models.strategy import Strategy

Terms = dict[str, Any]
"""Bytes by name: each a float, or an array with one entry per candidate."""


Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")


def once(function: Callable[Arguments, Result]) -> Callable[Arguments, Result]:
    """Compute once per setting. The first argument is a `Setting` or holds one; the others are hashable."""

    @wraps(function)
    def remembered(*arguments: Arguments.args, **options: Arguments.kwargs) -> Result:
        known: dict[Any, Any] = arguments[0].remembered  # type: ignore[attr-defined]
        key = (function, arguments[1:], *options.items()) if options else (function, arguments[1:])
        try:
            return known[key]  # type: ignore[no-any-return]
        except KeyError:
            result = known[key] = function(*arguments, **options)
            return result

    return remembered


def catalogued(frameworks: Mapping[str, FrameworkFacts] | None) -> tuple[FrameworkFacts, ...]:
    """Facts of every back end in the order of BACKENDS; those given replace the catalogue's."""
    shipped = _shipped()
    if not frameworks:
        return shipped
    return tuple(frameworks.get(name, facts) for name, facts in zip(BACKENDS, shipped, strict=True))


@cache
def _shipped() -> tuple[FrameworkFacts, ...]:
    from cost_models.catalog import framework  # noqa: PLC0415  reads files, once

    return tuple(framework(name) for name in BACKENDS)


@dataclass(frozen=True, kw_only=True)
class Setting:
    """A job, its candidates and the facts of their back ends."""

    job: Job
    strategy: Strategy
    frameworks: tuple[FrameworkFacts, ...]
    remembered: dict[Any, Any] = field(default_factory=dict, repr=False, compare=False)
    """What `once` has computed."""

    @property
    def model(self) -> ModelSpec:
        """The model."""
        return self.job.model

    @cached_property
    def kinds(self) -> tuple[LayerKind, ...]:
        """The layer kinds, in the order of the tables."""
        return self.model.layer_kinds

    @property
    def adapters(self) -> LoraSpec | None:
        """Adapters, or None when all weights are trained."""
        return self.job.training.adapters

    @property
    def quantized(self) -> bool:
        """Whether frozen weights are stored in 4 bits."""
        return self.job.training.method == "qlora"

    @cached_property
    def layer_counts(self) -> tuple[int, ...]:
        """Layers of the model of each kind."""
        return tuple(self.model.layers.count(kind) or self.model.num_hidden_layers for kind in self.kinds)

    @cached_property
    def single(self) -> bool:
        """Whether there is one candidate, its columns numbers and not arrays of them."""
        return all(np.ndim(getattr(self.strategy, name)) == 0 for name in ("backend", "tensor_parallel", "precision"))

    def column(self, name: str) -> Any:
        """A column of the candidates as numpy's integers: an array, or one number."""
        found = self.remembered.get(name)
        if found is None:
            found = self.remembered[name] = np.asarray(getattr(self.strategy, name))[()]
        return found

    def float_column(self, name: str) -> Any:
        """The same as floats."""
        key = (name, float)
        found = self.remembered.get(key)
        if found is None:
            found = self.remembered[key] = np.asarray(getattr(self.strategy, name), dtype=np.float64)[()]
        return found

    def _of_backend(self, value: Callable[[FrameworkFacts], Any]) -> Any:
        """A value of each candidate's back end; of one candidate, of its back end alone."""
        backend = self.strategy.backend
        if self.single:
            found = value(self.frameworks[int(backend)])
            return np.bool_(found) if isinstance(found, bool) else np.float64(found)
        return np.array([value(facts) for facts in self.frameworks])[backend]

    def _of_both(self, value: Callable[[FrameworkFacts, Any], Any], column: Any, names: Sequence[str]) -> Any:
        """A value of each candidate's back end and its name in a column."""
        backend = self.strategy.backend
        if self.single:
            return np.float64(value(self.frameworks[int(backend)], names[int(column)]))
        return np.array([[value(facts, name) for name in names] for facts in self.frameworks])[backend, column]

    @once
    def fact(self, name: str) -> Any:
        """A number or flag of each candidate's back end."""
        return self._of_backend(lambda f: float(getattr(f, name)))

    @once
    def says(self, name: str, value: str) -> Any:
        """Whether a worded fact of each candidate's back end equals `value`."""
        return self._of_backend(lambda f: getattr(f, name) == value)

    @once
    def layout(self, name: str) -> Any:
        """A number of the parameter layout of each candidate's back end and precision."""
        unknown = np.nan  # a precision that the back end cannot run; legality drops the row

        def number(facts: FrameworkFacts, precision: Any) -> float:
            return float(getattr(facts.layouts[precision], name)) if precision in facts.layouts else unknown

        return self._of_both(number, self.strategy.precision, PRECISIONS)

    @once
    def module(self, layout: str, name: str) -> Any:
        """A number of the adapters' or trained modules' layout."""
        return self._of_backend(lambda f: float(getattr(getattr(f, layout), name)))

    @once
    def optimizer(self, name: str) -> Any:
        """A number of the job's optimizer in each candidate's back end."""
        optimizer = self.job.training.optimizer
        return self._of_backend(lambda f: float(getattr(f.optimizers[optimizer], name)))

    @once
    def loss(self, name: str) -> Any:
        """Bytes per logit of each candidate's loss."""
        return self._of_both(
            lambda f, c: float(getattr(f.cross_entropy[c], name)), self.strategy.cross_entropy, CROSS_ENTROPIES
        )

    @cached_property
    def compression_error(self) -> Any:
        """Residual bytes per parameter of each candidate's gradient compression."""
        return self._of_both(
            lambda f, c: f.compression_error.get(c, 0.0), self.strategy.gradient_compression, COMPRESSIONS
        )

    @cached_property
    def eager(self) -> Any:
        """Whether the Hugging Face ledger applies (else Megatron's)."""
        return self.says("ledger", "eager")

    @cached_property
    def compute(self) -> Any:
        """Bytes of one activation element."""
        return self.layout("compute")

    @cached_property
    def activation(self) -> Any:
        """Bytes of one activation element.

        Linears over 4-bit weights give back their input's dtype, which fp32 norms set.
        Source: bitsandbytes `nn/modules.py`, Linear4bit.forward; peft `prepare_model_for_kbit_training`.
        """
        if not self.quantized:
            return self.compute
        other = self._of_backend(lambda f: f.quantized.other)
        return choose(self.eager, np.maximum(other, self.compute), self.compute)

    @cached_property
    def autocast(self) -> Any:
        """Whether the residual stream is fp32 under autocast. Frozen weights are loaded in the compute dtype."""
        return (self.layout("autocast") > 0) & (self.adapters is None)

    @cached_property
    def tensor(self) -> Any:
        """Tensor-parallel degree as a float."""
        return self.float_column("tensor_parallel")

    @cached_property
    def sequence_shards(self) -> Any:
        """Ranks that share the tokens between norms: tensor-parallel ranks under sequence parallelism, else one."""
        return choose(self.column("sequence_parallel") > 0, self.tensor, 1.0)

    @cached_property
    def shards(self) -> Any:
        """Ranks that ZeRO shards non-expert states over: data- times context-parallel."""
        return np.asarray(self.strategy.data_parallel * self.strategy.context_parallel, dtype=np.float64)[()]

    @cached_property
    def expert_shards(self) -> Any:
        """Ranks that ZeRO shards expert states over: dp cp tp / (ep etp).

        Source: Megatron-LM `core/parallel_state.py`, expert data parallel size.
        """
        s = self.strategy
        return np.maximum(self.shards * self.tensor / (s.expert_parallel * s.expert_tensor_parallel), 1.0)

    @cached_property
    def tokens(self) -> Any:
        """Tokens of one micro-batch on one rank, before sequence parallelism."""
        s = self.strategy
        return s.micro_batch_size * self.job.training.sequence_length / self.float_column("context_parallel")

    @cached_property
    def materialised(self) -> Any:
        """Whether attention scores are written to memory."""
        return self.column("attention") == ATTENTIONS.index("eager")

    @cached_property
    def offloads_gradients(self) -> Any:
        """Whether the gradients of offloaded layers live on the host. They are then counted at every instant, so that
        what offloading a layer saves is one number; layers left on the device keep theirs throughout.
        """
        return (self.column("optimizer_offload") > 0) & (self.fact("offloads_gradients") > 0)

    @cached_property
    def offloads_ends(self) -> Any:
        """Whether embedding and head go to the host with the layers: where offloading is all or nothing."""
        whole = self.column("zero_stage") < self.fact("offload_ratio_from")
        return self.offloads_gradients & (whole | (self.column("parameter_offload") > 0))

    @cached_property
    def persisting(self) -> Any:
        """Whether gradients are counted at every instant: 1 or 0."""
        sharded = self.column("zero_stage") >= self.fact("weights_sharded_from")
        always = (self.fact("gradients_persist") > 0) | (sharded & (self.fact("gradients_persist_sharded") > 0))
        return choose(always | self.offloads_gradients, 1.0, 0.0)

    @cached_property
    def accumulating(self) -> Any:
        """Whether gradients of an earlier micro-batch, or persistent buffers, exist when a backward starts: 1 or 0."""
        several = self.column("gradient_accumulation_steps") > 1
        return np.maximum(choose(several, 1.0, 0.0), self.persisting)

    @cached_property
    def accumulated_before(self) -> Any:
        """Whether such gradients exist before the largest micro-batch's backward: 1 or 0."""
        return np.maximum(self.accumulating * (1.0 - self.fact("longest_first")), self.persisting)

    @cached_property
    def flat(self) -> Any:
        """Whether the weights of a layer are one flat parameter with one gradient.

        Source: torch `distributed/fsdp/_flat_param.py`, FlatParamHandle; FullyShardedDataParallel's documentation,
        use_orig_params (gradients of frozen parameters beside trained ones).
        """
        sharded = self.column("zero_stage") >= self.fact("weights_sharded_from")
        return sharded & (self.fact("flat_units") > 0)

    @cached_property
    def whole_gradients(self) -> Any:
        """Whether accumulated gradients are whole until the last micro-batch. Source: the same, no_sync."""
        return self.flat & (self.column("gradient_accumulation_steps") > 1)

    @cached_property
    def vocabulary_multiple(self) -> Any:
        """What each tensor-parallel rank's vocabulary rows are a multiple of."""
        return self.fact("vocabulary_multiple").astype(np.int64)

    @cached_property
    def vocabulary(self) -> Any:
        """Padded vocabulary rows on one rank; the Hugging Face loss sees all of them unless it is vocabulary-parallel.
        Padded vocabulary rows on one rank; the Hugging Face loss sees all of them unless it is vocabulary-parallel.
        """
        padded = padded_vocabulary(self.model, self.column("tensor_parallel"), self.vocabulary_multiple)
        whole = self.eager & (self.column("cross_entropy") != CROSS_ENTROPIES.index("vocab_parallel"))
        return padded / choose(whole, 1.0, self.tensor)


def total(terms: Terms) -> Array:
    """The sum of named terms in their order."""
    result: Any = 0.0
    for value in terms.values():
        result = result + value
    return result  # type: ignore[no-any-return]


def merged(*parts: Terms) -> Terms:
    """Terms of several sources; equal names are added."""
    result: Terms = dict(parts[0]) if parts else {}
    for part in parts[1:]:
        for name, value in part.items():
            result[name] = result[name] + value if name in result else value
    return result


def scaled(terms: Terms, factor: Any) -> Terms:
    """Every term times `factor`."""
    if isinstance(factor, float) and factor == 1.0:
        return terms
    return {name: value * factor for name, value in terms.items()}


def larger(one: Terms, other: Terms) -> Terms:
    """Of two sets of terms, by candidate, the one with the larger sum."""
    first = total(one) >= total(other)
    names = dict.fromkeys([*one, *other])
    return {name: choose(first, one.get(name, 0.0), other.get(name, 0.0)) for name in names}


def _whole_experts(setting: Setting, shards: Any) -> Any:
    """Shards of a stack of experts that is split along its first dimension: the first rank holds E / ceil(E / N).

    Source: torch `distributed/fsdp/_fully_shard/_fsdp_param.py`, Shard(0) of each parameter.
    """
    assert setting.model.moe is not None
    experts = setting.model.moe.num_experts / setting.column("expert_parallel")
    return experts / ceil_div(experts, shards)


@once
def divisor(setting: Setting, fact: str, *, expert: bool = False) -> Any:
    """ZeRO shards of a kind of state: those of its group where the strategy's stage reaches the back end's, else 1."""
    shards = setting.expert_shards if expert else setting.shards
    if expert and setting.model.moe is not None:
        shards = choose(setting.says("gather_style", "root_group"), _whole_experts(setting, shards), shards)
    if fact == "optimizer_sharded_from":
        shards = np.maximum(shards / setting.fact("optimizer_instances"), 1.0)
    return choose(setting.column("zero_stage") >= setting.fact(fact), shards, 1.0)
