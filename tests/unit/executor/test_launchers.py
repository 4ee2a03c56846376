"""Batch systems: what is rendered, word for word, and that no word of a user or a plan leaves its place."""

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from executor.errors import PlanRefused
from executor.launch import LaunchOptions, Nodes, Script
from executor.launchers import RENDERERS, BatchOptions, batch_launch
from tests.unit.executor.plans import configuration, feasible, question

GOLDEN = Path(__file__).parents[2] / "golden" / "launchers"
BATCH = BatchOptions(image="registry/train:1", time_limit="1-00:00:00")


def rendered(launcher: str, *arguments: str, nodes: int = 2, device: str = "a100-sxm-80gb", **changes: Any) -> Any:
    plan = feasible(configuration=configuration(data_parallel=8), request=question(device, 8), **changes)
    options = LaunchOptions(directory=Path("/shared/run"), nodes=Nodes(count=nodes), passed=("HF_TOKEN",))
    return batch_launch(plan, Script(path=Path("train.py"), arguments=arguments), options, launcher, BATCH)


@pytest.mark.parametrize("nodes", [1, 2])
@pytest.mark.parametrize("launcher", RENDERERS)
def test_what_is_rendered(launcher: str, nodes: int) -> None:
    name, text = next(iter(rendered(launcher, "--lr", "1e-4", nodes=nodes).files.items()))
    if name == "job.yaml":
        documents = list(yaml.safe_load_all(text))
        documents[0]["data"] = {"plan.json": "..."}  # releases change it
        text = yaml.safe_dump_all(documents, sort_keys=False, width=110)
    path = GOLDEN / f"{launcher}-{nodes}.{name.rpartition('.')[2]}"
    if os.environ.get("MESHWRIGHT_UPDATE_GOLDEN") == "1":
        path.parent.mkdir(exist_ok=True)
        path.write_text(text, encoding="utf-8")
    assert text == path.read_text(encoding="utf-8")


def test_a_plan_on_cpus_asks_for_no_gpu() -> None:
    assert "gpus-per-node" not in rendered("slurm", device="cpu").files["job.sbatch"]
    *_, job = yaml.safe_load_all(rendered("kubernetes", device="cpu").files["job.yaml"])
    assert job["spec"]["template"]["spec"]["containers"][0]["resources"] == {"limits": {"cpu": 4}}


def test_the_command_submits_the_file() -> None:
    assert rendered("slurm").argv == ("sbatch", "/shared/run/job.sbatch")
    assert rendered("kubernetes").argv == ("kubectl", "apply", "-f", "/shared/run/job.yaml")


def test_kubernetes_needs_an_image() -> None:
    options = LaunchOptions(directory=Path("/d"))
    with pytest.raises(PlanRefused, match="--image"):
        batch_launch(feasible(), Script(path=Path("t.py")), options, "kubernetes", BatchOptions())


def test_a_line_end_does_not_start_another_directive() -> None:
    options = LaunchOptions(directory=Path("/d\n#SBATCH --uid=0"))
    with pytest.raises(PlanRefused, match="#SBATCH"):
        batch_launch(feasible(), Script(path=Path("t.py")), options, "slurm", BATCH)


WORDS = st.lists(st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=20), max_size=4)
HOSTILE = ["$(touch pwned)", "`id`", "'; rm -rf ~ #", "a\nb", "${HOME}", "--", "$$(x)", "\\"]


@settings(max_examples=30, deadline=None)
@given(arguments=WORDS | st.lists(st.sampled_from(HOSTILE), min_size=1), nodes=st.sampled_from([1, 2]))
def test_bash_passes_every_word_on_as_it_is(arguments: list[str], nodes: int) -> None:
    script = rendered("slurm", *arguments, nodes=nodes).files["job.sbatch"]
    # srun runs its arguments; meshwright-exec prints them.
    stand_ins = (
        'srun() { shift; "$@"; }; scontrol() { echo node0; }; export SLURM_NODEID=1 SLURM_JOB_NODELIST=x\n'
        "meshwright-exec() { printf '%s\\0' \"$@\"; }; export -f meshwright-exec\n"
    )
    text = script.replace('exec "$', '"$')  # a function cannot be exec'd
    done = subprocess.run(
        ["/bin/bash", "-c", stand_ins + text], capture_output=True, check=True, env={"PATH": "/bin:/usr/bin"}
    )
    words = done.stdout.decode("utf-8").split("\0")[:-1]
    assert words[words.index("--") :] == ["--", "train.py", *arguments]
    assert words[:2] == ["run", "/shared/run/plan.json"]
    if nodes == 2:
        assert words[words.index("--node-rank") + 1] == "1"
        assert words[words.index("--rendezvous") + 1] == "node0:29500"


@settings(max_examples=50, deadline=None)
@given(arguments=WORDS | st.lists(st.sampled_from(HOSTILE), min_size=1))
def test_a_manifest_keeps_its_shape(arguments: list[str]) -> None:
    for launcher in ("kubernetes", "pytorchjob"):
        documents = list(yaml.safe_load_all(rendered(launcher, *arguments).files["job.yaml"]))
        spec = documents[-1]["spec"]
        template = spec["template"] if launcher == "kubernetes" else spec["pytorchReplicaSpecs"]["Worker"]["template"]
        command = template["spec"]["containers"][0]["command"]
        assert command[command.index("--") :] == ["--", "train.py", *(a.replace("$(", "$$(") for a in arguments)]
        assert json.loads(documents[0]["data"]["plan.json"])["status"] == "optimal"


@settings(max_examples=20, deadline=None)
@given(text=st.text(st.characters(codec="utf-8", exclude_characters="\0"), min_size=1) | st.sampled_from(HOSTILE))
def test_no_text_of_a_plan_reaches_a_shell(text: str) -> None:
    """A plan is data from elsewhere: whatever its texts say, what runs is the same but for the job's plain name."""
    plan = feasible(configuration=configuration(data_parallel=8), request=question("a100-sxm-80gb", 8))
    pool = plan.request.cluster.pools[0]
    named = pool.model_copy(update={"device": pool.device.model_copy(update={"name": text, "source": text})})
    hostile = plan.model_copy(
        update={
            "warnings": (text,),
            "envelope": plan.envelope.model_copy(update={"host": text}),
            "request": plan.request.model_copy(
                update={"cluster": plan.request.cluster.model_copy(update={"pools": (named,)})}
            ),
        }
    )
    for launcher in RENDERERS:
        options = LaunchOptions(directory=Path("/shared/run"), nodes=Nodes(count=2))
        launches = [batch_launch(p, Script(path=Path("t.py")), options, launcher, BATCH) for p in (plan, hostile)]
        assert launches[0].argv == launches[1].argv
        for name in launches[0].files:
            if name == "job.yaml":
                plain, other = (list(yaml.safe_load_all(launch.files[name])) for launch in launches)
                assert plain[1:] == other[1:]
                assert json.loads(other[0]["data"]["plan.json"])["warnings"] == [text]
            elif name != "plan.json":
                assert launches[0].files[name] == launches[1].files[name]


@pytest.mark.parametrize("identity", ["../../etc", "x" * 300, "a b;c", "Plan_1"])
def test_a_plans_id_becomes_a_plain_name(identity: str) -> None:
    plan = feasible()
    plan = plan.model_copy(update={"envelope": plan.envelope.model_copy(update={"id": identity})})
    options = LaunchOptions(directory=Path("/d"))
    text = batch_launch(plan, Script(path=Path("t.py")), options, "slurm", BATCH).files["job.sbatch"]
    name = text.splitlines()[1].partition("job-name=")[2]
    assert name.startswith("meshwright-")
    assert len(name) <= 63
    assert all(character.isalnum() or character == "-" for character in name)
