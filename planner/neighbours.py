"""Neighbours of a configuration: what it would be with one choice taken otherwise."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from cost_models.specs.choices import RECOMPUTES
from cost_models.specs.configuration import Configuration, RecomputeCounts, Stage


@dataclass(frozen=True, slots=True)
class Neighbour:
    """One choice undone or taken a step further."""

    subject: str
    """The decision, as `Configuration` names it."""
    chosen: str
    instead: str
    configuration: Configuration


def neighbours(c: Configuration) -> Iterator[Neighbour]:
    """Every neighbour whose numbers still multiply to the same batch on the same devices, in a fixed order."""
    yield from _recompute(c)
    yield from _zero(c)
    yield from _micro_batch(c)
    yield from _degrees(c)
    yield from _pipeline(c)
    yield from _experts(c)
    yield from _offloads(c)
    yield from _flags(c)


def _changed(c: Configuration, **changes: Any) -> Configuration:
    return Configuration.model_validate(c.model_dump() | changes)


def recompute_text(c: Configuration) -> str:
    """How much is recomputed, over all stages: `full in 12 of 32 layers`, `none`."""
    layers = sum(stage.layers for stage in c.stages)
    parts = []
    for mode in RECOMPUTES[1:]:
        count = sum(getattr(stage.recompute, mode) for stage in c.stages)
        if count:
            parts.append(f"{mode} in {'all' if count == layers else f'{count} of'} {layers} layers")
    return ", ".join(parts) or "none"


def _all_layers(c: Configuration, mode: str) -> tuple[Stage, ...]:
    return tuple(
        stage.model_copy(update={"recompute": RecomputeCounts.model_validate({mode: stage.layers})})
        for stage in c.stages
    )


def _recompute(c: Configuration) -> Iterator[Neighbour]:
    now = recompute_text(c)
    for mode in RECOMPUTES:
        stages = _all_layers(c, mode)
        if stages != c.stages:
            other = c.model_copy(update={"stages": stages})
            yield Neighbour("recompute", now, recompute_text(other), other)


def _zero(c: Configuration) -> Iterator[Neighbour]:
    for stage in (c.zero_stage - 1, c.zero_stage + 1):
        if 0 <= stage <= 3 and c.data_parallel > 1:
            yield Neighbour("zero_stage", f"{c.zero_stage}", f"{stage}", _changed(c, zero_stage=stage))


def _micro_batch(c: Configuration) -> Iterator[Neighbour]:
    micro, steps = c.micro_batch_size, c.gradient_accumulation_steps
    pairs = []
    if micro % 2 == 0:
        pairs.append((micro // 2, steps * 2))
    if steps % 2 == 0:
        pairs.append((micro * 2, steps // 2))
    for size, count in pairs:
        other = _changed(c, micro_batch_size=size, gradient_accumulation_steps=count)
        yield Neighbour("micro_batch_size", f"{micro}", f"{size}", other)


def _degrees(c: Configuration) -> Iterator[Neighbour]:
    """A model-parallel degree halved or doubled, paid for by data parallelism with the accumulation to match."""
    for name in ("tensor_parallel", "context_parallel"):
        degree = int(getattr(c, name))
        for other in (degree // 2, degree * 2):
            moved = _moved(c, name, degree, other)
            if moved is not None:
                yield Neighbour(name, f"{degree}", f"{other}", moved)


def _moved(
    c: Configuration, name: str, degree: int, other: int, stages: tuple[Stage, ...] | None = None
) -> Configuration | None:
    data, steps = c.data_parallel * degree, c.gradient_accumulation_steps * other
    if other < 1 or (other < degree and degree % 2) or data % other or steps % degree:
        return None
    if stages is not None and not stages:
        return None
    changes: dict[str, Any] = {
        name: other,
        "data_parallel": data // other,
        "gradient_accumulation_steps": steps // degree,
    }
    if stages is not None:
        layers, virtual = sum(stage.layers for stage in stages), c.virtual_pipeline_stages
        keeps = other > 1 and layers % (other * virtual) == 0
        changes |= {"stages": stages, "virtual_pipeline_stages": virtual if keeps else 1}
    if name == "tensor_parallel":
        changes["sequence_parallel"] = other > 1 and (
            c.sequence_parallel or (degree == 1 and c.backend.name != "deepspeed")
        )
        if c.expert_tensor_parallel > other:
            changes["expert_tensor_parallel"] = other
    return _changed(c, **changes)


def _pipeline(c: Configuration) -> Iterator[Neighbour]:
    """Half or twice the stages, evenly filled; only where all layers are treated alike, as others have no neighbour."""
    modes = {mode for stage in c.stages for mode in RECOMPUTES if getattr(stage.recompute, mode)}
    pools = {stage.pool for stage in c.stages}
    if len(modes) > 1 or len(pools) > 1 or any(stage.optimizer_layers_offloaded for stage in c.stages):
        return
    layers, stages = sum(stage.layers for stage in c.stages), c.pipeline_parallel
    for other in (stages // 2, stages * 2):
        moved = _moved(c, "pipeline_parallel", stages, other, stages=_even(layers, other, *modes, pool=min(pools)))
        if moved is not None:
            yield Neighbour("pipeline_parallel", f"{stages}", f"{other}", moved)


def _even(layers: int, stages: int, mode: str, *, pool: int) -> tuple[Stage, ...]:
    if stages < 1 or layers % stages:
        return ()
    counts = RecomputeCounts.model_validate({mode: layers // stages})
    return (Stage(pool=pool, layers=layers // stages, recompute=counts),) * stages


def _experts(c: Configuration) -> Iterator[Neighbour]:
    if c.expert_parallel == 1:
        return
    for other in (c.expert_parallel // 2, c.expert_parallel * 2):
        if (c.data_parallel * c.context_parallel) % other == 0:
            moved = _changed(c, expert_parallel=other)
            yield Neighbour("expert_parallel", f"{c.expert_parallel}", f"{other}", moved)


def _offloads(c: Configuration) -> Iterator[Neighbour]:
    offloaded = sum(stage.optimizer_layers_offloaded for stage in c.stages)
    if offloaded:
        stages = tuple(stage.model_copy(update={"optimizer_layers_offloaded": 0}) for stage in c.stages)
        said = f"optimizer states of {offloaded} layers on the host"
        yield Neighbour("optimizer_offload", said, "none", c.model_copy(update={"stages": stages}))
    for name in ("parameter_offload", "activation_offload"):
        if getattr(c, name):
            yield Neighbour(name, "on", "off", _changed(c, **{name: False}))


def _flags(c: Configuration) -> Iterator[Neighbour]:
    flags = ["communication_overlap", "fused_kernels"]
    if c.tensor_parallel > 1:
        flags.insert(0, "sequence_parallel")
    for name in flags:
        value = bool(getattr(c, name))
        yield Neighbour(name, "on" if value else "off", "off" if value else "on", _changed(c, **{name: not value}))
    for kernel in ("eager", "fused"):
        if kernel != c.cross_entropy:
            yield Neighbour("cross_entropy", c.cross_entropy, kernel, _changed(c, cross_entropy=kernel))
    if c.gradient_compression != "none":
        yield Neighbour(
            "gradient_compression", c.gradient_compression, "none", _changed(c, gradient_compression="none")
        )
