"""The back ends' rules, asked about one configuration."""

from dataclasses import fields
from typing import Any

from cost_models.job import Job
from cost_models.placement import consecutive, in_use, placement_of
from cost_models.schedule import spread
from cost_models.specs.choices import Backend
from cost_models.specs.configuration import Configuration
from cost_models.strategy import Strategy


def release_range(backend: Backend) -> str:
    """The releases of a back end that its rules are written for."""
    from solver.legality import legality

    return legality(backend).release_range


def violations(job: Job, configuration: Configuration) -> tuple[str, ...]:
    """The rules that this configuration breaks, both sides and the reason in one line each; empty when it is legal."""
    from solver.legality import broken_rules, job_facts

    strategy = Strategy.of(configuration)
    row = {f.name: getattr(strategy, f.name) for f in fields(strategy) if f.name != "backend"}
    used = in_use(job, configuration)
    beyond = _pool_violations(job, configuration, used)
    if beyond:
        return tuple(beyond)
    facts: dict[str, Any] = {**job_facts(job, tuple(used)), **row, "gpus": configuration.world_size}
    broken = broken_rules(configuration.backend.name, facts)
    found = [f"{configuration.backend.name}: {message} ({rule.reason})" for rule, message in broken]
    return (*found, *_layout_violations(configuration, facts))


def _pool_violations(job: Job, configuration: Configuration, used: dict[int, int]) -> list[str]:
    """Stages that the pools of the cluster cannot hold."""
    pools = job.cluster.pools
    found = [
        f"stages live in pool {pool} but cluster.pools lists {len(pools)}, from 0"
        for pool in used
        if pool >= len(pools)
    ]
    found += [
        f"the stages in pool {pool} take {count} GPUs but it has {pools[pool].gpus}"
        for pool, count in used.items()
        if pool < len(pools) and count > pools[pool].gpus
    ]
    if not consecutive(placement_of(configuration)):
        found.append("the stages of a pool are not consecutive: every crossing between pools costs a slower transfer")
    return found


def _layout_violations(configuration: Configuration, facts: dict[str, Any]) -> list[str]:
    """Stage layouts that the back end cannot say."""
    from solver.legality import OFFLOAD_LAYOUTS, RECOMPUTE_LAYOUTS, layout_codes

    name, stages = configuration.backend.name, configuration.stages
    codes = layout_codes(name, facts, 1)
    recompute = RECOMPUTE_LAYOUTS[int(codes["recompute"][0])]
    offload = OFFLOAD_LAYOUTS[int(codes["offload"][0])]
    found = []
    layers = [stage.layers for stage in stages]
    if bool(codes["even"][0]) and max(layers) - min(layers) > 1:
        found.append(f"{name}: stages of {', '.join(map(str, layers))} layers; it divides layers evenly")
    if bool(codes["spread"][0]):
        wanted = spread(sum(layers), len(layers), configuration.virtual_pipeline_stages)
        if tuple(layers) != wanted:
            found.append(
                f"{name}: stages of {', '.join(map(str, layers))} layers; interleaved here they hold "
                f"{', '.join(map(str, wanted))}"
            )
    full = {stage.recompute.full for stage in stages}
    selective = sum(stage.recompute.selective for stage in stages)
    modes = {m for stage in stages for m in ("none", "selective", "full") if getattr(stage.recompute, m)}
    if recompute == "one_mode" and len(modes) > 1:
        found.append(f"{name}: layers recompute {', '.join(sorted(modes))}; here all layers do alike")
    if recompute == "same_count" and (len(full) > 1 or selective not in (0, sum(layers))):
        found.append(f"{name}: recompute differs between stages; here every stage recomputes the same number of layers")
    offloaded = [stage.optimizer_layers_offloaded for stage in stages]
    if offload == "all_or_none" and sum(offloaded) not in (0, sum(layers)):
        found.append(
            f"{name}: optimizer states of {sum(offloaded)} of {sum(layers)} layers offloaded; here all or none"
        )
    if offload == "same_count" and len(set(offloaded)) > 1:
        found.append(f"{name}: optimizer states of {offloaded} layers offloaded; here the same number in every stage")
    return found
