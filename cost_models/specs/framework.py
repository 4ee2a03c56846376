"""Facts of a training framework that decide memory: layouts of states, what is gathered, what a loss keeps.

A fact is read from the framework's own source or documents and says where. Nothing here is fitted.
"""

from collections.abc import Mapping
from typing import Literal

from pydantic import Field, NonNegativeFloat, NonNegativeInt, PositiveInt

from cost_models.specs.base import Spec
from cost_models.specs.choices import Attention, Compression, CrossEntropy, Optimizer, Precision


class ParameterLayout(Spec):
    """Bytes that one trained parameter costs under one precision, before any sharding. [bytes per parameter]"""

    weight: NonNegativeFloat
    """What the rank keeps between steps."""
    gradient: NonNegativeFloat
    """As accumulated."""
    master: NonNegativeFloat = 0
    """High-precision copy the optimizer updates; 0 where the weight itself is updated."""
    copied_master: NonNegativeFloat = 0
    """A further copy of the weights' shard, which the optimizer updates where it is sharded."""
    state: NonNegativeFloat
    """One optimizer state element."""
    compute: NonNegativeFloat = 2
    """The dtype of activations and of gathered weights."""
    reduce: NonNegativeFloat = 2
    """The dtype gradients are reduced in."""
    cast: NonNegativeFloat = 0
    """Copies in another dtype that are cached from forward to backward (autocast, FP8 weight caches)."""
    autocast: bool = False
    """Operators run in the compute dtype between an fp32 residual stream and fp32 norms."""
    step_gradient: NonNegativeFloat = 0
    """Copy of the gradient that exists only while the optimizer runs, sharded as the optimizer states."""
    source: str


class OptimizerFacts(Spec):
    """What an optimizer keeps."""

    states: NonNegativeFloat
    """State elements per parameter of a matrix, in the layout's state dtype."""
    states_other: NonNegativeFloat
    """The same for embeddings, norms and biases."""
    fixed_bytes: NonNegativeFloat = 0
    """Bytes per parameter whose dtype the layout does not choose (8-bit states with their block scales)."""
    factored: bool = False
    """Row and column factors in fp32 instead of a full second moment."""
    error_feedback: NonNegativeFloat = 0
    """Bytes per parameter of residuals of a compressed exchange, unsharded."""
    source: str


class CrossEntropyFacts(Spec):
    """Bytes per logit (token x padded vocabulary) of a loss implementation."""

    kept: NonNegativeFloat
    """Saved from forward to backward."""
    peak: NonNegativeFloat
    """Most that lives at once, at the end of forward or the start of backward, the kept ones included."""
    forward: NonNegativeFloat = 0
    """Most that lives in a forward without gradients (evaluation)."""
    chunk_length: NonNegativeFloat = 0
    """Tokens of a sequence whose loss is differentiated at once, of logits that are all kept: what the peak has beyond
    them is theirs alone. 0: all tokens at once."""
    held: NonNegativeFloat = 0
    """Of the kept ones, those that the training loop's own variable holds through backward."""
    chunks: PositiveInt = 1
    """Parts of the tokens that head and loss are computed for, one after another and again in backward."""
    source: str


class QuantizedFacts(Spec):
    """4-bit storage of frozen weights. [bytes per parameter]"""

    single: NonNegativeFloat
    """4-bit value and one fp32 scale per block."""
    double: NonNegativeFloat
    """With the scales themselves quantised."""
    other: NonNegativeFloat
    """Weights that stay unquantised: embeddings, head, norms."""
    source: str


class FrameworkFacts(Spec):
    """One framework family."""

    name: str
    ledger: Literal["eager", "megatron"]
    """`eager`: every operator of the Hugging Face module saves its own inputs; `megatron`: Transformer Engine's fused
    operators."""
    layouts: Mapping[Precision, ParameterLayout]
    optimizers: Mapping[Optimizer, OptimizerFacts]
    cross_entropy: Mapping[CrossEntropy, CrossEntropyFacts]
    adapter_layout: ParameterLayout
    """LoRA adapters kept in fp32."""
    module_layout: ParameterLayout
    """Embeddings and head trained beside adapters: a copy of the frozen ones."""
    quantized: QuantizedFacts
    compression_error: Mapping[Compression, NonNegativeFloat] = Field(default_factory=dict)
    """Residual bytes per trained parameter of gradient compression, unsharded."""

    weights_sharded_from: PositiveInt
    """Least ZeRO stage that shards weights; 4 for never."""
    gradients_sharded_from: PositiveInt = 2
    optimizer_sharded_from: PositiveInt = 1
    shards_quantized: bool = False
    """Whether 4-bit weights are sharded with the others."""
    gradients_persist: bool = False
    """Gradient buffers exist through the whole step, not only from backward to the optimizer."""
    offloads_gradients: bool = False
    """An optimizer on the host takes its gradients with it."""
    offload_ratio_from: NonNegativeInt = 0
    """Least ZeRO stage at which part of the optimizer may be offloaded; below it, all or nothing."""
    states_created: Literal["initialization", "first_step"] = "first_step"
    gather_style: Literal["none", "root_group", "budget"] = "none"
    """`root_group`: embedding and head stay gathered, layers one by one; `budget`: up to live_parameters stay
    gathered."""
    live_parameters: NonNegativeInt = 0
    """Most gathered parameters that stay resident. [parameters]"""
    prefetch_parameters: NonNegativeInt = 0
    persistent_parameters: NonNegativeInt = 0
    """Most parameters of small tensors that are never partitioned, over the model. [parameters]"""
    bucket_parameters: NonNegativeInt = 0
    """Size of one reduce bucket. [parameters]"""
    bucket_copies: NonNegativeFloat = 0
    """Reduce buckets alive at once during backward under ZeRO >= 1 with overlapped communication; one without."""
    bucket_copies_sharded: NonNegativeFloat = 0
    """Reduce buckets where weights are sharded, alive from initialisation on; 0: as `bucket_copies`."""
    scatter_copies: NonNegativeFloat = 0
    """Flat copies of a bucket while it is reduce-scattered, where weights are sharded."""
    gloo_scatter_copies: NonNegativeFloat = 0
    """Copies of its input that a reduce-scatter makes between processes on CPUs."""
    flattened_gradients: NonNegativeFloat = 0
    """Further copies of a rank's gradient shard: at the end of backward, where gradients are sharded and weights not,
    and flat for the optimizer's step, where that is sharded."""
    flattened_casts: bool = False
    """Whether the copies of gradients for a step that is not sharded are flattened once more."""
    allreduced_parameters: NonNegativeInt = 0
    """Most gradients that are copied flat to be all-reduced where no state is sharded. [parameters]"""
    gradients_persist_sharded: bool = False
    """Gradient partitions exist from initialisation on where weights are sharded."""
    gradient_bucket_copies: NonNegativeFloat = 0
    """Whole copies of the gradients in communication buckets when data-parallel ranks > 1 (DDP without bucket views).
    Whole copies of the gradients in communication buckets when data-parallel ranks > 1 (DDP without bucket views)."""

    step_parameter_copies: NonNegativeFloat = 0
    """Copies of all updated parameters while the optimizer runs (foreach: 1; fused: 0)."""
    step_parameters: NonNegativeInt = 0
    """Most parameters of a rank that one step of the optimizer takes at once under full sharding; 0 for all."""
    step_largest_tensor_bytes: NonNegativeFloat = 0
    """Bytes per parameter of the largest tensor while a loop optimizer runs."""
    vocabulary_multiple: PositiveInt = 1
    dropout: bool = False
    """Dropout probability above 0: masks are kept."""
    deterministic: bool = False
    """Deterministic kernels, which need larger workspaces."""
    eager_module_loading: bool = False
    """CUDA loads every kernel with the context, as before CUDA 11.7 and its lazy loading."""
    functional_test: bool = False
    """Megatron-LM's functional tests: what their loops hold beside the model is no small part of their models."""
    dummy_weight_gradient: bool = False
    """One 16-bit tensor per distinct weight shape is kept from the second micro-batch on."""
    backward_hidden_bytes: NonNegativeFloat = 0
    """Bytes per token and hidden unit that a layer's backward adds, whatever the degrees (Megatron's ledger)."""
    model_group: bool = False
    """A communicator of all ranks of one replica of the model is opened beside those of the parallel degrees."""
    world_group: bool = False
    """A communicator of all ranks is opened beside those of the parallel degrees."""
    optimizer_instances: PositiveInt = 1
    """Groups of data-parallel ranks that hold the sharded optimizer once each: it is sharded over one group only."""
    early_forward_chunks: NonNegativeInt = 0
    """Chunks of further forward passes that an interleaved pipeline starts before its warm-up's last backward."""
    loss_variants: Mapping[str, CrossEntropyFacts] = Field(default_factory=dict)
    """Loss implementations that no plan chooses but that measured runs name."""
    kept_frozen_inputs: bool = False
    """Whether products with 4-bit weights keep their inputs, of which no gradient needs any: bitsandbytes before
    0.43.2 (`autograd/_functions.py`, MatMul4Bit: ctx.tensors)."""
    held_frozen_inputs: NonNegativeFloat = 0
    """Of such inputs the share of a micro-batch that the one before has left: as attributes of their nodes they live
    until the loop's variable for the loss is bound anew."""
    embedding_copies: NonNegativeFloat = 0
    """Further tables of embeddings that a script holds beside those of a 4-bit model."""
    flat_units: bool = False
    """Where weights are sharded, those of a layer are one flat parameter, frozen ones beside trained ones too: its
    gradient covers all of them, and is whole while micro-batches accumulate without synchronisation (FSDP1)."""
    longest_first: bool = False
    """The longest sample comes first, before there are gradients to accumulate; the length is that sample's."""
    quantized_head: bool = False
    """Whether the head is stored in 4 bits too, and expanded for its product."""
    kept_outputs: bool = False
    """The training loop holds on to the model's outputs, and with them the logits, through backward."""

    load_copy: Literal["model", "file", "shard", "none"] = "file"
    """Host copy per rank while weights are loaded: the whole model, one checkpoint file, or the rank's own shard."""
    checkpoint_file_bytes: NonNegativeInt = 0
    save_copy: Literal["full", "shard", "none"] = "shard"
    """Host copy while saving: `full` gathers the model on one rank of a node."""
    default_attention: Attention = "sdpa"
    default_cross_entropy: CrossEntropy = "eager"
    source: str
