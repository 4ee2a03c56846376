"""Can the batch be split over the devices at all? Found out before anything is priced."""

from cost_models.errors import BrokenRule
from cost_models.specs.cluster import ClusterSpec
from cost_models.specs.model import ModelSpec
from cost_models.specs.training import BatchRange, TrainingSpec
from planner.constraints import Constraints

WIDEST_SEARCH = 4096
"""How far from the asked batch a legal one is looked for. [sequences]"""


def divisors(number: int) -> tuple[int, ...]:
    """All divisors, ascending."""
    small = [d for d in range(1, int(number**0.5) + 1) if number % d == 0]
    return tuple(sorted({*small, *(number // d for d in small)}))


def data_parallel_degrees(gpus: int, model: ModelSpec, length: int, constraints: Constraints) -> tuple[int, ...]:
    """Degrees that some legal split of `gpus` devices leaves to data parallelism; `length` is that of a sequence."""
    tensor = [
        d
        for d in divisors(gpus)
        if model.num_attention_heads % d == 0 and constraints.domain("tensor_parallel").allows(d)
    ]
    pipeline = [
        d for d in divisors(gpus) if d <= model.num_hidden_layers and constraints.domain("pipeline_parallel").allows(d)
    ]
    context = [
        d
        for d in divisors(gpus)
        if (d == 1 or length % (2 * d) == 0) and constraints.domain("context_parallel").allows(d)
    ]
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


def check_degrees(model: ModelSpec, cluster: ClusterSpec, constraints: Constraints) -> None:
    """Refuse listed degrees that the model cannot be divided by, whatever the back end.

    Raises:
        BrokenRule: naming both numbers and the nearest degree that works.
    """
    experts = 1 if model.moe is None else model.moe.num_experts
    totals = {
        "tensor_parallel": ("num_attention_heads", model.num_attention_heads),
        "expert_parallel": ("num_experts", experts),
    }
    for key, (name, total) in totals.items():
        asked = _listed(constraints, key)
        if asked and all(total % degree for degree in asked):
            near = max(d for d in divisors(total) if d <= max(asked) and cluster.gpus % d == 0)
            said = f"{asked[0]} does not divide" if len(asked) == 1 else f"{', '.join(map(str, asked))}: none divides"
            raise BrokenRule(f"constraints.{key} {said} {name} {total}; {near} does").at("constraints", key)
    stages, layers = _listed(constraints, "pipeline_parallel"), model.num_hidden_layers
    if stages and min(stages) > layers:
        rule = f"constraints.pipeline_parallel {min(stages)} exceeds num_hidden_layers {layers}"
        raise BrokenRule(rule).at("constraints", "pipeline_parallel")


def _listed(constraints: Constraints, key: str) -> tuple[int, ...]:
    """The values of a degree that a request lists; none where it lists none."""
    domain = constraints.domain(key)
    return tuple(int(value) for value in domain.among(domain.values or ()))


def check_batch(
    model: ModelSpec,
    cluster: ClusterSpec,
    training: TrainingSpec,
    constraints: Constraints,
    *,
    fewer: bool,
) -> None:
    """Refuse a global batch that no degree, micro-batch and accumulation multiply to.

    With `fewer` the answer may use a part of the cluster.

    Raises:
        BrokenRule: naming the batch, the degrees possible and the nearest batch that splits.
    """
    most = min(constraints.max_gpus or cluster.gpus, cluster.gpus)
    if fewer and most > WIDEST_SEARCH:
        return
    counts = range(constraints.min_gpus or 1, most + 1) if fewer else (cluster.gpus,)

    degrees = tuple(
        sorted({d for n in counts for d in data_parallel_degrees(n, model, training.sequence_length, constraints)})
    )
    asked = training.batch_range
    if not degrees:
        raise BrokenRule(
            f"constraints: no tensor_parallel x context_parallel x pipeline_parallel x data_parallel makes {most} GPUs "
            f"with {model.num_attention_heads} heads and {model.num_hidden_layers} layers"
        ).at("constraints")
    span = range(asked.min, min(asked.max, asked.min + WIDEST_SEARCH) + 1)
    if any(_splits(batch, degrees, constraints) for batch in span):
        return
    if degrees[0] > asked.max and "data_parallel" not in constraints.stated():
        rule = _too_many_ranks(model, cluster, training, constraints, degrees)
        raise BrokenRule(rule).at("training", "global_batch_size")
    raise BrokenRule(_unsplit(asked, most, degrees, constraints)).at("training", "global_batch_size")


def _said(asked: BatchRange) -> str:
    return f"training.global_batch_size {asked.min}" + (f" to {asked.max}" if asked.max > asked.min else "")


def _too_many_ranks(
    model: ModelSpec,
    cluster: ClusterSpec,
    training: TrainingSpec,
    constraints: Constraints,
    degrees: tuple[int, ...],
) -> str:
    """More data-parallel ranks than sequences, with the batch and a part of the cluster that work."""
    pool, batch, length = cluster.pools[0], training.batch_range.max, training.sequence_length
    parts = [pool.gpus_per_node * 2**k for k in reversed(range(min(pool.nodes, batch).bit_length()))]
    part = next(
        (n for n in parts if _splits(batch, data_parallel_degrees(n, model, length, constraints), constraints)), 0
    )
    least = next((d for d in degrees if _splits(d, degrees, constraints)), 0)
    ways = ([f"fewer GPUs, such as {part}"] if part else []) + ([f"a batch of at least {least}"] if least else [])
    return (
        f"{_said(training.batch_range)} is less than {degrees[0]}, the fewest data-parallel ranks that {cluster.gpus} "
        f"GPUs leave beside {model.num_attention_heads} heads, {model.num_hidden_layers} layers and sequences of "
        f"{length}; every rank needs a sequence" + (f": take {' or '.join(ways)}" if ways else "")
    )


def _unsplit(asked: BatchRange, most: int, degrees: tuple[int, ...], constraints: Constraints) -> str:
    """The batch that does not split, with the nearest that does."""
    near = next(
        (
            b
            for d in range(1, WIDEST_SEARCH)
            for b in (asked.min - d, asked.max + d)
            if b > 0 and _splits(b, degrees, constraints)
        ),
        None,
    )
    shown = ", ".join(map(str, degrees[:8])) + (", ..." if len(degrees) > 8 else "")
    return (
        f"{_said(asked)} is not micro_batch_size x gradient_accumulation_steps x data_parallel "
        f"for any data_parallel of {shown} on {most} GPUs" + (f"; the nearest that is: {near}" if near else "")
    )
