"""Random jobs and configurations for the properties of step time."""

from hypothesis import strategies as st

from cost_models.job import Job
from cost_models.pools import pool
from cost_models.specs.choices import ATTENTIONS, BACKENDS, COMPRESSIONS, CROSS_ENTROPIES, OPTIMIZERS
from cost_models.specs.cluster import ClusterSpec
from cost_models.specs.configuration import BackendChoice, Configuration, RecomputeCounts, Stage
from cost_models.specs.model import LayerKind, MlaSpec, ModelSpec, MoeSpec
from cost_models.specs.training import LoraSpec, TrainingSpec

DEVICES = (
    "a100-sxm-80gb",
    "h100-sxm-80gb",
    "b200",
    "gb200",
    "v100-sxm-32gb",
    "rtx-4090",
    "mi300x",
    "t4",
    "a100-pcie-80gb",
)
POWERS = st.sampled_from([1, 2, 4, 8])


@st.composite
def models(draw: st.DrawFn) -> ModelSpec:
    """A small model of any architecture the ledgers know: dense or routed, grouped or latent attention, windows."""
    layers = draw(st.integers(8, 24))
    heads = draw(st.sampled_from([8, 16, 32]))
    moe = draw(st.none() | st.just(MoeSpec(num_experts=16, num_experts_per_tok=2, moe_intermediate_size=768)))
    kinds = [
        LayerKind(
            attention=draw(st.sampled_from(["full", "sliding"])),
            mlp="dense" if moe is None else draw(st.sampled_from(["dense", "moe"])),
        )
        for _ in range(layers)
    ]
    return ModelSpec(
        hidden_size=draw(st.sampled_from([512, 1024, 4096])),
        num_hidden_layers=layers,
        num_attention_heads=heads,
        num_key_value_heads=draw(st.sampled_from([1, 2, heads])),
        head_dim=draw(st.sampled_from([36, 64, 128])),
        intermediate_size=draw(st.sampled_from([2048, 11008])),
        vocab_size=draw(st.sampled_from([32000, 50257])),
        tie_word_embeddings=draw(st.booleans()),
        gated_mlp=draw(st.booleans()),
        sliding_window=1024,
        moe=moe,
        mla=draw(
            st.none()
            | st.just(
                MlaSpec(q_lora_rank=256, kv_lora_rank=128, qk_nope_head_dim=64, qk_rope_head_dim=32, v_head_dim=64)
            )
        ),
        layers=tuple(kinds),
    )


@st.composite
def jobs(draw: st.DrawFn) -> Job:
    """A job on any device and method."""
    training = TrainingSpec(
        method=draw(st.sampled_from(["full", "full", "lora", "qlora"])),
        sequence_length=draw(st.sampled_from([512, 2048, 8192])),
        global_batch_size=64,
        optimizer=draw(st.sampled_from(OPTIMIZERS)),
        expert_imbalance=draw(st.sampled_from([1.0, 1.3])),
    )
    if training.method != "full" and draw(st.booleans()):
        training = training.model_copy(update={"lora": LoraSpec(rank=8, target_modules="qv", train_embeddings=True)})
    return Job(
        model=draw(models()),
        cluster=ClusterSpec(pools=(pool(device=draw(st.sampled_from(DEVICES)), nodes=draw(st.sampled_from([1, 4]))),)),
        training=training,
    )


@st.composite
def stages(draw: st.DrawFn, layers: int) -> tuple[Stage, ...]:
    """An uneven layout of `layers` over one to four stages with any recompute and offload counts."""
    count = draw(st.integers(1, 4))
    cuts = sorted(draw(st.lists(st.integers(1, layers - 1), min_size=count - 1, max_size=count - 1, unique=True)))
    sizes = [b - a for a, b in zip([0, *cuts], [*cuts, layers], strict=True)]
    result = []
    for size in sizes:
        full = draw(st.integers(0, size))
        selective = draw(st.integers(0, size - full))
        counts = RecomputeCounts(full=full, selective=selective, none=size - full - selective)
        result.append(Stage(layers=size, recompute=counts, optimizer_layers_offloaded=draw(st.integers(0, size))))
    return tuple(result)


@st.composite
def configurations(draw: st.DrawFn, job: Job) -> Configuration:
    """A configuration of the job, legal or not for its back end: the formulas price either."""
    layout = draw(stages(job.model.num_hidden_layers))
    cpu_precisions = ["fp16", "fp32", "bf16"] + (["fp8"] if "fp8" in job.device.peak_flops else [])
    tensor = draw(POWERS)
    return Configuration(
        backend=BackendChoice(name=draw(st.sampled_from(BACKENDS))),
        tensor_parallel=tensor,
        sequence_parallel=draw(st.booleans()),
        context_parallel=draw(POWERS),
        expert_parallel=draw(POWERS),
        expert_tensor_parallel=draw(st.sampled_from([1, tensor])),
        pipeline_parallel=len(layout),
        virtual_pipeline_stages=draw(st.sampled_from([1, 2, 3])) if len(layout) > 1 else 1,
        data_parallel=draw(POWERS),
        zero_stage=draw(st.integers(0, 3)),
        micro_batch_size=draw(st.integers(1, 4)),
        gradient_accumulation_steps=draw(st.integers(1, 16)),
        stages=layout,
        parameter_offload=draw(st.booleans()),
        activation_offload=draw(st.booleans()),
        gradient_compression=draw(st.sampled_from(COMPRESSIONS)),
        precision=draw(st.sampled_from(cpu_precisions)),
        attention=draw(st.sampled_from(ATTENTIONS)),
        cross_entropy=draw(st.sampled_from(CROSS_ENTROPIES)),
        optimizer=job.training.optimizer,
        fused_kernels=draw(st.booleans()),
        cuda_graph=draw(st.booleans()),
        compile=draw(st.booleans()),
        communication_overlap=draw(st.booleans()),
        expert_overlap=draw(st.booleans()),
    )
