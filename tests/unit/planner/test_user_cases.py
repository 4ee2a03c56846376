"""Answers to user reports: the reader, the rules, the labels, the scorer, one table per kind of report."""

import copy
import json
import random
import re
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest

from cost_models import catalog
from planner.datasets.case_reading import question_of
from planner.datasets.cases import UserCase, read_cases
from planner.errors import DatasetUnreadable
from planner.validate.case_answer import Answer, answer
from planner.validate.case_labels import LIMITS, expected
from planner.validate.case_rules import RULES, broken_rules
from planner.validate.cases import score_cases

ROOT = Path(__file__).parents[3]
SHIPPED = Path(str(files("calibration_data") / "cases" / "cases.jsonl"))

SEVEN_B = {
    "hf_id": "some/llama-like-7b", "layers": 32, "hidden": 4096, "heads": 32, "kv_heads": 32, "ffn": 11008,
    "vocab": 32000, "tied": False, "params_b": 6.74,
}  # fmt: skip
MOE = {
    "hf_id": "some/moe", "layers": 32, "hidden": 4096, "heads": 32, "kv_heads": 8, "ffn": 14336, "vocab": 32000,
    "params_b": 46.7, "experts": 8, "top_k": 2, "tied": False,
}  # fmt: skip
A100 = {"gpu": "A100-SXM4-80GB", "mem_gb": 80, "n_gpus": 8, "nodes": 1, "interconnect": "NVLink"}
SMALL = {"gpu": "RTX 3090", "mem_gb": 24, "n_gpus": 1, "nodes": 1, "interconnect": "PCIe (no NVLink)"}
CONFIG = {
    "framework": "DeepSpeed (HF Trainer)",
    "precision": "bf16",
    "zero_stage": 3,
    "micro_batch": 1,
    "seq_len": 2048,
}


def case(
    model: dict[str, Any] | None = None, hardware: dict[str, Any] | None = None, config: dict[str, Any] | None = None,
    **rest: Any,
) -> UserCase:  # fmt: skip
    report = {
        "id": "made", "kind": "feasibility", "method": "full", "model": SEVEN_B if model is None else model,
        "hardware": A100 if hardware is None else hardware, "config": CONFIG | {"recompute": "full"} | (config or {}),
        "observed": {"outcome": "ok"}, "check": {},
    } | rest  # fmt: skip
    return read(report)


def read(report: dict[str, Any]) -> UserCase:
    from planner.datasets.cases import _case

    return _case(1, report)


def ask(made: UserCase) -> Answer:
    return answer(made, catalog.calibration())


LORA = {"framework": "HF Trainer DDP", "zero_stage": None}
BIG_VOCABULARY = SEVEN_B | {"vocab": 256000}


@pytest.mark.parametrize(
    ("made", "verdict", "limit"),
    [
        (case(), "fits", "states"),
        (case(hardware=A100 | {"n_gpus": 1}), "does_not_fit", "states"),
        (case(hardware=A100 | {"n_gpus": 1}, config={"seq_len": None, "micro_batch": None}), "does_not_fit", "states"),
        (case(config={"micro_batch": 64, "recompute": "none", "attention": "flash", "loss": "liger"}), "does_not_fit",
         "activations"),
        (case(BIG_VOCABULARY, config={"micro_batch": 14}), "does_not_fit", "logits"),
        (case(config={"attention": "eager", "micro_batch": 8, "seq_len": 8192, "loss": "fused ce"}), "does_not_fit",
         "attention_scores"),
        (case(hardware=A100 | {"n_gpus": 1, "host_ram_gb": 64}, config={"offload": "optimizer + params cpu"}),
         "does_not_fit", "host_ram"),
        (case(hardware=A100 | {"gpu": "A100-SXM4-40GB", "mem_gb": 40},
              config={"framework": "accelerate FSDP2", "fsdp": "FSDP2", "zero_stage": None}),
         "does_not_fit", "save_peak"),
        (case(BIG_VOCABULARY, config={"framework": "HF Trainer FSDP", "fsdp": "full_shard", "zero_stage": None,
                      "seq_len": 512, "eval": "compute_metrics over the whole set"}), "does_not_fit",
         "evaluation_peak"),
        (case(hardware=SMALL | {"n_gpus": 2}, config=LORA | {"precision": "MXFP4 checkpoint dequantised to bf16"},
              model=SEVEN_B | {"layers": 60}, method="lora"), "does_not_fit", "load_peak"),
        (case(hardware=SMALL, config={"framework": "torchtune", "zero_stage": None, "precision": "pure bf16",
                                      "optimizer": "PagedAdamW8bit in backward"}), "fits", "states"),
        (case(hardware=SMALL, config={"framework": "torchtune", "zero_stage": None, "precision": "pure bf16",
                                      "optimizer": "AdamW"}), "does_not_fit", "states"),
        (case(hardware=A100 | {"nodes": 8, "n_gpus": 8, "gpu": "A100-SXM4-80GB",
                               "interconnect": "TCP, IB disabled"}), "slow", "slow_link"),
        (case(MOE, config={"framework": "Megatron-LM", "zero_stage": 1, "ep": 3}), "illegal", "illegal_configuration"),
    ],
)  # fmt: skip
def test_each_kind_of_report_gets_its_verdict_and_limit(made: UserCase, verdict: str, limit: str) -> None:
    found = ask(made)
    assert (found.verdict, found.limit) == (verdict, limit)


@pytest.mark.parametrize(
    ("rule", "made"),
    [
        ("head_width", case(SEVEN_B | {"hidden": 4100})),
        ("world", case(config={"dp": 4})),
        ("host_weights", case(config={"offload": "optimizer + param cpu", "zero_stage": 2})),
        ("host_weights", case(config={"offload": "optimizer nvme", "zero_stage": 1})),
        ("positions", case(SEVEN_B | {"hf_id": "gpt2"}, config={"seq_len": 2048})),
        ("kernel", case(SEVEN_B | {"head_dim": 320}, config={"attention": "flash-attn 2"})),
        ("kv_heads", case(SEVEN_B | {"kv_heads": 5})),
        ("kv_heads", case(SEVEN_B | {"kv_heads": 0})),
        ("heads_tp", case(config={"tp": 3})),
        ("heads_sp", case(config={"sp": 3, "framework": "verl FSDP + Ulysses"})),
        ("layers_pp", case(config={"framework": "Megatron-LM", "pp": 5, "zero_stage": None},
            hardware=A100 | {"n_gpus": 40})),
        ("layers_pp", case(SEVEN_B | {"layers": 80}, A100 | {"n_gpus": 16}, {"framework": "Megatron", "pp": 16,
            "vpp": 2})),
        ("world", case(config={"tp": 16})),
        ("experts", case(MOE, A100 | {"n_gpus": 4}, {"ep": 8})),
        ("experts_tp", case(MOE, config={"tp": 2, "sequence_parallel": False, "framework": "Megatron-LM"})),
        ("batch", case(config={"micro_batch": 2, "grad_accum": 18, "global_batch": 256},
            hardware=A100 | {"n_gpus": 7})),
        ("micro_batches", case(config={"framework": "Megatron-LM", "pp": 4, "vpp": 2, "grad_accum": 6,
            "zero_stage": 1})),
        ("zero_pp", case(config={"pp": 2, "zero_stage": 3})),
        ("precision", case(hardware=A100 | {"gpu": "V100-SXM2-32GB", "mem_gb": 32})),
        ("widths_tp", case(SEVEN_B | {"ffn": 11009}, config={"tp": 2, "framework": "Megatron-LM"})),
        ("zero_ep", case(MOE, config={"ep": 2, "framework": "DeepSpeed-MoE"})),
        ("one_bit", case(config={"optimizer": "OneBitAdam", "zero_stage": 2, "precision": "fp16"})),
        ("host_optimizer", case(config={"optimizer": "adamw 8-bit", "offload": "optimizer cpu"})),
        ("device_map", case(config={"device_map": "auto"})),
        ("kernel", case(config={"precision": "fp32", "attention": "flash-attn 2"})),
        ("precision", case(config={"precision": "fp8"})),
        ("kernel", case(hardware=A100 | {"gpu": "V100-SXM2-32GB", "mem_gb": 32}, config={"precision": "fp16",
                        "attention": "flash_attention_2"})),
        ("in_backward", case(config={"optimizer": "AdamW in backward", "grad_accum": 4})),
        ("sequence", case(config={"cp": 2, "seq_len": 4099})),
        ("vocabulary", case(SEVEN_B | {"vocab": 50257}, config={"tp": 2, "framework": "torchtitan"})),
    ],
)  # fmt: skip
def test_each_rule_sees_its_breach_and_only_then(rule: str, made: UserCase) -> None:
    assert rule in {text.partition(":")[0] for text in broken_rules(made)}
    assert broken_rules(case()) == ()


def test_every_rule_is_tested_or_needs_no_test() -> None:
    tested = Path(__file__).read_text(encoding="utf-8")
    assert [rule.id for rule in RULES if f'("{rule.id}"' not in tested] == ["virtual"]
    assert all(rule.source for rule in RULES)


@pytest.mark.parametrize(
    ("config", "wanted"),
    [
        ({"precision": "fp32 parameters (bf16 flag missing)"}, {"precision": "fp32"}),
        ({"precision": "amp_bf16 (fp32 params sharded)"}, {"precision": "bf16 mixed"}),
        ({"precision": "bf16 PURE (grads bf16)"}, {"precision": "pure bf16"}),
        ({"precision": "16-bit mixed"}, {"precision": "bf16 mixed"}),
        ({"precision": "bf16 + nf4"}, {"precision": "bf16"}),
        ({"precision": None}, {"precision": "bf16"}),
        ({"fsdp": "SHARD_GRAD_OP", "zero_stage": None}, {"zero_stage": 2}),
        ({"fsdp": "FSDP2 32", "zero_stage": None}, {"zero_stage": 3}),
        ({"framework": "axolotl ZeRO-2", "zero_stage": None}, {"zero_stage": 2}),
        ({"framework": "Megatron-LM", "optimizer": "Adam distributed", "zero_stage": None}, {"zero_stage": 1}),
        ({"fsdp": "FSDP2 + CPU offload", "zero_stage": None}, {"offload": "optim+param"}),
        ({"offload": "cpu"}, {"offload": "optim+param"}),
        ({"offload": "cpu", "zero_stage": 2}, {"offload": "optim"}),
        ({"offload": "optimizer (deepspeed_zero2_offload)"}, {"offload": "optim"}),
        ({"optimizer": "adamw_bnb_8bit"}, {"optimizer": "adamw-8bit"}),
        ({"optimizer": "GaLore AdamW 8bit"}, {"optimizer": "adafactor"}),
        ({"recompute": "unsloth"}, {"recompute": "full"}),
        ({"recompute": False}, {"recompute": "none"}),
        ({"attention": "flash/triton"}, {"flash_attn": "flash"}),
        ({"attention": "eager (default)"}, {"flash_attn": "eager"}),
        ({"recompute": "full/selective"}, {"recompute": "full"}),
    ],
)
def test_free_text_is_read(config: dict[str, Any], wanted: dict[str, Any]) -> None:
    row = question_of(case(config=config)).row
    assert {key: getattr(row, key) for key in wanted} == wanted


@pytest.mark.parametrize(
    ("made", "options"),
    [
        (case(config={"framework": "TRL DPO"}), {"reference_model": True}),
        (case(config={"framework": "TRL DPO"}, method="lora"), {}),
        (case(config={"framework": "TRL ORPO"}), {}),
        (case(config={"optimizer": "paged_adamw_32bit"}), {"optimizer_paged": True}),
        (case(config={"offload": "nvme params + optimizer"}), {"offload_to": "nvme"}),
        (
            case(config={"eval_seq_len": 8192, "eval_batch_size": 8}),
            {"eval_sequence_length": 8192, "eval_batch_size": 8},
        ),
        (
            case(config={"eval": "batch size 16, sequence length 4096"}),
            {"eval_sequence_length": 4096, "eval_batch_size": 16},
        ),
        (case(config={"eval": "default batch"}), {"eval_batch_size": 8}),
        (case(config={"eval": "compute_metrics with preprocess_logits_for_metrics"}), {}),
        (case(config={"loading": "each rank loads the full model on CPU"}), {"load": "whole_on_host"}),
        (case(config={"save": "FULL_STATE_DICT"}), {"save": "whole_on_device"}),
    ],
)
def test_options_that_the_header_lacks_are_read(made: UserCase, options: dict[str, Any]) -> None:
    assert question_of(made).training == options


def test_weights_in_eight_bits_take_a_byte_each() -> None:
    wide = case(hardware=SMALL, config=LORA, method="lora")
    stored = case(hardware=SMALL, config=LORA | {"precision": "int8 base + fp16"}, method="lora")
    sizes = [found.device_bytes or 0 for found in (ask(wide), ask(stored))]
    assert 6e9 < sizes[0] - sizes[1] < 8e9


def test_what_decides_and_is_missing_is_named() -> None:
    assert ask(case(config={"seq_len": None})).missing == ("seq_len",)
    assert ask(case(model={"hf_id": "any"})).missing == ("model",)
    assert ask(case(hardware={"gpu": "any", "n_gpus": 8})).missing == ("device",)
    assert ask(case(assumed_fields=["hardware.gpu", "hardware.mem_gb"])).missing == ("device",)


def test_recompute_that_decides_and_is_not_stated_is_missing() -> None:
    found = ask(case(config={"micro_batch": 16, "recompute": None, "loss": "liger", "framework": "torchtitan",
                             "fsdp": "FSDP2"}))  # fmt: skip
    assert (found.verdict, found.missing) == (None, ("recompute",))
    assert ("recompute: full", "fits") in found.scenarios


@pytest.mark.parametrize(
    ("fields", "verdicts", "limits"),
    [
        ({"observed": {"outcome": "oom"}, "what_a_good_planner_says": "fp32 logits overflow"}, {"does_not_fit"},
            {"logits"}),
        ({"observed": {"outcome": "oom"}, "check": {"limit": "host_ram"}}, {"does_not_fit"}, {"host_ram"}),
        ({"observed": {"outcome": "oom"}, "check": {"phase": "save"}}, {"does_not_fit"}, {"save_peak"}),
        ({"observed": {"outcome": "oom"}, "themes": ["load_time_peak"]}, {"does_not_fit"}, {"load_peak"}),
        ({"observed": {"outcome": "error"}, "check": {"rejects": True}}, {"illegal"}, {"illegal_configuration"}),
        ({"observed": {"outcome": "ok"}, "what_a_good_planner_says": "only just fits, tight"}, {"fits", "at_risk"},
            set()),
        ({"observed": {"outcome": "ok"}, "kind": "throughput", "what_a_good_planner_says": "Ethernet-bound"}, {"slow"},
         {"slow_link"}),
        ({"observed": {"outcome": "oom"}, "check": {"feasible": True}}, set(), set()),
        ({"observed": {"outcome": "oom"}, "themes": ["version_dependent"]}, set(), set()),
        ({"observed": {"outcome": "unknown"}}, set(), set()),
        ({"observed": {"outcome": "host OOM, killed"}, "kind": "host_memory"}, {"does_not_fit"}, {"host_ram"}),
        ({"observed": {"outcome": "slow"}}, {"slow"}, {"slow_link"}),
        ({"observed": {"outcome": "oom"}, "check": {"feasible": "marginal", "phase": "evaluation"}},
         {"does_not_fit", "at_risk"}, {"evaluation_peak"}),
    ],
)  # fmt: skip
def test_what_is_expected_follows_from_the_fields(fields: dict[str, Any], verdicts: set[str], limits: set[str]) -> None:
    found = expected(case(**fields))
    assert (set(found.verdicts), set(found.limits)) == (verdicts, limits)
    assert bool(found.reason) == (not verdicts)


def test_the_answer_never_reads_what_happened() -> None:
    question = {"model": SEVEN_B, "hardware": A100, "config": CONFIG, "method": "full"}
    lies = {"observed": {"outcome": "oom", "peak_mem_gb": 1}, "check": {"feasible": False, "limit": "host_ram"},
            "themes": ["large_vocab_logits"], "what_a_good_planner_says": "logits", "id": "x"}  # fmt: skip
    assert ask(read(question | {"kind": "feasibility"})) == ask(read(question | {"kind": "feasibility"} | lies))


def test_the_shipped_reports_reach_the_published_share() -> None:
    report = score_cases(SHIPPED)
    (verdict, limit) = report.totals()
    assert (verdict["quantity"], limit["quantity"]) == ("case_verdict", "case_limit")
    assert verdict["rows"] == limit["rows"] == 56
    assert verdict["used"] + sum(verdict["skipped"].values()) == 56
    assert verdict["used"] >= 35
    assert verdict["accuracy_with_limit"] >= 0.85
    kinds = [entry for entry in report.sources() if entry["quantity"] == "case_verdict"]
    assert sum(entry["used"] for entry in kinds) == verdict["used"]
    assert json.loads(report.to_json())["totals"] == report.totals()
    assert len(report.rows_csv().splitlines()) == 57


def test_labels_in_the_guide_are_those_of_the_code() -> None:
    guide = (ROOT / "docs" / "cases.md").read_text(encoding="utf-8")
    assert [label for label in LIMITS if f"`{label}`" not in guide] == []


def test_no_report_crashes_whatever_is_left_out() -> None:
    reports = [json.loads(line) for line in SHIPPED.read_text(encoding="utf-8").splitlines()]
    generator = random.Random(7)
    for report in generator.sample(reports, 25):
        damaged = copy.deepcopy(report)
        for section in ("model", "hardware", "config"):
            for key in list(damaged[section]):
                if generator.random() < 0.3:
                    damaged[section][key] = generator.choice([None, "?", 0, -1, 3, 2.5, True, [], "7", float("inf")])
        found = ask(read(damaged))
        assert not any("Traceback" in reason or re.search(r"\n", reason) for reason in found.reasons)


def test_a_file_of_reports_is_read_or_refused_in_one_line(tmp_path: Path) -> None:
    path = tmp_path / "reports.jsonl"
    path.write_text('{"id": "a", "model": {}}\nnot json\n{"id": "b", "model": []}\n\n{}\n', encoding="utf-8")
    file = read_cases(path)
    assert [one.id for one in file.cases] == ["a", "line-5"]
    assert [text.partition(":")[0] for text in file.problems] == ["reports.jsonl line 2", "reports.jsonl line 3"]
    for text, message in (("", "holds no report"), ("[]\n", "not a JSON object")):
        path.write_text(text, encoding="utf-8")
        with pytest.raises(DatasetUnreadable, match=message):
            read_cases(path)
    with pytest.raises(DatasetUnreadable):
        read_cases(tmp_path / "absent.jsonl")


def test_the_command_scores_a_file_as_json_as_tables_and_as_rows(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from planner.cli import main

    few = tmp_path / "few.jsonl"
    few.write_text("\n".join(SHIPPED.read_text(encoding="utf-8").splitlines()[:4]) + "\n", encoding="utf-8")
    rows = tmp_path / "rows.csv"
    assert main(["validate", "--cases", str(few), "--rows", str(rows), "--json"]) == 0
    out, _ = capsys.readouterr()
    report = json.loads(out)
    assert {entry["quantity"] for entry in report["sources"]} == {"case_verdict", "case_limit"}
    assert [one["id"] for one in report["cases"]] == [line.split(",")[0] for line in rows.read_text().splitlines()[1:]]
    assert main(["validate", "--cases", str(few)]) == 0
    assert "User reports" in capsys.readouterr().out
    assert main(["validate", "--cases", str(few), "--data", str(tmp_path)]) == 2
    assert main(["validate", "--cases", str(tmp_path / "absent.jsonl")]) == 2
