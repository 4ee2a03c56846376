"""The Accelerate exporter: its file, read back by Accelerate itself, says the whole plan; what it cannot is refused."""

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from planner.cli.app import main
from planner.errors import ExportUnsupported, NothingToExport, UnknownTarget
from planner.exporters import EXPORTERS, ExportOptions, able, render
from planner.plan import Plan
from tests.unit.planner.plans import configuration, infeasible, pipeline, plan, question

Captured = pytest.CaptureFixture[str]
NONE = [{"layers": 32, "recompute": {"none": 32}}]
FULL = [{"layers": 32, "recompute": {"full": 32}}]


def fsdp(**changes: Any) -> Plan:
    return plan(configuration(**({"backend": {"name": "fsdp"}, "zero_stage": 3, "stages": NONE} | changes)))


def ddp(**changes: Any) -> Plan:
    return plan(configuration(**({"backend": {"name": "ddp"}, "zero_stage": 0, "stages": NONE} | changes)))


def on_cpus(made: Plan) -> Plan:
    (pool,) = made.request.cluster.pools
    device = pool.device.model_copy(update={"kind": "cpu", "name": "cpu"})
    cluster = made.request.cluster.model_copy(update={"pools": (pool.model_copy(update={"device": device}),)})
    return made.model_copy(update={"request": made.request.model_copy(update={"cluster": cluster})})


def texts(made: Plan, **options: Any) -> dict[str, str]:
    return {artifact.path: artifact.text for artifact in render(made, "accelerate", ExportOptions(**options))}


def config(made: Plan, **options: Any) -> dict[str, Any]:
    whole: dict[str, Any] = yaml.safe_load(texts(made, **options)["accelerate_config.yaml"])
    return whole


def settings(made: Plan) -> dict[str, Any]:
    whole: dict[str, Any] = json.loads(texts(made)["model_settings.json"])
    return whole


PLANS = {
    "fsdp": fsdp(),
    "fsdp with tensor and context": fsdp(tensor_parallel=2, context_parallel=2, data_parallel=2, zero_stage=2),
    "fsdp on one": fsdp(data_parallel=1, gradient_accumulation_steps=64),
    "fsdp offloaded": fsdp(
        parameter_offload=True, stages=[{"layers": 32, "recompute": {"full": 32}, "optimizer_layers_offloaded": 32}]
    ),
    "ddp": ddp(),
    "ddp on one": ddp(data_parallel=1, gradient_accumulation_steps=64),
    "ddp compiled in fp32": ddp(compile=True, precision="fp32"),
    "ddp on cpus": on_cpus(ddp()),
}


@pytest.mark.parametrize("made", PLANS.values(), ids=list(PLANS))
def test_accelerate_reads_the_file(made: Plan, tmp_path: Path) -> None:
    args = pytest.importorskip("accelerate.commands.config.config_args")
    launch = pytest.importorskip("accelerate.commands.launch")
    parallelism = pytest.importorskip("accelerate.parallelism_config")
    path = tmp_path / "accelerate_config.yaml"
    path.write_text(texts(made)["accelerate_config.yaml"])
    read = args.load_config_from_file(str(path))
    assert made.configuration is not None
    assert read.num_processes == made.configuration.world_size
    known = vars(launch.launch_command_parser().parse_args(["script.py"]))
    for key in (*read.fsdp_config, *read.parallelism_config):
        assert key in known, f"accelerate launch has no --{key}"
    parsed, _, _ = launch._validate_launch_command(
        launch.launch_command_parser().parse_args(["--config_file", str(path), "script.py"])
    )
    assert parsed.use_fsdp is (made.configuration.backend.name == "fsdp")
    if read.parallelism_config:
        sizes = {key.removeprefix("parallelism_config_"): value for key, value in read.parallelism_config.items()}
        assert parallelism.ParallelismConfig(**sizes).total_size == made.configuration.world_size


@pytest.mark.parametrize("name", [name for name in PLANS if name.startswith("fsdp")])
def test_accelerate_builds_the_plugin_of_the_file(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    launch = pytest.importorskip("accelerate.commands.launch")
    utils = pytest.importorskip("accelerate.utils")
    made = PLANS[name]
    path = tmp_path / "accelerate_config.yaml"
    path.write_text(texts(made)["accelerate_config.yaml"])
    arguments = ["--config_file", str(path), "--main_process_port", "0", "script.py"]
    parsed, _, _ = launch._validate_launch_command(launch.launch_command_parser().parse_args(arguments))
    for key, value in utils.launch.prepare_multi_gpu_env(parsed).items():
        if key.startswith(("FSDP_", "ACCELERATE_", "PARALLELISM_CONFIG_")):
            monkeypatch.setenv(key, value)
    plugin = utils.FullyShardedDataParallelPlugin()
    assert made.configuration is not None
    assert plugin.fsdp_version == 2
    assert plugin.reshard_after_forward is (made.configuration.zero_stage == 3)
    assert plugin.activation_checkpointing is (made.configuration.stages[0].recompute.full == 32)
    assert (type(plugin.cpu_offload).__name__ == "CPUOffloadPolicy") is made.configuration.parameter_offload
    assert plugin.auto_wrap_policy.__name__ == "transformer_auto_wrap_policy"


def test_fsdp_keys_follow_the_plan() -> None:
    found = config(fsdp(zero_stage=2, stages=FULL))
    assert found["distributed_type"] == "FSDP"
    assert found["mixed_precision"] == "bf16"
    assert found["fsdp_config"]["fsdp_reshard_after_forward"] is False
    assert found["fsdp_config"]["fsdp_activation_checkpointing"] is True
    assert config(fsdp())["fsdp_config"]["fsdp_activation_checkpointing"] is False


@pytest.mark.parametrize(
    ("made", "kind"),
    [(ddp(), "MULTI_GPU"), (PLANS["ddp on one"], "NO"), (PLANS["ddp on cpus"], "MULTI_CPU")],
)
def test_ddp_is_a_kind_of_processes(made: Plan, kind: str) -> None:
    found = config(made)
    assert found["distributed_type"] == kind
    assert "fsdp_config" not in found
    assert "parallelism_config" not in found
    assert found["use_cpu"] is (kind == "MULTI_CPU")


def test_what_the_script_must_do_is_beside_it() -> None:
    found = settings(fsdp())
    batch = ("micro_batch_size", "gradient_accumulation_steps", "global_batch_size")
    assert [found[key] for key in batch] == [2, 8, 128]
    assert found["mixed_precision_policy"]["reduce_dtype"] == "float32"
    assert settings(fsdp(gradient_compression="bf16"))["mixed_precision_policy"]["reduce_dtype"] == "bfloat16"
    assert settings(ddp(gradient_compression="powersgd"))["ddp_comm_hook"] == "power_sgd"
    for text in texts(fsdp()).values():
        assert "accumulation_steps" in text or text.startswith("{")
    assert "per-device batch 2, gradient_accumulation_steps 8" in texts(fsdp())["accelerate_config.yaml"]
    assert "per-device batch 2, gradient_accumulation_steps 8" in texts(fsdp())["launch.sh"]


def test_the_hook_is_one_that_accelerate_has() -> None:
    utils = pytest.importorskip("accelerate.utils")
    for compression in ("fp16", "bf16", "powersgd"):
        utils.DDPCommunicationHookType(settings(ddp(gradient_compression=compression))["ddp_comm_hook"])


@pytest.mark.parametrize(
    ("made", "message"),
    [
        (plan(pipeline(2, backend={"name": "fsdp"}, zero_stage=2)), "pipeline_parallel 2"),
        (fsdp(stages=[{"layers": 32, "recompute": {"full": 4, "none": 28}}]), "recompute full in 4 and selective in 0"),
        (fsdp(stages=[{"layers": 32, "recompute": {"selective": 32}}]), "recompute full in 0 and selective in 32"),
        (fsdp(stages=[{"layers": 32, "recompute": {"full": 32, "interval": 2}}]), "interval 2"),
        (plan(configuration(stages=NONE)), "the plan is for backend deepspeed"),
        (fsdp(expert_parallel=2), "expert_parallel 2"),
        (fsdp(tensor_parallel=2, data_parallel=4, sequence_parallel=True), "sequence_parallel"),
        (fsdp(context_parallel=2, data_parallel=4, attention="flash"), "context_parallel 2 with attention flash"),
        (fsdp(tensor_parallel=8, data_parallel=1), "FSDP over data_parallel 1"),
        (fsdp(precision="fp8"), "precision fp8"),
        (fsdp(parameter_offload=True), "optimizer states of 0 of 32 layers offloaded"),
        (fsdp(gradient_compression="powersgd"), "gradient_compression powersgd"),
        (on_cpus(fsdp()), "FSDP on CPUs"),
    ],
)
def test_what_cannot_be_said_is_refused(made: Plan, message: str) -> None:
    with pytest.raises(ExportUnsupported) as caught:
        render(made, "accelerate")
    assert any(loss.startswith(message) or message in loss for loss in caught.value.losses)
    lossy = texts(made, allow_lossy=True)
    assert "# note: not expressed: " in lossy["accelerate_config.yaml"]
    assert message in lossy["launch.sh"]


def test_one_node_starts_by_its_file() -> None:
    script = texts(fsdp())["launch.sh"]
    assert 'exec accelerate launch \\\n  --config_file "$(dirname "$0")/accelerate_config.yaml"' in script
    assert "--machine_rank" not in script


def test_several_nodes_meet_at_the_first() -> None:
    made = fsdp().model_copy(update={"request": question(nodes=2, gpus_per_node=4)})
    assert config(made)["num_machines"] == 2
    assert config(made)["num_processes"] == 8
    assert "--machine_rank" in texts(made)["launch.sh"]
    assert "${MASTER_ADDR:?" in texts(made)["launch.sh"]


def test_processes_on_cpus_are_started_without_mpi() -> None:
    script = texts(on_cpus(ddp()))["launch.sh"]
    assert "export ACCELERATE_USE_CPU=true" in script
    assert "export ACCELERATE_MIXED_PRECISION=bf16" in script
    assert "torchrun --standalone --nproc-per-node=8" in script


def test_the_text_is_pure_and_says_where_it_is_from() -> None:
    assert texts(fsdp()) == texts(fsdp())
    for text in texts(fsdp()).values():
        assert "meshwright export plan.json --to accelerate" in text
        assert "plan_sha256" in text


def test_a_target_that_cannot_names_one_that_can() -> None:
    assert able(fsdp()) == ("accelerate",)
    with pytest.raises(ExportUnsupported, match=r"; use --to accelerate$"):
        render(fsdp(), "deepspeed")
    with pytest.raises(UnknownTarget, match=r"known: deepspeed, megatron, accelerate; this plan can go to accelerate$"):
        render(fsdp(), "zzz")
    with pytest.raises(UnknownTarget, match=r"did you mean deepspeed\? known: .*; this plan can go to accel"):
        render(fsdp(), "deepsped")
    with pytest.raises(NothingToExport):
        render(infeasible(), "accelerate")


@pytest.mark.parametrize(
    ("made", "target", "code", "message"),
    [
        (fsdp(), "accelerate", 0, ""),
        (fsdp(), "deepspeed", 2, "use --to accelerate"),
        (fsdp(), "zzz", 2, "this plan can go to accelerate"),
        (infeasible(), "deepspeed", 3, "the plan is infeasible and has no configuration"),
        (infeasible(), "zzz", 2, "this plan can go to none of them"),
    ],
)
def test_exit_codes_of_export(
    made: Plan, target: str, code: int, message: str, tmp_path: Path, capsys: Captured
) -> None:
    (tmp_path / "plan.json").write_text(made.to_json())
    assert main(["export", str(tmp_path / "plan.json"), "--to", target]) == code
    assert message in capsys.readouterr().err


def test_help_names_every_target(capsys: Captured) -> None:
    assert main(["export", "--help"]) == 0
    shown = capsys.readouterr().out
    assert all(target in shown for target in EXPORTERS)
