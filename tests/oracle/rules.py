"""What back ends run, said once more in plain Python: nothing of `solver` is imported, no rule file is read."""

from collections.abc import Mapping
from typing import Any, Final

from cost_models.job import Job
from cost_models.specs.model import ModelSpec

NARROW: Final = ("fp8", "nvfp4")
OFFLOADS: Final = ("optimizer_offload", "parameter_offload", "activation_offload")


def _divides(job: Job, c: Mapping[str, Any]) -> bool:
    """Degrees against the numbers of the model."""
    model, s = job.model, job.training.sequence_length
    tp, cp, pp, v = c["tensor_parallel"], c["context_parallel"], c["pipeline_parallel"], c["virtual_pipeline_stages"]
    ep, etp, dp = c["expert_parallel"], c["expert_tensor_parallel"], c["data_parallel"]
    experts = model.moe.num_experts if model.moe else 1
    heads, kv, layers = model.num_attention_heads, model.num_key_value_heads, model.num_hidden_layers
    if heads % tp or model.hidden_size % tp or (kv % tp and tp % kv):
        return False
    if cp > 1 and s % (2 * cp):
        return False
    if c["sequence_parallel"] and (tp == 1 or s % (tp * cp)):
        return False
    if experts % ep or (dp * cp) % ep or (etp != 1 and (experts == 1 or etp != tp)):
        return False
    if v > 1 and (pp == 1 or c["gradient_accumulation_steps"] % pp):
        return False
    if v > 1 and layers % (pp * v) and not (c["backend"] == "megatron" and _short_ends(layers, pp, v)):
        return False
    return bool(pp <= layers)


def _short_ends(layers: int, pp: int, v: int) -> bool:
    """Whether equal chunks of which only the first and the last one lack layers hold the model."""
    longest = -(-layers // pp)
    return longest % v == 0 and longest * pp - layers <= 2 * longest // v


def runs_anywhere(job: Job, c: Mapping[str, Any]) -> bool:
    """What no back end can change: arithmetic, the device, the method."""
    flops, training = job.device.peak_flops, job.training
    on_cpu = job.device.kind == "cpu"
    if c["gradient_compression"] != "none" and c["data_parallel"] == 1:
        return False
    if c["precision"] == "bf16" and "bf16" not in flops and not on_cpu:
        return False
    if c["precision"] in NARROW and {"fp8": "fp8", "nvfp4": "fp4"}[c["precision"]] not in flops:
        return False
    if on_cpu and any(c[name] for name in OFFLOADS):
        return False
    if training.optimizer_in_backward and c["gradient_accumulation_steps"] > 1:
        return False
    whole = all(c[f"{name}_parallel"] == 1 for name in ("tensor", "pipeline", "context", "expert"))
    return _divides(job, c) and (training.method != "qlora" or whole)


def _deepspeed(job: Job, c: Mapping[str, Any]) -> bool:
    tp, pp, zero = c["tensor_parallel"], c["pipeline_parallel"], c["zero_stage"]
    if (pp > 1 and zero > 1) or (tp > 1 and (zero == 3 or pp > 1)) or tp > job.model.num_key_value_heads:
        return False
    if c["sequence_parallel"] or c["context_parallel"] > 1 or c["virtual_pipeline_stages"] > 1:
        return False
    if c["expert_tensor_parallel"] > 1 or (c["expert_parallel"] > 1 and pp > 1) or c["expert_overlap"]:
        return False
    if c["optimizer_offload"] and (zero == 0 or pp > 1):
        return False
    if c["parameter_offload"] and not (zero == 3 and c["optimizer_offload"]):
        return False
    if c["gradient_compression"] == "int8" and (zero != 3 or c["expert_parallel"] > 1):
        return False
    known = c["gradient_compression"] in ("none", "int8") and c["precision"] not in NARROW
    known &= c["cross_entropy"] in ("eager", "fused") and job.training.optimizer != "1-bit-adam"
    return bool(known and not c["activation_offload"] and not c["cuda_graph"])


def _plain_gpt(model: ModelSpec) -> bool:
    odd = model.parallel_residual or model.position_embedding == "alibi" or model.embedding_norm or model.head_bias
    odd = odd or model.embedding_projection is not None or model.attention_softcap or model.logit_softcap
    return not odd and model.norms_per_layer == 2 and model.norm_affine and model.qk_norm != "full"


def _megatron(job: Job, c: Mapping[str, Any]) -> bool:
    zero, pp, optimizer = c["zero_stage"], c["pipeline_parallel"], job.training.optimizer
    if zero > 2 or (zero > 1 and (pp > 1 or optimizer not in ("adamw", "sgd"))):
        return False
    if optimizer not in ("adamw", "sgd", "muon") or (optimizer == "muon" and (zero or c["communication_overlap"])):
        return False
    if job.training.method != "full" or not _plain_gpt(job.model):
        return False
    if job.model.moe and c["tensor_parallel"] > 1 and not c["sequence_parallel"]:
        return False
    if c["expert_overlap"] and (c["expert_parallel"] == 1 or (pp > 1 and c["virtual_pipeline_stages"] == 1)):
        return False
    if c["optimizer_offload"] and zero != 1:
        return False
    if c["parameter_offload"] or c["activation_offload"] or c["compile"] or c["recompute_interval"] > 1:
        return False
    if c["gradient_compression"] == "bf16" and c["precision"] not in ("bf16", *NARROW):
        return False
    known = c["gradient_compression"] in ("none", "bf16") and c["cross_entropy"] in ("vocab_parallel", "fused")
    return known and c["attention"] in ("flash", "eager")


def _fsdp(job: Job, c: Mapping[str, Any]) -> bool:
    zero, pp = c["zero_stage"], c["pipeline_parallel"]
    if job.training.optimizer == "1-bit-adam" or (job.training.method != "full" and pp > 1):
        return False
    if zero < 2 or (pp > 1 and zero == 3) or c["precision"] not in ("bf16", "fp32", "fp8"):
        return False
    if c["optimizer_offload"] != c["parameter_offload"] or (c["parameter_offload"] and pp > 1):
        return False
    if c["gradient_compression"] != "none" and not (c["gradient_compression"] == c["precision"] == "bf16"):
        return False
    if c["cross_entropy"] == "vocab_parallel" and c["tensor_parallel"] == 1:
        return False
    return not c["activation_offload"] and not c["cuda_graph"] and not c["expert_overlap"]


def _ddp(job: Job, c: Mapping[str, Any]) -> bool:
    degrees = ("tensor_parallel", "pipeline_parallel", "context_parallel", "expert_parallel")
    if any(c[d] > 1 for d in degrees) or c["zero_stage"] or any(c[name] for name in OFFLOADS):
        return False
    known = c["gradient_compression"] != "one-bit" and c["precision"] not in NARROW
    known &= c["cross_entropy"] != "vocab_parallel" and job.training.optimizer != "1-bit-adam"
    return bool(known and not c["cuda_graph"] and not c["expert_overlap"])


def _megatron_deepspeed(job: Job, c: Mapping[str, Any]) -> bool:
    zero, pp = c["zero_stage"], c["pipeline_parallel"]
    if (pp > 1 and zero > 1) or c["sequence_parallel"] or c["context_parallel"] > 1 or c["virtual_pipeline_stages"] > 1:
        return False
    if c["expert_tensor_parallel"] > 1 or (c["expert_parallel"] > 1 and pp > 1) or c["expert_overlap"]:
        return False
    if c["optimizer_offload"] and (zero == 0 or pp > 1):
        return False
    if c["parameter_offload"] and not (zero == 3 and c["optimizer_offload"]):
        return False
    known = c["gradient_compression"] == "none" and c["precision"] not in NARROW
    known &= c["cross_entropy"] == "vocab_parallel" and job.training.optimizer in ("adamw", "sgd")
    plain = not c["activation_offload"] and not c["cuda_graph"] and not c["compile"]
    return bool(known and plain and job.training.method == "full")


BACKENDS: Final = {
    "deepspeed": _deepspeed,
    "megatron": _megatron,
    "fsdp": _fsdp,
    "ddp": _ddp,
    "megatron-deepspeed": _megatron_deepspeed,
}


def legal(job: Job, c: Mapping[str, Any]) -> bool:
    """Whether the back end of a row runs it."""
    return runs_anywhere(job, c) and BACKENDS[c["backend"]](job, c)
