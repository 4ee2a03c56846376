"""The question of a user report in the planner's words: a row of the common header, and what the header lacks.

Only `model`, `method`, `hardware` and `config` are read here; what happened is the answer and belongs to the scorer.
"""

import re
from dataclasses import dataclass
from typing import Any, Final

from planner.datasets.case_options import options_of
from planner.datasets.cases import UserCase
from planner.measurement import Measurement

SEQUENCE, MICRO_BATCH = "seq_len", "micro_batch"


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """What a report asks."""

    row: Measurement
    training: dict[str, Any]
    """Options of the training job that the common header lacks, by their name in `TrainingSpec`."""
    missing: tuple[str, ...]
    """Fields that decide memory and are not stated."""
    assumed: tuple[str, ...]
    """`key: why` of what the text was taken to mean."""
    host_memory_gb: float | None
    device_memory_gb: float | None
    ulysses: int | None
    """Degree of attention-head sequence parallelism."""


def question_of(case: UserCase) -> Question:
    """Read a report."""
    text = _everything(case)
    sharding, of_sharding = _sharding(case, text)
    precision, of_precision = _precision(case)
    offload, to_nvme = _offload(case, text)
    method = _method(case, text)
    recompute, of_recompute = _recompute(case, method)
    training, of_training = options_of(case, text, method, to_nvme=to_nvme)
    row = Measurement(
        source="case", ref=case.ref, model=_model_name(case), gpu=case.text("hardware", "gpu"),
        interconnect=_interconnect(case), framework=_framework(case, text),
        precision=precision, method=method, offload=offload, recompute=recompute,
        flash_attn=_attention(case), optimizer=_optimizer(case), outcome="ok",
        layers=case.whole("model", "layers"), hidden=case.whole("model", "hidden"), heads=case.whole("model", "heads"),
        kv_heads=case.whole("model", "kv_heads"), ffn_hidden=_feed_forward(case), vocab=_vocabulary(case),
        params_b=case.size("model", "params_b"), seq_len=case.whole("config", "seq_len"),
        n_gpus=case.whole("hardware", "n_gpus"), gpus_per_node=_per_node(case), zero_stage=sharding,
        tp=case.whole("config", "tp"), pp=case.whole("config", "pp"), cp=case.whole("config", "cp"),
        ep=case.whole("config", "ep"), vpp=case.whole("config", "vpp"), dp=None,
        micro_batch=case.whole("config", "micro_batch"), grad_accum=case.whole("config", "grad_accum"),
        global_batch_seqs=case.whole("config", "global_batch"), facts=_facts(case, text, precision),
    )  # fmt: skip
    return Question(
        row=row,
        training=training,
        missing=_missing(case),
        assumed=tuple(t for t in (of_sharding, of_precision, of_recompute, *of_training) if t),
        host_memory_gb=case.size("hardware", "host_ram_gb"),
        device_memory_gb=case.size("hardware", "mem_gb"),
        ulysses=case.whole("config", "sp") or case.whole("config", "ulysses"),
    )


def _interconnect(case: UserCase) -> str:
    """The links as printed; a network without RDMA and without a rate is taken for 25 Gb/s Ethernet of a node."""
    text = str(case.stated("hardware", "interconnect") or "")
    if _PLAIN_NETWORK.search(text) and not _RATE.search(text):
        return f"{text}; 25 Gb/s ethernet"
    return text


_PLAIN_NETWORK: Final = re.compile(r"ib disabled|no (?:ib|infiniband|rdma)|\btcp\b|socket|ethernet", re.IGNORECASE)
_RATE: Final = re.compile(r"\d ?G(?:b/s|bps|bit|bE)", re.IGNORECASE)


def _everything(case: UserCase) -> str:
    """All of the configuration as one text, for facts that reports put in any field."""
    return " ; ".join(f"{key} {value}" for key, value in case.config.items() if value is not None).lower()


def _missing(case: UserCase) -> tuple[str, ...]:
    found = []
    sized = case.size("model", "params_b") is not None
    shaped = all(case.whole("model", key) for key in ("layers", "hidden"))
    if not shaped and not sized:
        found.append("model")
    assumed = case.assumed_fields
    if case.size("hardware", "mem_gb") is None or {"hardware.gpu", "hardware.mem_gb"} <= assumed:
        found.append("device")
    if case.whole("hardware", "n_gpus") is None:
        found.append("n_gpus")
    if case.whole("config", "micro_batch") is None:
        found.append(MICRO_BATCH)
    if case.whole("config", "seq_len") is None:
        found.append(SEQUENCE)
    if not case.text("config", "framework"):
        found.append("framework")
    return tuple(found)


def _model_name(case: UserCase) -> str:
    name = str(case.stated("model", "hf_id") or "custom")
    if re.search(r"llm-foundry|composer", _name(case)) and "mpt" not in name.lower():
        name = f"mpt {name}"  # its benchmarks train MPT
    return re.sub(r"\s+\(.*|,.*| (?:shape|class)\b.*", "", name)


def _feed_forward(case: UserCase) -> int | None:
    """Width of the feed-forward: what the run used where it differs from the model's."""
    return case.whole("config", "ffn_override") or case.whole("model", "ffn")


def _vocabulary(case: UserCase) -> int | None:
    return case.whole("config", "padded_vocab") or case.whole("model", "vocab")


def _per_node(case: UserCase) -> int | None:
    gpus, nodes = case.whole("hardware", "n_gpus"), case.whole("hardware", "nodes")
    if gpus is None or nodes is None or gpus % nodes:
        return None
    per_node = gpus // nodes
    return per_node if per_node <= _MOST_PER_NODE else None


_MOST_PER_NODE: Final = 72

_ALIASES: Final = (
    (r"llama-?recipes|llama-?cookbook", " fsdp", "fsdp"),
    (r"verl|easyr1|openrlhf", " fsdp", "fsdp"),
)


def _framework(case: UserCase, text: str) -> str:
    """The framework, with what shards its weights where another field says that."""
    name = case.text("config", "framework")
    fsdp, zero = case.text("config", "fsdp"), case.stated("config", "zero_stage")
    if re.search(r"megatron|nemo|torchtitan|torchtune|litgpt|llm-foundry|nanotron|colossal", name):
        return name
    if re.search(r"deepspeed|zero", name) and not fsdp:
        return name
    if fsdp and fsdp not in {"false", "no", "none"}:
        return f"{name} fsdp" if "fsdp" not in name else name
    if zero is not None or re.search(r"deepspeed|zero-?[123]", text):
        return f"{name} deepspeed"
    return name


def _sharding(case: UserCase, text: str) -> tuple[int | None, str]:
    """ZeRO stage: stated, named in the text, or what the sharding strategy of FSDP means."""
    stated = case.number("config", "zero_stage")
    if stated is not None and stated in _STAGES:
        return int(stated), ""
    fsdp = case.text("config", "fsdp")
    if fsdp not in {"", "false", "no", "none"}:
        return next((stage for pattern, stage in _STRATEGIES if re.search(pattern, fsdp)), 3), ""
    named = re.search(r"zero[- _]?(?:stage[- _]?)?([0-3])\b", text)
    if named:
        return int(named.group(1)), ""
    return _sharding_by_default(case, text)


_STAGES: Final = (0, 1, 2, 3)
_STRATEGIES: Final = ((r"shard_grad_op|zero-?2", 2), (r"no_shard", 0))


def _sharding_by_default(case: UserCase, text: str) -> tuple[int | None, str]:
    """What a stack shards unless told otherwise."""
    name = _name(case)
    if re.search(r"megatron|nemo", name):
        if "distributed" in case.text("config", "optimizer"):
            return 1, ""
        if re.search(r"nemo|bridge|swift", name):
            return 1, "zero_stage: not stated, the distributed optimizer assumed: the stack's default"
        return None, ""
    if "deepspeed" in text:
        return 2, "zero_stage: not stated, 2 assumed: the stage of DeepSpeed's example configurations"
    if re.search(r"verl|easyr1|openrlhf", name):
        return 3, "zero_stage: not stated, full sharding assumed: the stack's default"
    return None, ""


def _precision(case: UserCase) -> tuple[str, str]:
    """The precision in the words of the common header, the first pattern that occurs."""
    text = case.text("config", "precision")
    if not text:
        return "bf16", "precision: not stated, bf16 assumed"
    if re.search(r"dequanti[sz]ed|mxfp4", text):
        return "bf16", "precision: 4-bit checkpoint expanded to bf16"
    if re.match(r"fp32|float32", text):
        return "fp32", ""
    if re.search(r"fp8|float8", text):
        return "fp8", ""
    kind = "fp16" if re.search(r"fp16|float16|\bhalf\b", text) and "bf16" not in text else "bf16"
    pure = "pure " if re.search(r"pure|everything|true|only", text) else ""
    mixed = " mixed" if not pure and re.search(r"mixed|amp|fp32|master", text) else ""
    return f"{pure}{kind}{mixed}", ""


def _offload(case: UserCase, text: str) -> tuple[str, bool]:
    """What lives on the host, as the header spells it, and whether that is NVMe.

    A bare CPU offload is FSDP's, which takes parameters, gradients and states, or DeepSpeed's of the optimizer.
    """
    said = case.text("config", "offload")
    fsdp = case.text("config", "fsdp")
    if "offload" in fsdp:
        said = f"{said} param optim"
    if not said or said in {"false", "no", "none"}:
        return "", False
    parts = [word for word in ("optim", "param", "activation") if word in said]
    if not parts:
        whole = bool(fsdp) or "fsdp" in text or "zero3" in text or case.number("config", "zero_stage") == 3
        parts = ["optim", "param"] if whole else ["optim"]
    return "+".join(parts), "nvme" in said


def _recompute(case: UserCase, method: str) -> tuple[str, str]:
    """Recompute; trainers that save memory by default use it where a report is silent."""
    text = case.text("config", "recompute")
    if text:
        return next((mode for pattern, mode in _RECOMPUTES if re.match(pattern, text)), "full"), ""
    if re.search(r"llama-?factory|axolotl|unsloth|swift|xtuner|qlora|torchtune|verl|easyr1|trl", _name(case)):
        return "full", "recompute: not stated, full assumed: on in the stack's shipped recipes"
    if method == "qlora":
        return "full", "recompute: not stated, full assumed: on in peft's prepare_model_for_kbit_training"
    return "none", "recompute: not stated, none assumed"


_RECOMPUTES: Final = (
    (r"none|no\b|false|off|disabled|0", "none"),
    (r"selective|sac\b|op\b|attn|attention|partial|core", "selective"),
)


def _name(case: UserCase) -> str:
    return case.text("config", "framework")


def _method(case: UserCase, text: str) -> str:
    if case.method.startswith(("qlora", "lora")):
        stored = case.text("config", "precision") + case.text("config", "quantization")
        return "qlora" if re.search(r"int8|8[- ]?bit|nf4|4[- ]?bit|\bint4", stored) else case.method
    if re.search(r"\bqlora\b", text):
        return "qlora"
    return "lora" if re.search(r"\blora\b", case.text("config", "trainable")) else "full"


def _attention(case: UserCase) -> str:
    text = case.text("config", "attention")
    if re.search(r"eager|math|naive", text):
        return "eager"
    if re.search(r"flash|\bfa-?[23]|triton", text):
        return "flash"
    return "sdpa" if re.search(r"sdpa|xformers|mem", text) else ""


def _optimizer(case: UserCase) -> str:
    text = case.text("config", "optimizer")
    for pattern, name in _OPTIMIZERS:
        if re.search(pattern, text):
            return name
    return re.split(r" vs | or |/", text)[0]


_OPTIMIZERS: Final = (
    (r"badam|lisa\b", "one block at a time"),
    (r"galore|apollo|lomo", "adafactor"),
    (r"adam-?mini", "lion"),
    (r"8[- ]?bit", "adamw-8bit"),
)
"""Optimizers by what they keep: factored or projected states as Adafactor's, one moment as Lion's."""


def _facts(case: UserCase, text: str, precision: str) -> dict[str, str]:
    """Facts in the tokens of the common header's notes."""
    facts = {
        "head_dim": case.whole("model", "head_dim"), "experts": case.whole("model", "experts"),
        "experts_per_token": case.whole("model", "top_k"), "expert_tensor_parallel": case.whole("config", "etp"),
        "lora_rank": case.whole("config", "lora_r") or case.whole("config", "lora_rank"),
    }  # fmt: skip
    found = {key: str(value) for key, value in facts.items() if value is not None}
    if facts["experts"] is not None and case.whole("model", "ffn") is not None:
        found["expert_ffn"] = str(case.whole("model", "ffn"))
    tied = case.stated("model", "tied")
    if isinstance(tied, bool):
        found["tied"] = "yes" if tied else "no"
    for key, pattern in (("compile", "compile"), ("sequence_parallel", "sequence_parallel")):
        if case.stated("config", pattern) is True:
            found[key] = "yes"
    trainable = case.text("config", "trainable") + case.text("config", "modules_to_save")
    if re.search(r"embed|lm_head|modules_to_save", trainable):
        found["train_embeddings"] = "yes"
    targets = case.text("config", "lora_targets") or case.text("config", "target_modules")
    if re.search(r"all", targets) or "qlora.py" in _name(case):
        found["lora_targets"] = "all-linear"
    elif re.search(r"q.*v", targets) and not re.search(r"k_proj|o_proj|up|gate", targets):
        found["lora_targets"] = "qv"
    if re.search(r"liger|fused[_ -]?linear|chunked|cut[_ -]?cross|fused ce|unsloth", text):
        found["cross_entropy"] = "fused"
    if precision.startswith("pure"):
        found["pure_low_precision"] = "yes"
    elif "mixed" in precision:
        found["pure_low_precision"] = "no"
    return found
