"""A launch as data: argument lists, environments, and what is refused before anything starts."""

import base64
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from executor import environment
from executor.deepspeed_launcher import with_port
from executor.errors import MissingExtra, PlanInfeasible, PlanRefused
from executor.launch import (
    CONFIG_PLACEHOLDER,
    LaunchOptions,
    Nodes,
    Script,
    configuration_to_run,
    deepspeed_arguments,
    prepare,
    processes_per_node,
    require_packages,
    torchrun_arguments,
)
from planner.plan import Recommendations
from tests.unit.executor.plans import configuration, feasible, infeasible


@pytest.fixture
def script(tmp_path: Path) -> Path:
    path = tmp_path / "train.py"
    path.write_text("pass\n", encoding="utf-8")
    return path


def test_one_node_starts_the_plans_world(script: Path, tmp_path: Path) -> None:
    launch = prepare(feasible(), "{}", Script(path=script), LaunchOptions(directory=tmp_path), cpu=True)
    assert launch.argv[1:] == ("-m", "executor.torchrun", "--standalone", "--nproc-per-node", "2", str(script))


def test_several_nodes_share_the_world() -> None:
    nodes = Nodes(count=2, rank=1, rendezvous="head:29500")
    assert processes_per_node(configuration(data_parallel=8), nodes) == 4
    arguments = torchrun_arguments(4, nodes)
    assert arguments[:6] == ("--nnodes", "2", "--node-rank", "1", "--nproc-per-node", "4")
    assert arguments[-2:] == ("--rdzv-endpoint", "head:29500")


def test_deepspeeds_launcher_is_told_every_node(script: Path, tmp_path: Path) -> None:
    nodes = Nodes(count=2, rank=1, rendezvous="head:29500")
    options = LaunchOptions(directory=tmp_path, starter="deepspeed", nodes=nodes)
    plan = feasible(configuration=configuration(data_parallel=4))
    argv = prepare(plan, "{}", Script(path=script, arguments=("--lr", "1")), options, cpu=True).argv
    world, rank, *rest = argv[3:]
    assert argv[1:3] == ("-m", "executor.deepspeed_launcher")
    told = json.loads(base64.urlsafe_b64decode(world.removeprefix("--world_info=")))
    assert told == {"node-0": [0, 1], "node-1": [0, 1]}
    head = ["--no_local_rank", "--master_addr=head", "--master_port=29500"]
    assert [rank, *rest] == ["--node_rank=1", *head, str(script), "--lr", "1"]
    assert not any("master" in word for word in deepspeed_arguments(2, Nodes()))
    with pytest.raises(PlanRefused, match="give HOST:PORT"):
        deepspeed_arguments(2, Nodes(count=2, rendezvous="head"))


def test_a_port_among_the_scripts_arguments_is_the_scripts() -> None:
    words = ["--no_local_rank", "train.py", "--master_port=1"]
    port, *rest = with_port(words)
    assert port.startswith("--master_port=")
    assert rest == words
    told = ["--master_port=29500", "train.py"]
    assert with_port(told) == told


@pytest.mark.parametrize(
    ("nodes", "message"),
    [
        (Nodes(processes=3), "the plan's world size is 2, which 1 node(s) x 3 processes cannot make"),
        (Nodes(count=3, rendezvous="h:1"), "the plan's world size is 2, which 3 node(s) cannot make"),
        (Nodes(count=2), "2 nodes need --rendezvous host:port of node 0"),
        (Nodes(count=2, rank=2, rendezvous="h:1"), "node rank 2 is not below the 2 node(s)"),
    ],
)
def test_a_world_that_does_not_match_is_refused(nodes: Nodes, message: str) -> None:
    with pytest.raises(PlanRefused) as refused:
        processes_per_node(configuration(), nodes)
    assert str(refused.value) == message


def test_an_infeasible_plan_is_refused_with_its_reason() -> None:
    with pytest.raises(PlanInfeasible, match=r"status is infeasible.*12\.00 GiB short per GPU"):
        configuration_to_run(infeasible())


def test_a_back_end_without_a_launcher_is_refused() -> None:
    with pytest.raises(PlanRefused, match="backend is megatron; this release launches deepspeed, fsdp, ddp"):
        configuration_to_run(feasible(configuration=configuration(backend={"name": "megatron"})))


def test_a_missing_script_is_refused(tmp_path: Path) -> None:
    with pytest.raises(PlanRefused, match="no such training script"):
        prepare(feasible(), "{}", Script(path=tmp_path / "no.py"), LaunchOptions(directory=tmp_path), cpu=True)


def test_a_missing_package_names_the_extra() -> None:
    with pytest.raises(MissingExtra, match=r"no_such_package.*meshwright\[executor\]"):
        require_packages("json", "no_such_package")


def test_the_configurations_path_stands_in_for_its_placeholder(script: Path, tmp_path: Path) -> None:
    launch = prepare(
        feasible(),
        "{}",
        Script(path=script, arguments=("--deepspeed", CONFIG_PLACEHOLDER)),
        LaunchOptions(directory=tmp_path / "run"),
        cpu=True,
    )
    assert launch.argv[-1] == str(tmp_path / "run" / "deepspeed.json") == launch.added[environment.DEEPSPEED_CONFIG]


@given(arguments=st.lists(st.text(max_size=40), max_size=5))
def test_arguments_reach_the_script_as_they_are(arguments: list[str]) -> None:
    """No shell reads them: quotes, semicolons and newlines stay inside one element."""
    words = tuple(arguments)
    path = Path(__file__)
    options = LaunchOptions(directory=Path("/d"), starter="torchrun" if len(words) % 2 else "deepspeed")
    launch = prepare(feasible(), "{}", Script(path=path, arguments=words), options, cpu=True)
    shown = tuple(word.replace(CONFIG_PLACEHOLDER, "/d/deepspeed.json") for word in words)
    assert launch.argv[len(launch.argv) - len(words) :] == shown


@given(name=st.text(min_size=1, max_size=30), value=st.text(max_size=30))
def test_a_plan_cannot_set_what_loads_code(name: str, value: str) -> None:
    recommended = {name: value, "LD_PRELOAD": value, "NCCL_NET_PLUGIN": value, "PYTHONPATH": value}
    plan = feasible(recommendations=Recommendations(environment=recommended))
    launch = prepare(plan, "{}", Script(path=Path(__file__)), LaunchOptions(directory=Path("/d")), cpu=False)
    ours = {name for name in launch.added if name.startswith("MESHWRIGHT_")} | {"PYTHONPATH", "KINETO_LOG_LEVEL"}
    assert set(launch.added) <= ours | environment.RECOMMENDABLE
    assert launch.added["PYTHONPATH"].split(":")[0] == str(Path(__file__).parents[3])


def test_secrets_stay_behind_unless_named() -> None:
    parent = {"PATH": "/bin", "HF_TOKEN": "s", "AWS_SECRET_ACCESS_KEY": "s", "MESHWRIGHT_API_KEY": "s", "LC_ALL": "C"}
    assert environment.child_environment(parent) == {"PATH": "/bin", "LC_ALL": "C"}
    assert environment.child_environment(parent, passed=["HF_TOKEN"])["HF_TOKEN"] == "s"


def test_what_is_added_wins_over_what_is_inherited() -> None:
    assert environment.child_environment({"PATH": "/bin"}, added={"PATH": "/x"}) == {"PATH": "/x"}


def test_cpu_processes_share_the_cores_and_return_memory(script: Path, tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    monkeypatch.setattr("os.sched_getaffinity", lambda _: set(range(8)))
    launch = prepare(feasible(), "{}", Script(path=script), LaunchOptions(directory=tmp_path), cpu=True)
    assert launch.added["OMP_NUM_THREADS"] == "4"
    assert launch.added["TORCH_EXTENSIONS_DIR"]
    assert launch.added["MALLOC_MMAP_THRESHOLD_"] == "65536"
    assert launch.added["DS_ACCELERATOR"] == "cpu"


def test_each_environment_keeps_its_compiled_operators_apart(script: Path, tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.delenv("TORCH_EXTENSIONS_DIR", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    places = set()
    for prefix in ("/env/one", "/env/two"):
        monkeypatch.setattr("sys.prefix", prefix)
        launch = prepare(feasible(), "{}", Script(path=script), LaunchOptions(directory=tmp_path), cpu=True)
        places.add(launch.added["TORCH_EXTENSIONS_DIR"])
    assert len(places) == 2
    assert all(place.startswith(str(tmp_path)) for place in places)
