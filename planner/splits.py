"""Can the batch be split over the devices at all? Found out before anything is priced."""

from cost_models.errors import BrokenRule
from cost_models.specs.cluster import ClusterSpec
from cost_models.specs.model import ModelSpec
from cost_models.specs.training import TrainingSpec
from planner.constraints import Constraints

_WIDEST_SEARCH = 4096
"""How far from the asked batch a legal one is looked for. [sequences]"""


def divisors(number: int) -> tuple[int, ...]:
    """All divisors, ascending."""
    small = [d for d in range(1, int(number**0.5) + 1) if number % d == 0]
    return tuple(sorted({*small, *(number // d for d in small)}))


def data_parallel_degrees(gpus: int, model: ModelSpec, constraints: Constraints) -> tuple[int, ...]:
    """Degrees that some legal split of `gpus` devices leaves to data parallelism."""
    tensor = [
        d
        for d in divisors(gpus)
        if model.num_attention_heads % d == 0 and constraints.domain("tensor_parallel").allows(d)
    ]
    pipeline = [
        d for d in divisors(gpus) if d <= model.num_hidden_layers and constraints.domain("pipeline_parallel").allows(d)
    ]
    context = [d for d in divisors(gpus) if constraints.domain("context_parallel").allows(d)]
    inner = {t * p * c for t in tensor for p in pipeline for c in context}
    allowed = constraints.domain("data_parallel")
    return tuple(sorted({gpus // i for i in inner if gpus % i == 0 and allowed.allows(gpus // i)}))


def _splits(batch: int, degrees: tuple[int, ...], constraints: Constraints) -> bool:
    micro, steps = constraints.domain("micro_batch_size"), constraints.domain("gradient_accumulation_steps")
    for degree in degrees:
        if batch % degree:
            continue
        share = batch // degree
        if any(micro.allows(m) and steps.allows(share // m) for m in divisors(share)):
            return True
    return False


def check_batch(model: ModelSpec, cluster: ClusterSpec, training: TrainingSpec, constraints: Constraints) -> None:
    """Refuse a global batch that no degree, micro-batch and accumulation multiply to.

    Raises:
        BrokenRule: naming the batch, the degrees possible and the nearest batch that splits.
    """
    fewest, most = constraints.min_gpus or 1, min(constraints.max_gpus or cluster.gpus, cluster.gpus)
    counts = range(fewest, most + 1) if most <= _WIDEST_SEARCH else (most,)
    degrees = tuple(sorted({d for n in counts for d in data_parallel_degrees(n, model, constraints)}))
    asked = training.batch_range
    if not degrees:
        raise BrokenRule(
            f"constraints: no tensor_parallel x context_parallel x pipeline_parallel x data_parallel makes {most} GPUs "
            f"with {model.num_attention_heads} heads and {model.num_hidden_layers} layers"
        )
    span = range(asked.min, min(asked.max, asked.min + _WIDEST_SEARCH) + 1)
    if any(_splits(batch, degrees, constraints) for batch in span):
        return
    near = next(
        (
            b
            for d in range(1, _WIDEST_SEARCH)
            for b in (asked.min - d, asked.max + d)
            if b > 0 and _splits(b, degrees, constraints)
        ),
        None,
    )
    said = f"{asked.min}" if asked.min == asked.max else f"{asked.min} to {asked.max}"
    shown = ", ".join(map(str, degrees[:8])) + (", ..." if len(degrees) > 8 else "")
    raise BrokenRule(
        f"training.global_batch_size {said} is not micro_batch_size x gradient_accumulation_steps x data_parallel "
        f"for any data_parallel of {shown} on {most} GPUs" + (f"; the nearest that is: {near}" if near else "")
    )
