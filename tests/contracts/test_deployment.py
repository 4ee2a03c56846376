"""Files of deploy/ and the Dockerfile: what their own tools say of them, and the promises that those cannot know."""

import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import jsonschema  # type: ignore[import-untyped]
import pytest
import yaml

from planner.version import __version__
from service.security.access import ACCESS
from service.settings import ServiceSettings
from tests.contracts.dockerfile import command, stages
from tests.contracts.tree import ROOT

CHART = ROOT / "deploy" / "helm" / "meshwright"
RENDERED = ROOT / "tests" / "golden" / "helm"
CASES = {
    "default": ["--set", "database.existingSecret=meshwright-database"],
    "everything": ["--values", str(ROOT / "deploy" / "helm" / "everything.yaml")],
    "plain": ["--values", str(ROOT / "deploy" / "helm" / "plain.yaml")],
}
LONGEST_END_SECONDS = 30


def tool(name: str, *arguments: str) -> None:
    """Run a linter of the development environment; what it says is the failure."""
    done = subprocess.run(
        [Path(sys.executable).with_name(name), *arguments], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


def sources() -> str:
    """A digest of what the rendered files are made from."""
    files = sorted(path for path in CHART.parent.rglob("*") if path.is_file())
    found = hashlib.sha256()
    for path in files:
        found.update(path.relative_to(CHART.parent).as_posix().encode() + b"\0" + path.read_bytes() + b"\0")
    return found.hexdigest()


def helm(*arguments: str) -> str:
    done = subprocess.run(["helm", *arguments], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def rendered(case: str) -> list[dict[str, Any]]:
    return [found for found in yaml.safe_load_all((RENDERED / f"{case}.yaml").read_text(encoding="utf-8")) if found]


def kinds(case: str) -> dict[str, dict[str, Any]]:
    return {found["kind"]: found for found in rendered(case)}


def pods(case: str) -> list[dict[str, Any]]:
    return [found["spec"]["template"]["spec"] for found in rendered(case) if found["kind"] in {"Deployment", "Job"}]


def test_the_dockerfile_is_clean() -> None:
    tool("hadolint", "--failure-threshold", "info", "Dockerfile")


def test_the_image_of_the_service_runs_as_nobody_special() -> None:
    stage = stages(ROOT / "Dockerfile")["service"]
    assert stage.of("USER") == ["10001"]
    assert stage.of("STOPSIGNAL") == ["SIGTERM"]
    assert stage.environment["MESHWRIGHT_AUTHENTICATION"] == "required"
    assert not [text for text in stage.of("RUN") if "pip " in text or "g++" in text], (
        "nothing is built in the last stage"
    )
    assert any("postgresql-client" in text for text in stage.of("RUN")), "`meshwright db backup` runs pg_dump"
    assert "livez" in command(stage.of("HEALTHCHECK")[0])[-1]


def test_the_compose_file_keeps_to_the_specification() -> None:
    tool("check-jsonschema", "--builtin-schema", "vendor.compose-spec", "deploy/compose.yaml")


def test_every_container_of_the_compose_file_is_shut_in() -> None:
    found = yaml.safe_load((ROOT / "deploy" / "compose.yaml").read_text(encoding="utf-8"))
    for name, service in found["services"].items():
        assert service["read_only"] is True, name
        assert service["cap_drop"] == ["ALL"], name
        assert service["security_opt"] == ["no-new-privileges:true"], name
        assert service["mem_limit"], name
        assert not any("PASSWORD" in key and not key.endswith("_FILE") for key in service["environment"]), name
    assert found["services"]["service"]["ports"] == ["127.0.0.1:8000:8000"]
    assert found["networks"]["inside"] == {"internal": True}
    assert found["services"]["service"]["image"].rpartition(":")[2] == __version__


@pytest.mark.parametrize("case", CASES)
def test_the_rendered_chart_is_current(case: str) -> None:
    """Without helm, by the digest of its sources; with it, by rendering: MESHWRIGHT_UPDATE_GOLDEN=1 writes it anew."""
    file = RENDERED / f"{case}.yaml"
    head = f"# helm template prod deploy/helm/meshwright --namespace ml ({case}); sources {sources()}\n"
    if shutil.which("helm") is not None:
        helm("lint", str(CHART), "--strict", *CASES[case])
        text = head + helm("template", "prod", str(CHART), "--namespace", "ml", *CASES[case])
        if os.environ.get("MESHWRIGHT_UPDATE_GOLDEN") == "1":
            file.parent.mkdir(exist_ok=True)
            file.write_text(text, encoding="utf-8")
        assert file.read_text(encoding="utf-8") == text
    assert file.read_text(encoding="utf-8").startswith(head), "the chart has changed since it was rendered"


@pytest.mark.parametrize("case", CASES)
def test_what_the_chart_makes_is_valid(case: str) -> None:
    tool("kubernetes-validate", "--strict", str(RENDERED / f"{case}.yaml"))


@pytest.mark.parametrize("case", CASES)
def test_every_pod_is_shut_in(case: str) -> None:
    """Kubernetes' Pod Security Standard `restricted`, a read-only root, and no way to the cluster's own interface."""
    for pod in pods(case):
        assert pod["securityContext"]["runAsNonRoot"] is True
        assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
        assert pod["automountServiceAccountToken"] is False
        for container in pod["containers"]:
            assert container["securityContext"] == {
                "allowPrivilegeEscalation": False,
                "readOnlyRootFilesystem": True,
                "capabilities": {"drop": ["ALL"]},
            }
            assert {"requests", "limits"} <= set(container["resources"])


@pytest.mark.parametrize("case", CASES)
def test_no_secret_is_written_into_the_chart(case: str) -> None:
    wanted = {"MESHWRIGHT_DATABASE_URL", "MESHWRIGHT_WEBHOOK_SECRET", "MESHWRIGHT_DATABASE_PASSWORD"}
    for pod in pods(case):
        for variable in pod["containers"][0]["env"]:
            assert ("valueFrom" in variable) == (variable["name"] in wanted), variable["name"]


@pytest.mark.parametrize(
    ("values", "wrong"),
    [
        ({}, "'database' is a required property"),
        ({"database": {"existingSecret": ""}}, "should be non-empty"),
        ({"database": {"existingSecret": "s"}, "replica": 2}, "'replica' was unexpected"),
        ({"database": {"existingSecret": "s"}, "replicas": 0}, "0 is less than the minimum of 1"),
        ({"database": {"existingSecret": "s"}, "shutdownSeconds": 60}, "60 is greater than the maximum of 20"),
        ({"database": {"existingSecret": "s"}, "image": {"digest": "latest"}}, "does not match"),
    ],
)
def test_values_that_make_no_sense_are_refused(values: dict[str, Any], wrong: str) -> None:
    """Helm holds them against the same schema before it renders anything."""
    schema = json.loads((CHART / "values.schema.json").read_text(encoding="utf-8"))
    with pytest.raises(jsonschema.ValidationError, match=re.escape(wrong)):
        jsonschema.validate(values, schema)


def test_the_schema_knows_every_value_of_the_chart() -> None:
    schema = json.loads((CHART / "values.schema.json").read_text(encoding="utf-8"))
    values = yaml.safe_load((CHART / "values.yaml").read_text(encoding="utf-8"))
    assert set(schema["properties"]) == set(values) | {"global"}
    for name, value in values.items():
        own = schema["properties"][name]
        if isinstance(value, dict) and "properties" in own:
            assert set(own["properties"]) == set(value), name


def test_probes_ask_what_is_public() -> None:
    [pod] = [pod for pod in pods("default") if pod["containers"][0]["name"] == "service"]
    for probe in ("startupProbe", "livenessProbe", "readinessProbe"):
        assert ACCESS[pod["containers"][0][probe]["httpGet"]["path"].strip("/")] == "public"
    assert pod["containers"][0]["livenessProbe"]["httpGet"]["path"] == "/livez", (
        "a database that is away restarts nobody"
    )


def test_pods_and_units_are_given_the_time_that_the_service_takes() -> None:
    assert ServiceSettings().shutdown_seconds < LONGEST_END_SECONDS
    [pod] = [pod for pod in pods("default") if pod["containers"][0]["name"] == "service"]
    drain = int(pod["containers"][0]["lifecycle"]["preStop"]["exec"]["command"][-1])
    assert pod["terminationGracePeriodSeconds"] - drain > LONGEST_END_SECONDS
    unit = (ROOT / "deploy" / "systemd" / "meshwright.service").read_text(encoding="utf-8")
    assert int(unit.partition("TimeoutStopSec=")[2].split()[0]) > LONGEST_END_SECONDS
    compose = yaml.safe_load((ROOT / "deploy" / "compose.yaml").read_text(encoding="utf-8"))
    assert int(compose["services"]["service"]["stop_grace_period"].rstrip("s")) > LONGEST_END_SECONDS


def test_the_parts_of_the_chart() -> None:
    assert {"Deployment", "Service", "ServiceAccount", "PodDisruptionBudget", "Job"} == set(kinds("default"))
    assert set(kinds("everything")) == set(kinds("default")) | {"Ingress", "ServiceMonitor"}
    assert set(kinds("plain")) == {"Deployment", "Service"}
    replicas = {case: kinds(case)["Deployment"]["spec"]["replicas"] for case in CASES}
    assert replicas == {"default": 2, "everything": 3, "plain": 1}
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text(encoding="utf-8"))
    assert chart["appVersion"] == __version__
    monitor = kinds("everything")["ServiceMonitor"]["spec"]["endpoints"][0]
    assert monitor["authorization"]["credentials"]["name"] == "meshwright-scrape"


def test_every_setting_that_deploy_names_exists() -> None:
    known = {f"MESHWRIGHT_{name.upper()}" for name in ServiceSettings.model_fields} | {"MESHWRIGHT_SECRETS_DIR"}
    for path in [*(ROOT / "deploy").rglob("*"), ROOT / "Dockerfile", ROOT / "docs" / "operating.md"]:
        if path.is_file():
            text = path.read_text(encoding="utf-8")
            named = set(re.findall(r"MESHWRIGHT_[A-Z_]*[A-Z]", text))
            assert named <= known, path


def test_the_unit_is_understood_and_shut_in(tmp_path: Path) -> None:
    """systemd-analyze says more where it is installed; everywhere, what must be in the unit."""
    file = ROOT / "deploy" / "systemd" / "meshwright.service"
    unit = file.read_text(encoding="utf-8")
    for line in ("DynamicUser=yes", "ProtectSystem=strict", "NoNewPrivileges=yes", "CapabilityBoundingSet=\n"):
        assert line in unit
    if shutil.which("systemd-analyze") is None:
        return
    copy = tmp_path / "meshwright.service"
    copy.write_text(unit.replace("/opt/meshwright/bin/meshwright", "/bin/true"), encoding="utf-8")
    verified = subprocess.run(["systemd-analyze", "verify", copy], capture_output=True, text=True, check=False)
    assert "meshwright.service" not in verified.stderr, verified.stderr
    judged = subprocess.run(
        ["systemd-analyze", "security", "--offline=true", "--threshold=20", copy],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert judged.returncode == 0, judged.stdout[-300:]
