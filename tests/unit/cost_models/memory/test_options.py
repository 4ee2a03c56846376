"""Options of the job in the ledger: each adds or frees what its description says, and the table says the same."""

from typing import Any

import numpy as np
import pytest

from cost_models import catalog
from cost_models.job import Job
from cost_models.memory import memory_table
from cost_models.parameters import layer_weights, total_parameters
from cost_models.pools import pool
from cost_models.specs.cluster import ClusterSpec
from cost_models.specs.configuration import Configuration
from cost_models.specs.model import LayerKind
from cost_models.specs.training import TrainingSpec
from cost_models.strategy import Strategy
from tests.properties.test_memory import allocated
from tests.properties.test_memory import ledger as priced
from tests.unit.cost_models.memory.cases import SMALL, ledger, term

PARAMETERS = total_parameters(SMALL)
EVERY_OPTION: tuple[dict[str, Any], ...] = (
    {"reference_model": True},
    {"eval_kept_samples": 50, "eval_sequence_length": 256},
    {"load": "whole_on_device", "save": "whole_on_device"},
    {"load": "whole_on_host"},
    {"state_precision": "pure"},
    {"state_precision": "pure", "optimizer_in_backward": True, "optimizer_paged": True},
    {"offload_to": "nvme"},
)


@pytest.mark.parametrize(("stage", "shards"), [(0, 1), (3, 8)])
def test_a_reference_model_is_a_frozen_copy_sharded_as_the_weights(stage: int, shards: int) -> None:
    named = ledger(training={"reference_model": True}, zero_stage=stage, data_parallel=8)
    for instant in named.phase_of:
        assert term(named, instant, "reference_model") == pytest.approx(2 * PARAMETERS / shards)


def test_kept_evaluation_logits_are_fp32_and_only_in_evaluation() -> None:
    named = ledger(training={"eval_kept_samples": 50, "eval_sequence_length": 256})
    assert term(named, "evaluation", "kept_logits") == 4 * 50 * 256 * SMALL.vocab_size
    assert {i for i in named.phase_of if term(named, i, "kept_logits")} == {"evaluation"}


@pytest.mark.parametrize(("option", "instant", "name"), [("load", "load", "load_copy"), ("save", "save", "save_copy")])
def test_a_whole_copy_is_there_while_loading_or_saving_however_sharded(option: str, instant: str, name: str) -> None:
    named = ledger(training={option: "whole_on_device"}, zero_stage=3, data_parallel=8)
    assert term(named, instant, name) == pytest.approx(2 * PARAMETERS)
    assert {i for i in named.phase_of if term(named, i, name)} == {instant}


def test_pure_states_take_eight_bytes_a_parameter_and_mixed_ones_sixteen() -> None:
    sizes = []
    for layout in ("mixed", "pure"):
        named = ledger(backend="ddp", training={"state_precision": layout})
        sizes.append(sum(term(named, "optimizer_step", name) for name in ("weights", "gradients", "optimizer_states")))
    assert sizes == pytest.approx([16 * PARAMETERS, 8 * PARAMETERS])


def test_an_optimizer_in_backward_keeps_no_gradient_but_the_largest() -> None:
    named = ledger(backend="ddp", training={"state_precision": "pure", "optimizer_in_backward": True})
    assert term(named, "optimizer_step", "gradients") == 0
    assert term(named, "backward_first_layer", "gradients") == 2 * SMALL.vocab_size * SMALL.hidden_size


def test_paged_states_move_to_the_host() -> None:
    plain, paged = (ledger(backend="ddp", training={"optimizer_paged": on}) for on in (False, True))
    assert term(paged, "optimizer_step", "optimizer_states") == 0
    assert paged.stages[0].host_bytes - plain.stages[0].host_bytes == pytest.approx(8 * PARAMETERS)


def test_states_on_nvme_leave_only_buffers_on_the_host() -> None:
    offloaded = [{"layers": 8, "recompute": {"none": 8}, "optimizer_layers_offloaded": 8}]
    cpu, nvme = (
        ledger(training={"offload_to": to}, zero_stage=3, data_parallel=8, stages=offloaded, parameter_offload=True)
        for to in ("cpu", "nvme")
    )
    calibration = catalog.calibration()
    buffers = calibration("host.pinned_factor") * calibration("host.nvme_buffer_bytes")
    copies = ledger(zero_stage=3, data_parallel=8).stages[0].host_bytes  # of the process, and while loading and saving
    assert nvme.stages[0].host_bytes == pytest.approx(copies + buffers)
    assert cpu.allocated_bytes == nvme.allocated_bytes


def test_a_model_built_on_the_host_costs_four_bytes_a_parameter_and_rank() -> None:
    named = ledger(training={"load": "whole_on_host"}, zero_stage=3, data_parallel=8)
    assert named.host_node_bytes == pytest.approx(8 * (catalog.calibration()("host.process_bytes") + 4 * PARAMETERS))


def test_zero_3_steps_one_sub_group_at_a_time() -> None:
    facts = catalog.framework("deepspeed").model_copy(update={"step_parameters": 10**6})
    shard = PARAMETERS / 2
    for stage, expected in ((2, 6 * shard), (3, 6 * 10**6)):  # flat in 16 bits, and cast
        named = ledger(facts=facts, zero_stage=stage, data_parallel=2)
        assert term(named, "optimizer_step", "step_temporaries") == pytest.approx(expected)


def test_megatron_deepspeed_opens_communicators_of_the_model_and_of_all_ranks() -> None:
    group = catalog.calibration()("communicator.group")
    split: dict[str, Any] = {"tensor_parallel": 2, "pipeline_parallel": 2, "data_parallel": 2,
             "stages": [{"layers": 4, "recompute": {"none": 4}}] * 2}  # fmt: skip
    sizes = [ledger(backend=name, **split).communicator_bytes for name in ("megatron", "megatron-deepspeed")]
    assert sizes[1] - sizes[0] == pytest.approx(2 * group)


def test_trained_embeddings_over_a_quantised_base_are_copies_in_fp32() -> None:
    training = {"method": "qlora", "lora": {"rank": 8, "train_embeddings": True}}
    named = ledger(backend="ddp", training=training)
    assert term(named, "optimizer_step", "trainable_embeddings") == 4 * 2 * SMALL.vocab_size * SMALL.hidden_size
    assert layer_weights(SMALL, LayerKind())  # nothing of the layers counts as an embedding


@pytest.mark.parametrize("options", EVERY_OPTION)
def test_the_table_says_what_the_ledger_says_under_every_option(options: dict[str, Any]) -> None:
    job = Job(
        model=SMALL,
        cluster=ClusterSpec(pools=(pool(device="a100-sxm-80gb"),)),
        training=TrainingSpec(**{"sequence_length": 512, "global_batch_size": 8, **options}),
    )
    stages = [{"layers": 8, "recompute": {"none": 3, "full": 5}, "optimizer_layers_offloaded": 2}]
    configuration = Configuration.read(
        {"backend": {"name": "deepspeed"}, "zero_stage": 3, "data_parallel": 8, "stages": stages}
    )
    strategy = Strategy.of(configuration)
    columns = {name: np.atleast_1d(getattr(strategy, name)) for name in strategy.__dataclass_fields__}
    table = memory_table(job, Strategy(**columns), catalog.calibration(), oom_risk=0.01)
    named = priced(job, configuration)
    for (stage, instant), size in allocated(job, configuration, table).items():
        assert named.stages[stage].allocated(instant) == pytest.approx(size, rel=1e-9)
    host = table.host_constant[0, 3] + 2 * table.host_layer[0, 0]
    assert named.stages[0].host_bytes == pytest.approx(host, rel=1e-9)


def test_written_out_attention_scores_of_an_evaluation_grow_with_the_square_of_its_length() -> None:
    def scores(length: int, attention: str) -> float:
        named = ledger(training={"eval_sequence_length": length, "eval_batch_size": 2}, attention=attention)
        return term(named, "evaluation", "attention_working_set")

    assert scores(512, "eager") == 8 * 16 * 2 * 512**2
    assert scores(1024, "eager") == 4 * scores(512, "eager")
    assert scores(1024, "flash") == 0
