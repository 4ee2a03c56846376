"""Switches of measured runs: what a row says of its framework, and what it leaves open."""

from typing import Any

import pytest

from cost_models import catalog
from planner.datasets.facts import unmodelled
from planner.datasets.jobs import Case, case_of
from planner.datasets.notes import read_notes
from planner.datasets.recipes import with_recipe
from planner.measurement import Measurement
from planner.validate.comparison import shipped_pricing
from planner.validate.peaks import memory_unit, predicted_peak, stated_peaks

GPT: dict[str, Any] = {
    "model": "gpt/gpt3_mcore_te_tp1_pp1", "layers": 12, "hidden": 512, "heads": 8, "ffn_hidden": 2048, "vocab": 50257,
    "seq_len": 1024, "gpu": "H100-80GB-SXM", "n_gpus": 8, "gpus_per_node": 8, "framework": "Megatron-Core CI (dev)",
    "precision": "bf16", "method": "full", "tp": 1, "pp": 1, "cp": 1, "ep": 1, "zero_stage": 0, "micro_batch": 4,
    "grad_accum": 1, "recompute": "none", "flash_attn": "yes", "optimizer": "adam", "peak_mem_gb": 4.7,
    "mem_kind": "allocated",
}  # fmt: skip


def row(notes: str = "", **changes: Any) -> Measurement:
    """A functional test of Megatron-LM, changed."""
    return Measurement(**{**GPT, **changes}, notes=notes, facts=read_notes(notes))


def allocated(measured: Measurement) -> float:
    """What is predicted for it. [bytes]"""
    case = case_of(measured)
    return predicted_peak(measured, shipped_pricing(catalog.calibration()).memory(case), "allocated")


@pytest.mark.parametrize(
    ("notes", "model", "change"),
    [
        ("deterministic-mode", "gpt", ("deterministic", True)),
        ("no-gradient-accumulation-fusion", "gpt", ("dummy_weight_gradient", False)),
        ("num-distributed-optimizer-instances=2", "gpt", ("optimizer_instances", 2)),
        ("", "gpt3_tunable_overlap", ("early_forward_chunks", 2)),
        ("", "gpt", ("dropout", True)),
        ("", "gpt", ("functional_test", True)),
    ],
)
def test_a_switch_replaces_the_catalogue_s_fact(notes: str, model: str, change: tuple[str, Any]) -> None:
    key, value = change
    assert case_of(row(notes, model=model)).framework_changes[key] == value


def test_dropout_is_off_where_said_or_where_recipes_turn_it_off() -> None:
    assert "dropout" not in case_of(row("dropout=0")).framework_changes
    assert "dropout" not in case_of(row("swiglu")).framework_changes
    assert "dropout" not in case_of(row("squared-relu")).framework_changes


@pytest.mark.parametrize(
    ("flash_attn", "notes", "attention", "others"),
    [
        ("yes", "", "flash", ()), ("no", "", "eager", ()), ("auto", "", "flash", ("eager",)),
        ("", "", "flash", ("eager",)), ("auto", "transformer-impl=local", "eager", ()),
        ("auto", "attention=eager", "eager", ()),
    ],
)  # fmt: skip
def test_kernels_that_auto_leaves_open(flash_attn: str, notes: str, attention: str, others: tuple[str, ...]) -> None:
    case = case_of(row(notes, flash_attn=flash_attn))
    assert (case.configuration.attention, case.open_attention) == (attention, others)


def test_a_compiled_loss_is_priced_and_leaves_open_how_it_was_fused() -> None:
    plain, compiled = row(), row("cross-entropy-loss-fusion")
    logits = 50304 * 4 * 1024
    assert allocated(compiled) - allocated(plain) == pytest.approx(4 * logits)
    assert [name for name, _ in case_of(compiled).open_losses] == ["compiled_in_parts"]
    assert case_of(plain).open_losses == ()


def test_a_deferred_head_gradient_keeps_gradients_of_logits() -> None:
    extra = allocated(row(model="gpt3_defer_embedding_wgrad_compute")) - allocated(row())
    assert extra == pytest.approx(4 * 50304 * 4 * 1024)


@pytest.mark.parametrize(
    ("notes", "changes", "reason"),
    [
        ("mtp-num-layers=1", {}, "multi-token prediction heads not modelled for memory"),
        ("fine-grained-activation-offloading", {}, "offloading of single modules' activations not modelled"),
        ("", {"model": "gpt3_modelopt_distill_resume"}, "distillation holds a second model"),
        ("", {"method": "lora", "precision": "bf16-mixed"}, "frozen fp32 weights under autocast not modelled"),
        ("", {"method": "lora", "precision": "bf16-true"}, ""),
        ("", {}, ""),
    ],
)
def test_what_no_configuration_can_say_is_not_priced(notes: str, changes: dict[str, Any], reason: str) -> None:
    assert unmodelled(row(notes, **changes)) == reason


def test_a_recipe_states_what_the_row_leaves_to_it() -> None:
    named = with_recipe(row("config gemma-2b/qlora.yaml; lora_rank=4", framework="litgpt"))
    assert named.facts["lora_targets"] == "all-linear"
    assert named.facts["lora_rank"] == "4"
    assert named.facts["double_quantization"] == "no"
    assert with_recipe(row("config of the reader's own")).facts == {}


@pytest.mark.parametrize(
    ("notes", "gpu", "precision", "graph", "overlap"),
    [
        ("26.06 NeMo Container; Pre-Training Performance", "GB200", "MXFP8", "yes", "yes"),
        ("26.02.01 NeMo Container; Pre-Training Performance", "GB200", "MXFP8", "yes", None),
        ("26.04 NeMo Container; Pre-Training Performance", "H100-80GB-SXM", "FP8", None, "yes"),
        ("26.04 NeMo Container; Pre-Training Performance", "B200", "MXFP8", None, None),
        ("26.06 NeMo Container; SFT Performance", "GB200", "MXFP8", None, None),
    ],
)
def test_a_recipe_goes_by_release_model_device_and_precision(
    notes: str, gpu: str, precision: str, graph: str | None, overlap: str | None
) -> None:
    found = with_recipe(row(notes, model="Qwen3_235B_a22B", gpu=gpu, precision=precision, micro_batch=1)).facts
    assert (found.get("cuda_graph"), found.get("expert_overlap")) == (graph, overlap)


@pytest.mark.parametrize(
    ("first", "stages", "split"),
    [(2, 4, (2, 4, 4, 2)), (3, 4, (3, 3, 3, 3)), (6, 2, (6, 6)), (4, 3, (4, 4, 4)), (5, 3, (5, 4, 3))],
)
def test_a_small_first_stage_is_mirrored_where_only_then_the_rest_divides(
    first: int, stages: int, split: tuple[int, ...]
) -> None:
    case = case_of(row(f"decoder-first-pipeline-num-layers={first}", pp=stages, n_gpus=stages, gpus_per_node=stages))
    assert tuple(stage.layers for stage in case.configuration.stages) == split


def test_peaks_of_other_kinds_are_read_from_the_notes_in_the_same_unit() -> None:
    read = row("allocated=2; process=4; memory_unit=GiB", mem_kind="reserved", peak_mem_gb=3)
    assert list(stated_peaks(read)) == [("reserved", 3 * 2**30), ("allocated", 2 * 2**30), ("device", 4 * 2**30)]


def test_the_unit_is_what_the_framework_logs() -> None:
    assert memory_unit(row(framework="torchtitan")) == "GiB"
    assert memory_unit(row(framework="torchtitan", notes="memory_unit=GB")) == "GB"
    assert memory_unit(row()) == "GB"


@pytest.mark.parametrize(
    ("ref", "tp", "compiled"),
    [("x/llama3_h200_202506_y.md", 1, True), ("x/llama3_h100_202412_y.md", 1, False), ("x/l_202506_y.md", 8, False)],
)
def test_torchtitan_compiles_its_loss_from_a_date_on(ref: str, tp: int, compiled: bool) -> None:
    case: Case = case_of(
        row("torch.compile=yes", framework="torchtitan", ref=ref, tp=tp, zero_stage=3, model="llama-3-8b",
            layers=None, hidden=None, heads=None, ffn_hidden=None, vocab=None, n_gpus=8, dp=8 // tp)
    )  # fmt: skip
    assert ("cross_entropy" in case.framework_changes) is compiled


def test_loops_that_hold_outputs_pay_for_their_logits() -> None:
    small: dict[str, Any] = {"model": "llama-3.2-1b", "layers": None, "hidden": None, "heads": None, "ffn_hidden": None,
                             "vocab": None,
             "n_gpus": 1, "gpus_per_node": 1, "framework": "transformers + peft", "method": "lora"}  # fmt: skip
    held = allocated(row("kept_outputs=yes", **small))
    dropped = allocated(row("kept_outputs=no", **small))
    assert held - dropped == pytest.approx(2 * 128256 * 4 * 1024)
    assert allocated(row(**small)) == held
