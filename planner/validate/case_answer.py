"""The planner's answer to a report's question: a verdict and a limit, or what is missing to give them."""

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, Final

from cost_models import catalog
from cost_models.calibration import Calibration
from cost_models.errors import MeshwrightError
from cost_models.job import Job
from cost_models.ledger import COMMUNICATION, MemoryLedger
from cost_models.memory import memory_ledger
from cost_models.specs.cluster import ClusterSpec, DeviceSpec
from cost_models.specs.configuration import Configuration, RecomputeCounts, Stage
from cost_models.time import time_ledger
from planner.datasets.case_reading import MICRO_BATCH, SEQUENCE, Question, question_of
from planner.datasets.cases import UserCase
from planner.datasets.jobs import Case, case_of
from planner.datasets.unusable import Unusable
from planner.validate.case_devices import device_of, host_bytes_of, model_name_of
from planner.validate.case_labels import CaseVerdict, Limit
from planner.validate.case_limits import device_limit
from planner.validate.case_rules import broken_rules
from planner.validate.comparison import OOM_RISK, device_verdict, replaced_facts

SLOW_SHARE: Final = 2 / 3
"""A step whose slow links take more than this share of it, thrice what the rest needs, is called slow."""
SLOW_NETWORK: Final = 12.5e9
"""A network of less than this per device, 100 Gb/s, is slow for sharded training. [bytes/s]"""
_LIGHT: Final = {SEQUENCE: 128, MICRO_BATCH: 1}
"""The lightest plausible value of what is not stated: what fails with it fails with any."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What is said to the reporter."""

    verdict: CaseVerdict | None = None
    """None where too little is stated to tell."""
    limit: Limit | None = None
    missing: tuple[str, ...] = ()
    assumed: tuple[str, ...] = ()
    reasons: tuple[str, ...] = ()
    """Broken rules, or why the question cannot be priced."""
    device_bytes: float | None = None
    """Median of what the fullest device holds. [bytes]"""
    conservative_bytes: float | None = None
    host_bytes: float | None = None
    """Of the fullest node."""
    scenarios: tuple[tuple[str, CaseVerdict], ...] = ()
    """Verdicts under other values of what was assumed."""


def answer(case: UserCase, calibration: Calibration) -> Answer:
    """Answer one report from its question alone."""
    broken = broken_rules(case)
    if broken:
        return Answer(verdict="illegal", limit="illegal_configuration", reasons=broken)
    question = question_of(case)
    decisive = [key for key in question.missing if key in {"model", "device"}]
    if decisive:
        return Answer(missing=question.missing, assumed=question.assumed)
    try:
        priced, assumed = _priced(case, question)
        return _judged(case, question, priced, assumed, calibration)
    except Unusable as unusable:
        return Answer(missing=question.missing or (str(unusable),), assumed=question.assumed, reasons=(str(unusable),))
    except (MeshwrightError, ArithmeticError, LookupError, ValueError) as error:
        return Answer(missing=question.missing, reasons=(f"cannot be priced: {str(error).splitlines()[0]}",))


def _priced(case: UserCase, question: Question) -> tuple[Case, tuple[str, ...]]:
    """The job and configuration, the lightest plausible value in place of what is missing."""
    assumed = list(question.assumed)
    device, of_device = device_of(case)
    model, of_model = model_name_of(case, question)
    gpus = question.row.n_gpus or device.gpus_per_node
    degrees = {key: getattr(question.row, key) or 1 for key in ("tp", "pp", "cp", "ep")}
    if question.ulysses is not None and "cp" not in case.config:
        degrees["cp"] = question.ulysses if _honours_sequence_parallel(case) else 1
        if degrees["cp"] == 1:
            assumed.append("sequence parallelism: not applied to layers of linear attention")
    filled: dict[str, Any] = {
        **degrees, "gpu": device.name, "gpu_mem_gb": None, "n_gpus": gpus, "model": model,
        "gpus_per_node": question.row.gpus_per_node or min(gpus, device.gpus_per_node), "dp": None,
        SEQUENCE: question.row.seq_len or _LIGHT[SEQUENCE],
        "heads": question.row.heads or _heads(question.row.hidden),
    }  # fmt: skip
    if question.row.micro_batch is None and (question.row.global_batch_seqs is None or question.row.grad_accum is None):
        filled[MICRO_BATCH] = _LIGHT[MICRO_BATCH]
    read = case_of(question.row.model_copy(update=filled))
    job = _with_hardware(case, read.job, device)
    if question.training:
        job = replace(job, training=type(job.training).read(job.training.model_dump() | question.training))
    if _eight_bit_base(case):
        read = replace(read, framework_changes={**read.framework_changes, **_int8_facts(read)})
    return replace(read, job=job), (*assumed, *of_device, *of_model, *read.assumed)


def _eight_bit_base(case: UserCase) -> bool:
    """Whether frozen weights are stored in 8 bits."""
    text = case.text("config", "precision") + case.text("config", "quantization")
    return case.method != "full" and bool(re.search(r"int8|8[- ]?bit|llm\.int8", text))


def _int8_facts(read: Case) -> dict[str, Any]:
    """Facts of a back end whose quantised weights take one byte. Source: arXiv:2208.07339, section 3."""
    facts = catalog.framework(read.configuration.backend.name)
    return {"quantized": facts.quantized.model_copy(update={"single": 1.0, "double": 1.0, "other": 2.0})}


def _heads(hidden: int | None) -> int | None:
    """Heads of the usual width where the report leaves them out."""
    return hidden // 128 if hidden is not None and hidden % 128 == 0 else None


def _honours_sequence_parallel(case: UserCase) -> bool:
    """Hybrid architectures with linear attention are left whole by attention-head sequence parallelism."""
    name = case.text("model", "hf_id")
    return not any(hybrid in name for hybrid in ("qwen3.5", "qwen3-next", "mamba", "jamba", "hybrid", "linear"))


def _with_hardware(case: UserCase, job: Job, device: DeviceSpec) -> Job:
    """The pool with the memory that the report states; a host that it does not state is never what fails."""
    pool = job.pool
    changes = {"device": device, "host_memory_bytes": host_bytes_of(case)}
    return replace(job, cluster=ClusterSpec(pools=(pool.model_copy(update=changes),)))


def _judged(
    case: UserCase, question: Question, priced: Case, assumed: tuple[str, ...], calibration: Calibration
) -> Answer:
    answered = _verdict(priced, question, assumed, calibration)
    if answered.verdict == "does_not_fit" and not _recompute_open(case, question):
        return answered
    scenarios = _scenarios(case, question, priced, assumed, calibration)
    answered = replace(answered, scenarios=tuple((name, found.verdict) for name, found in scenarios if found.verdict))
    verdicts = {answered.verdict, *(found.verdict for _, found in scenarios)}
    if len(verdicts) > 1:
        return replace(answered, verdict=None, limit=None, missing=(*question.missing, "recompute"))
    if answered.verdict == "does_not_fit":
        return answered
    if question.missing:
        return replace(answered, verdict=None, limit=None)
    if answered.verdict == "fits" and _slow(priced, calibration):
        return replace(answered, verdict="slow", limit="slow_link")
    return answered


def _verdict(priced: Case, question: Question, assumed: tuple[str, ...], calibration: Calibration) -> Answer:
    ledger = _ledger(priced, priced.configuration, calibration)
    host_fails = ledger.host_node_bytes > ledger.host_usable_bytes
    verdict: CaseVerdict = "does_not_fit" if host_fails else device_verdict(ledger)
    limit: Limit = "host_ram"
    if not host_fails:
        scores = priced.configuration.attention == "eager"
        limit = device_limit(ledger, _remedies(priced, calibration), scores=scores)
        if verdict == "fits" and any(stage.optimizer_layers_offloaded for stage in priced.configuration.stages):
            limit = "host_ram"  # states are on the host: it is what a larger model would run into
    return Answer(
        verdict=verdict, limit=limit, assumed=assumed, missing=question.missing, device_bytes=ledger.device_bytes,
        conservative_bytes=ledger.conservative_bytes, host_bytes=ledger.host_node_bytes,
    )  # fmt: skip


def _ledger(priced: Case, configuration: Configuration, calibration: Calibration) -> MemoryLedger:
    return memory_ledger(priced.job, configuration, calibration, oom_risk=OOM_RISK, frameworks=replaced_facts(priced))


def _remedies(priced: Case, calibration: Calibration) -> Iterator[tuple[Limit, MemoryLedger]]:
    """The configuration after each usual remedy, cheapest first."""
    c = priced.configuration
    if c.attention == "eager":
        yield "attention_scores", _ledger(priced, c.model_copy(update={"attention": "flash"}), calibration)
    if c.cross_entropy != "fused":
        yield "logits", _ledger(priced, c.model_copy(update={"cross_entropy": "fused"}), calibration)
    recomputed = c.model_copy(update={"stages": _all_recomputed(c)})
    yield "activations", _ledger(priced, recomputed, calibration)
    if c.micro_batch_size > 1:
        yield "activations", _ledger(priced, recomputed.model_copy(update={"micro_batch_size": 1}), calibration)


def _all_recomputed(configuration: Configuration) -> tuple[Stage, ...]:
    return tuple(
        stage.model_copy(update={"recompute": RecomputeCounts(full=stage.layers)}) for stage in configuration.stages
    )


def _recompute_open(case: UserCase, question: Question) -> bool:
    """Whether the report leaves recomputation open and its stack has no default that recipes share."""
    return not case.text("config", "recompute") and question.row.recompute == "none"


def _scenarios(
    case: UserCase, question: Question, priced: Case, assumed: tuple[str, ...], calibration: Calibration
) -> list[tuple[str, Answer]]:
    """The same with every layer recomputed, where the report leaves that open."""
    if not _recompute_open(case, question):
        return []
    changed = priced.configuration.model_copy(update={"stages": _all_recomputed(priced.configuration)})
    other = replace(priced, configuration=changed)
    return [("recompute: full", _verdict(other, question, assumed, calibration))]


def _slow(priced: Case, calibration: Calibration) -> bool:
    """Whether links that are slow by today's measure take most of the step."""
    if not _slow_link(priced):
        return False
    step = time_ledger(priced.job, priced.configuration, calibration)
    return sum(step.exposed.get(term, 0.0) for term in COMMUNICATION) > SLOW_SHARE * step.step_seconds


def _slow_link(priced: Case) -> bool:
    pool = priced.job.pool
    between = pool.inter_node_link.bandwidth / (pool.gpus_per_node if pool.inter_node_link.shared_by_node else 1)
    return pool.intra_node_link.name.startswith("pcie") or (pool.nodes > 1 and between < SLOW_NETWORK)
