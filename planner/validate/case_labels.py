"""What a report is expected to be answered with: a verdict and a binding limit, read from its own fields by rule.

The rules are published in docs/cases.md. They read what happened (`observed`), `check`, `themes` and the summary, never
the case's id.
"""

import re
from dataclasses import dataclass
from typing import Final, Literal

from planner.datasets.cases import UserCase

CaseVerdict = Literal["fits", "at_risk", "does_not_fit", "illegal", "slow"]
Limit = Literal[
    "states", "activations", "attention_scores", "logits", "buffers", "host_ram", "load_peak", "first_step_peak",
    "evaluation_peak", "save_peak", "illegal_configuration", "slow_link",
]  # fmt: skip
LIMITS: Final[dict[Limit, str]] = {
    "states": "weights, gradients, optimizer states, adapters, trained embeddings, a second model",
    "activations": "what forward keeps for backward, and the working set of a layer's backward",
    "attention_scores": "the sequence-by-sequence matrix of unfused attention",
    "logits": "vocabulary-wide outputs and the copies that the loss makes of them",
    "buffers": "gathered weights, communication buckets, communicators, workspaces",
    "host_ram": "memory of the node's host",
    "load_peak": "a copy that exists only while weights are loaded",
    "first_step_peak": "what the first optimizer step adds",
    "evaluation_peak": "evaluation at its own length and batch, and what it keeps",
    "save_peak": "a copy that exists only while a checkpoint is written",
    "illegal_configuration": "the framework or the device cannot run it, or silently runs something else",
    "slow_link": "it runs, but a link takes most of the step",
}
"""The published label set."""


@dataclass(frozen=True, slots=True)
class Expectation:
    """Answers that count as right."""

    verdicts: frozenset[CaseVerdict]
    limits: frozenset[Limit]
    """Empty: the report names no limit, so that none is judged."""
    reason: str = ""
    """Why no verdict can be expected."""


_PHASES: Final[tuple[tuple[Limit, str], ...]] = (
    ("load_peak", r"load|init"),
    ("first_step_peak", r"first|optimizer"),
    ("evaluation_peak", r"eval|generat|predict"),
    ("save_peak", r"save|saving|checkpoint"),
)
_WORDS: Final[tuple[tuple[Limit, str], ...]] = (
    ("host_ram", r"host ram|host memory|cpu memory|gb of host|\bgb host\b|\bram\b"),
    ("logits", r"logit|cross[- ]entropy|\bce\b"),
    ("attention_scores", r"eager scores|attention scores|score matri|s\^2|quadratic"),
    ("load_peak", r"load[- ]time|while loading|at load\b|during load"),
    ("save_peak", r"monolithic save|full[- ]model save|while saving|at save\b"),
    ("evaluation_peak", r"\beval"),
    ("first_step_peak", r"first (?:optimizer )?step|step 1\b|lazily allocated"),
    ("activations", r"activation|checkpoints?\b|long sequences|longest batch|micro batch|tokens?-"),
    ("buffers", r"gathered|bucket|communicator|all-to-all buffers"),
    ("states", r"states?\b|\bweights\b|b/param|params? per gpu|expert params|quantised|quantized|gradients?\b|grads?\b"
               r"|b x \(?\d+|master|fp32 copies|reference|without peft|more shards"),
)  # fmt: skip
_THEMES: Final[tuple[tuple[str, Limit], ...]] = (
    ("host_ram", "host_ram"), ("host_memory", "host_ram"), ("load_time_peak", "load_peak"), ("save_oom", "save_peak"),
    ("large_vocab_logits", "logits"), ("eval_oom", "evaluation_peak"), ("embeddings_trainable", "states"),
    ("zero3_quant", "states"), ("long_context", "activations"), ("attention_impl", "attention_scores"),
)  # fmt: skip
_MARGINAL: Final = re.compile(r"marginal|\bedge\b|\btight\b|just (?:under|over|fits)|barely|low headroom|borderline")
_SLOW: Final = re.compile(
    r"host-bound|pcie-bound|bandwidth|ethernet|tcp-like|no faster|(?:communication|network|link)[- ](?:bound|limited)"
    r"|(?<!not )slow (?:link|network|interconnect)"
)


def expected(case: UserCase) -> Expectation:
    """The answers that count as right for a report."""
    verdicts, reason = _verdicts(case)
    if reason:
        return Expectation(frozenset(), frozenset(), reason)
    return Expectation(verdicts, _limits(case, verdicts))


def _outcome(case: UserCase) -> str:
    """What happened, in one of the words ok, oom, error and slow; "" where the report does not say."""
    text = str(case.observed.get("outcome") or "").lower()
    return next((word for word, pattern in _OUTCOMES if re.search(pattern, text)), "")


_OUTCOMES: Final = (
    ("oom", r"oom|out of memory|killed"),
    ("error", r"error|reject|invalid|assert|crash|silent"),
    ("slow", r"slow"),
    ("ok", r"^ok|success|works|runs|fits|completed"),
)


def _verdicts(case: UserCase) -> tuple[frozenset[CaseVerdict], str]:
    outcome, feasible = _outcome(case), case.check.get("feasible")
    found: set[CaseVerdict] = set()
    reason, text = "", case.says.lower()
    if "version_dependent" in case.check or "version_dependent" in case.themes:
        reason = "framework release decides"
    elif outcome == "oom" and feasible is True:
        reason = "the report's failure and its reading differ"
    elif outcome == "error":
        found.add("illegal")
    elif outcome == "oom" or feasible is False:
        found.add("does_not_fit")
    elif not outcome and feasible is not True:
        reason = "outcome not stated"
    elif outcome != "slow" and not (_SLOW.search(text) and case.kind == "throughput"):
        found.add("fits")
    if found <= {"fits"} and not reason and (outcome == "slow" or _SLOW.search(text)):
        found.add("slow")
    marginal = feasible == "marginal" or "marginal" in case.check or _MARGINAL.search(text)
    if found & {"fits", "does_not_fit"} and marginal:
        found.add("at_risk")
    return frozenset(found), reason


def _limits(case: UserCase, verdicts: frozenset[CaseVerdict]) -> frozenset[Limit]:
    if "illegal" in verdicts:
        return frozenset[Limit]({"illegal_configuration"})
    stated = {limit for limit in LIMITS if limit == case.check.get("limit")}
    phase = str(case.check.get("phase") or "").lower()
    stated |= {limit for limit, pattern in _PHASES if re.search(pattern, phase)}
    return frozenset(stated or _named(case, verdicts) or _hinted(case, verdicts))


def _named(case: UserCase, verdicts: frozenset[CaseVerdict]) -> set[Limit]:
    """Limits that the first of the report's texts to name any names."""
    for text in (str(case.check.get("must_say") or ""), str(case.check.get("reason") or ""), case.says):
        found = {limit for limit, pattern in _WORDS if re.search(pattern, text.lower())}
        if "slow" in verdicts and _SLOW.search(text.lower()):
            found.add("slow_link")
        if found:
            return found
    return set()


def _hinted(case: UserCase, verdicts: frozenset[CaseVerdict]) -> set[Limit]:
    """Limits of failures whose report is only filed under them."""
    if verdicts == {"slow"}:
        return {"slow_link"}
    return set() if "fits" in verdicts else {limit for theme, limit in _THEMES if theme in (*case.themes, case.kind)}
