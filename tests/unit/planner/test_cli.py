"""The command line: result on standard output, talk on standard error, exit codes as documented."""

import json
from pathlib import Path

import pytest

from planner.cli import main
from tests.unit.planner.plans import infeasible, plan
from tests.unit.planner.requests import SMALL, changed

FLAGS = [
    "--model", "llama-2-7b", "--device", "a100-sxm-80gb", "--gpus", "8", "--sequence-length", "2048",
    "--global-batch-size", "64",
]  # fmt: skip
Captured = pytest.CaptureFixture[str]


@pytest.fixture
def request_file(tmp_path: Path) -> Path:
    path = tmp_path / "request.json"
    path.write_text(json.dumps(SMALL))
    return path


def test_plan_prints_the_plan_as_json(request_file: Path, capsys: Captured) -> None:
    assert main(["plan", "-f", str(request_file), "--json"]) == 0
    out, err = capsys.readouterr()
    assert json.loads(out)["status"] == "optimal"
    assert err == ""


def test_plan_prints_tables_for_people(request_file: Path, capsys: Captured) -> None:
    assert main(["plan", "-f", str(request_file), "--export", "deepspeed"]) == 0
    out, _ = capsys.readouterr()
    for part in ("Configuration", "Memory of one GPU", "Time of one step", "Proof", "Why", "==> ds_config.json <=="):
        assert part in out
    assert "\x1b" not in out


def test_plan_saves_what_export_reads(request_file: Path, tmp_path: Path, capsys: Captured) -> None:
    folder = tmp_path / "out"
    assert main(["plan", "-f", str(request_file), "--json", "--save-dir", str(folder), "--export", "deepspeed"]) == 0
    out, err = capsys.readouterr()
    assert f"wrote {folder / 'plan.json'}" in err
    assert main(["export", str(folder / "plan.json"), "--to", "deepspeed", "--json"]) == 0
    again = {artifact["path"]: artifact["text"] for artifact in json.loads(capsys.readouterr().out)}
    assert again["ds_config.json"] == (folder / "ds_config.json").read_text()
    assert (folder / "launch.sh").stat().st_mode & 0o100
    document = folder / "document.json"
    document.write_text(out)
    assert main(["export", str(document), "--to", "deepspeed", "--json"]) == 0


def test_an_infeasible_request_exits_with_3(request_file: Path, capsys: Captured) -> None:
    hungry = changed("model", {"preset": "llama-2-7b"}, SMALL)
    request_file.write_text(json.dumps(hungry))
    assert main(["plan", "-f", str(request_file), "--json", "--set", "offload=forbid"]) == 3
    found = json.loads(capsys.readouterr().out)
    assert found["status"] == "infeasible"
    assert found["configuration"] is None
    (conflict,) = [c for c in found["infeasibility"]["conflict"] if c["resource"] == "gpu_memory"]
    assert conflict["shortfall_bytes"] > 0
    assert conflict["phase_shortfall_bytes"]["step"] > 0
    assert found["infeasibility"]["nearest_miss"]["memory"]["verdict"] == "does_not_fit"
    verified = [r["change"] for r in found["infeasibility"]["relaxations"] if r["verified"]]
    assert verified
    assert len(found["infeasibility"]["relaxations"]) >= 5


def test_why_not_compares_with_a_pinned_decision(request_file: Path, capsys: Captured) -> None:
    assert main(["plan", "-f", str(request_file), "--why-not", "zero_stage=3"]) == 0
    assert "Why not zero_stage=3?\n  the best with it is deepspeed" in capsys.readouterr().out


def test_flags_make_a_request_of_their_own(capsys: Captured) -> None:
    flags = [*FLAGS, "--backend", "deepspeed", "--set", "zero_stage=3", "--set", "recompute=full"]
    assert main(["estimate", *flags, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["configuration"]["zero_stage"] == 3
    assert found["configuration"]["stages"][0]["recompute"]["full"] == 32
    assert found["optimality"] is None


def test_an_estimate_that_lacks_host_memory_says_so(capsys: Captured) -> None:
    flags = "--model llama-2-7b --device a100-sxm-80gb --gpus 8 --sequence-length 512 --global-batch-size 16"
    choices = (
        "zero_stage=3",
        "micro_batch_size=1",
        "optimizer_layers_offloaded=32",
        "cluster.pools.0.host_memory=20GiB",
    )
    sets = [word for choice in choices for word in ("--set", choice)]
    assert main(["estimate", *flags.split(), "--backend", "deepspeed", *sets]) == 3
    assert "it is host memory that does not fit" in capsys.readouterr().out


def test_an_estimate_that_does_not_fit_exits_with_3(capsys: Captured) -> None:
    assert main(["estimate", *FLAGS, "--set", "micro_batch_size=8"]) == 3
    assert capsys.readouterr().out.startswith("does not fit")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["plan"], "model is missing: give a request with -f, or --model"),
        (["plan", "-f", "none.yaml"], "none.yaml: no such file or directory"),
        (["plan", *FLAGS, "--gpus", "0"], "--gpus 0 must be at least 1"),
        (["plan", *FLAGS, "--gpus", "12"], "--gpus 12 is no multiple of the 8 GPUs of a node"),
        (["plan", *FLAGS, "--model", "llama-9"], "unknown model 'llama-9'; did you mean"),
        (["plan", *FLAGS, "--set", "zero_stage"], "--set 'zero_stage' is not KEY=VALUE"),
        (["plan", *FLAGS, "--set", "zero_stage=1", "--set", "zero_stage=3"], "give zero_stage two values; give one"),
        (["plan", *FLAGS, "--set", "zero_stages=2"], "zero_stages is no constraint"),
        (["plan", *FLAGS, "--set", "zero_stage=[1"], "is not YAML"),
        (
            ["plan", *FLAGS, "--sequence-length", "-4"],
            "training.sequence_length: Input should be greater than 0; got -4",
        ),
        (["plan", *FLAGS, "--export", "deepsped"], "unknown export target 'deepsped'; did you mean deepspeed?"),
        (["plan", *FLAGS, "--export", "zzz"], "unknown export target 'zzz'; known: deepspeed, megatron, accelerate"),
        (["plan", *FLAGS, "--device", "zzz"], "unknown device 'zzz'; `meshwright devices` lists them"),
        (["plan", *FLAGS, "--nodes", "0"], "--nodes 0 must be at least 1"),
        (["plan", *FLAGS, "--nodes", "3"], "--gpus 8 does not divide over --nodes 3"),
        (["plan", "--model", "gpt2", "--device", "t4", "--sequence-length", "128"], "give --global-batch-size"),
        (["estimate", *FLAGS, "--set", "tensor_parallel=3"], "which does not divide the 8 GPUs"),
        (["export", "none.json", "--to", "deepspeed"], "none.json: No such file or directory"),
    ],
)
def test_a_wrong_command_line_is_one_line_and_exits_with_2(
    arguments: list[str], message: str, capsys: Captured
) -> None:
    assert main(arguments) == 2
    out, err = capsys.readouterr()
    assert message in err
    assert err.count("\n") == 1
    assert out == ""


@pytest.mark.parametrize("verb", ["models", "devices"])
def test_a_filter_that_nothing_meets_says_so(verb: str, capsys: Captured) -> None:
    assert main([verb, "zzz"]) == 0
    out, err = capsys.readouterr()
    assert out == ""
    assert "name contains 'zzz'" in err
    assert main([verb, "zzz", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == []


def test_an_unknown_option_is_usage(capsys: Captured) -> None:
    assert main(["plan", "--modle", "x"]) == 2
    assert "--modle" in capsys.readouterr().err


def test_a_model_may_be_a_config_file(tmp_path: Path, capsys: Captured) -> None:
    config = {
        "model_type": "llama", "hidden_size": 512, "num_hidden_layers": 4, "num_attention_heads": 8,
        "intermediate_size": 2048, "vocab_size": 1000,
    }  # fmt: skip
    (tmp_path / "config.json").write_text(json.dumps(config))
    assert main(["estimate", *FLAGS, "--model", str(tmp_path), "--json"]) == 0
    assert sum(stage["layers"] for stage in json.loads(capsys.readouterr().out)["configuration"]["stages"]) == 4


def test_a_plan_that_cannot_be_exported_says_why(tmp_path: Path, capsys: Captured) -> None:
    (tmp_path / "plan.json").write_text(infeasible().to_json())
    assert main(["export", str(tmp_path / "plan.json"), "--to", "deepspeed"]) == 3
    assert "deepspeed cannot express this plan: the plan is infeasible" in capsys.readouterr().err


def test_export_reads_a_pipe(monkeypatch: pytest.MonkeyPatch, capsys: Captured) -> None:
    import io

    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(plan().to_json().encode())))
    assert main(["export", "-", "--to", "deepspeed"]) == 0
    assert capsys.readouterr().out.startswith("==> ds_config.json <==")


@pytest.mark.parametrize("verb", ["models", "devices"])
def test_the_catalogue_lists_objects_with_names(verb: str, capsys: Captured) -> None:
    assert main([verb, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert len({entry["name"] for entry in found}) == len(found) > 20
    if verb == "models":
        (llama,) = [entry for entry in found if entry["name"] == "llama-2-7b"]
        assert llama["parameters"] == 6_738_415_616
    assert main([verb, "a1"]) == 0
    assert main([verb, "no such name", "--json"]) == 0


def test_a_command_of_another_floor_is_listed(capsys: Captured) -> None:
    assert main(["--help"]) == 0
    assert "serve" in capsys.readouterr().out


def test_the_version_is_printed(capsys: Captured) -> None:
    assert main(["--version"]) == 0
    assert capsys.readouterr().out.startswith("meshwright ")


def test_a_plan_that_the_target_cannot_express_is_printed_all_the_same(request_file: Path, capsys: Captured) -> None:
    pinned = ["--set", "backend=ddp", "--set", "recompute=none"]
    assert main(["plan", "-f", str(request_file), *pinned, "--json", "--export", "deepspeed"]) == 2
    out, err = capsys.readouterr()
    assert json.loads(out)["configuration"]["backend"]["name"] == "ddp"
    assert "use --to accelerate" in err
