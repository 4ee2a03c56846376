"""Warnings: what a person should know before trusting the plan."""

from cost_models.calibration import Calibration
from cost_models.placement import in_use, pool_jobs
from cost_models.specs.choices import SPARING
from cost_models.specs.configuration import Configuration
from planner.plan import Prediction
from planner.resolve import ResolvedRequest
from planner.uncertainty import DRIFT, UNLEARNED, knowledge_class, stack_of


def warnings_of(
    resolved: ResolvedRequest, configuration: Configuration, predicted: Prediction, calibration: Calibration
) -> tuple[str, ...]:
    """In a fixed order."""
    found = []
    job, memory = resolved.job, predicted.memory
    known = knowledge_class(job, configuration, calibration)
    devices = [seen.device for seen in pool_jobs(job, configuration)]
    families = " and ".join(dict.fromkeys(device.family for device in devices))
    if known == "new_device":
        found.append(f"no measurement of {families} stands behind this prediction: factors of its kind are used")
    if known == "unseen":
        found.append(f"no measurement of {configuration.backend.name} on {families} stands behind this prediction")
    if memory.verdict == "at_risk":
        found.append(
            f"the median fits but the probability of running out of memory is {memory.oom_probability:.1%}, "
            f"above the asked {resolved.constraints.oom_risk:.1%}"
        )
    found += [
        f"usable memory of {device.name} is derived from its published total, not measured"
        for device in devices
        if device.usable_memory_source == "derived"
    ]
    found += _drifts(resolved, configuration, calibration)
    if configuration.world_size < resolved.cluster.gpus:
        found.append(_idle(resolved, configuration))
    if configuration.backend.name == "megatron" and configuration.zero_stage > 1 and configuration.tensor_parallel > 1:
        found.append(
            f"zero_stage {configuration.zero_stage} with tensor_parallel {configuration.tensor_parallel}: "
            "Megatron-FSDP needs CUDA_DEVICE_MAX_CONNECTIONS unset, "
            "without which tensor parallelism overlaps less before Blackwell"
        )
    limit = job.model.max_position_embeddings
    if limit is not None and job.training.sequence_length > limit:
        found.append(
            f"sequence_length {job.training.sequence_length} exceeds max_position_embeddings {limit} of the model"
        )
    return tuple(found)


def _drifts(resolved: ResolvedRequest, configuration: Configuration, calibration: Calibration) -> list[str]:
    """What runs on the plan's devices said of the calibration, all and the last, where it is noted there."""
    found = []
    for framework, family in sorted({stack_of(seen, configuration) for seen in pool_jobs(resolved.job, configuration)}):
        here = calibration.on(family)
        if here.known(UNLEARNED, f"step_seconds.{framework}"):
            note = here.factors[f"{UNLEARNED}.step_seconds.{framework}"]
            found.append(
                f"no constant follows the runs of {framework} on {family}: steps took {note.value:g} times those "
                f"predicted ({note.source})"
            )
        for quantity, what in {"step_seconds": "steps", "peak_allocated_bytes": "allocated peaks"}.items():
            if here.known(DRIFT, f"{quantity}.{framework}"):
                note = here.factors[f"{DRIFT}.{quantity}.{framework}"]
                found.append(
                    f"drift: the last runs of {framework} on {family} had {what} of {note.value:g} times those "
                    f"predicted ({note.source})"
                )
    return found


def _idle(resolved: ResolvedRequest, configuration: Configuration) -> str:
    """Which part of the cluster is not used."""
    total, pools = resolved.cluster.gpus, resolved.cluster.pools
    text = f"{total - configuration.world_size} of {total} GPUs stay idle"
    if len(pools) == 1:
        asked = resolved.objective[0] in SPARING or resolved.constraints.max_gpus is not None
        return text if asked else f"{text}: the batch divides better over {configuration.world_size}"
    used = in_use(resolved.job, configuration)
    parts = [f"pool {k} ({pool.device.name}) gives {used.get(k, 0)} of {pool.gpus}" for k, pool in enumerate(pools)]
    return f"{text}: {', '.join(parts)}"
