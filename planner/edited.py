"""A plan that a person changed: what is said of it, and the rules that its configuration must still obey."""

from typing import Final

from cost_models.errors import BrokenRule
from cost_models.specs.configuration import Configuration
from planner.plan import Plan

EDITED: Final = (
    "the plan was changed after it was made: its prediction and its proof are not of this configuration "
    "(`meshwright estimate` prices it)"
)


def check_edited(plan: Plan) -> None:
    """Refuse a configuration that its back end, its job or its cluster rules out.

    Raises:
        BrokenRule: naming the first rule broken, both sides and the reason.
    """
    from planner.legality import violations

    assert plan.configuration is not None
    found = _sums(plan, plan.configuration) or list(violations(plan.request.job, plan.configuration))
    if found:
        more = f" (and {len(found) - 1} more)" if found[1:] else ""
        raise BrokenRule(f"the edited plan: {found[0]}{more}")


def _sums(plan: Plan, c: Configuration) -> list[str]:
    """Sums and products that no back end's rule repeats."""
    model, batch, gpus = plan.request.model, plan.request.training.batch_range, plan.request.cluster.gpus
    found, layers = [], sum(stage.layers for stage in c.stages)
    if c.world_size > gpus:
        found.append(
            f"tensor_parallel {c.tensor_parallel} x context_parallel {c.context_parallel} x pipeline_parallel "
            f"{c.pipeline_parallel} x data_parallel {c.data_parallel} is {c.world_size} but the cluster has {gpus} GPUs"
        )
    if layers != model.num_hidden_layers:
        found.append(f"the stages hold {layers} layers but num_hidden_layers is {model.num_hidden_layers}")
    if not batch.min <= c.global_batch_size <= batch.max:
        said = f"{batch.min}" if batch.min == batch.max else f"{batch.min} to {batch.max}"
        found.append(
            f"micro_batch_size {c.micro_batch_size} x gradient_accumulation_steps {c.gradient_accumulation_steps} x "
            f"data_parallel {c.data_parallel} is {c.global_batch_size} but training.global_batch_size is {said}"
        )
    return found
