"""From a file and flags to a request. Flags win over the file, `--set` over both."""

import sys
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache, wraps
from inspect import Parameter, Signature, signature
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, TextIO

import typer

from cost_models.errors import BrokenRule, SpecError

if TYPE_CHECKING:
    from planner.request import PlanRequest

File = Annotated[
    Path | None,
    typer.Option(
        "--file",
        "-f",
        help="Request in YAML or JSON, or its plan; - reads from a pipe.",
        show_default=False,
    ),
]
Model = Annotated[str | None, typer.Option("--model", help="Preset, Hub id (org/name) or path of a config.json.")]
Device = Annotated[str | None, typer.Option("--device", help="Device of every node, such as a100-sxm-80gb.")]
Gpus = Annotated[int | None, typer.Option("--gpus", help="GPUs of the cluster, all nodes together.")]
Nodes = Annotated[int | None, typer.Option("--nodes", help="Nodes; as many as --gpus needs where left out.")]
SequenceLength = Annotated[int | None, typer.Option("--sequence-length", help="Tokens in a sequence.")]
GlobalBatchSize = Annotated[int | None, typer.Option("--global-batch-size", help="Sequences in an optimizer step.")]
Method = Annotated[str | None, typer.Option("--method", help="full, lora or qlora.")]
Precision = Annotated[str | None, typer.Option("--precision", help="auto, bf16, fp16, fp32, fp8 or nvfp4.")]
Optimizer = Annotated[str | None, typer.Option("--optimizer", help="adamw, adamw-8bit, adafactor, sgd, lion, muon.")]
BackendName = Annotated[
    str | None, typer.Option("--backend", help="any, deepspeed, megatron, fsdp, ...; or a list a,b.")
]
ObjectiveName = Annotated[
    str | None,
    typer.Option("--objective", help="throughput, memory, gpus, cost, cost_per_token, energy; a,b is lexicographic."),
]
Set = Annotated[
    list[str] | None,
    typer.Option(
        "--set", metavar="KEY=VALUE", help="Any key of the request by its dotted path; a bare decision pins it."
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print the result as JSON.")]


FLAGS: Final[Mapping[str, Any]] = {
    "model": Model,
    "device": Device,
    "gpus": Gpus,
    "nodes": Nodes,
    "sequence_length": SequenceLength,
    "global_batch_size": GlobalBatchSize,
    "method": Method,
    "precision": Precision,
    "optimizer": Optimizer,
    "backend": BackendName,
    "objective": ObjectiveName,
}
JOB: Final = tuple(name for name in FLAGS if name != "objective")
"""The flags that describe a job."""
TRAINING: Final = ("method", "sequence_length", "global_batch_size", "precision", "optimizer")
"""Flags that are keys of `training`."""


def with_flags(*names: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Gives a command the options of these flags, after its first one; it takes what they state as `flags`."""

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        own = list(signature(command, eval_str=True).parameters.values())
        options = [Parameter(name, Parameter.POSITIONAL_OR_KEYWORD, default=None, annotation=FLAGS[name])
                   for name in names]  # fmt: skip
        first, *rest = (parameter for parameter in own if parameter.name != "flags")

        @wraps(command)
        def run(**given: Any) -> None:
            command(flags={name: given.pop(name) for name in names}, **given)

        run.__signature__ = Signature([first, *options, *rest])  # type: ignore[attr-defined]
        run.__annotations__ = {parameter.name: parameter.annotation for parameter in (first, *options, *rest)}
        return run

    return decorate


def request_data(
    file: Path | None, flags: Mapping[str, Any], settings: list[str] | None, *, decisions: str, pins: Sequence[str] = ()
) -> dict[str, Any]:
    """The request as plain data.

    Args:
        file: the request to start from.
        flags: what the flags state, by name; None where a flag is not given.
        settings: the `--set KEY=VALUE`s.
        decisions: where a bare decision of `--set` goes: `constraints` for a plan, `configuration` for an estimate.
        pins: the `KEY=VALUE`s of a `--why-not`, set last.

    Raises:
        SpecError: the file or a flag cannot be read.
    """
    from planner.request import inline_files, load_request

    if file is not None and str(file) == "-":
        data = _piped(sys.stdin)
    else:
        data = load_request(file) if file is not None else {}
    data = _of_plan(data, decisions)
    given = {key: value for key, value in flags.items() if value is not None}
    if "model" in given:
        data["model"] = _model(given["model"])
    if given.keys() & {"device", "gpus", "nodes"}:
        data["cluster"] = _cluster(data.get("cluster"), given.get("device"), given.get("gpus"), given.get("nodes"))
    training = {key: given[key] for key in TRAINING if key in given}
    if training:
        stated = data.get("training")
        data["training"] = {**(stated if isinstance(stated, dict) else {}), **training}
    for key in ("backend", "objective"):
        if key in given:
            names = [name.strip() for name in given[key].split(",")]
            data[key] = names if len(names) > 1 else names[0]
    _each_key_once(settings or [], "--set")
    _each_key_once(pins, "--why-not")
    for item in settings or []:
        _set(data, item, decisions)
    for item in pins:
        _set(data, item, decisions, "--why-not")
    return inline_files(data, Path())


def _of_plan(data: dict[str, Any], decisions: str) -> dict[str, Any]:
    """A plan stands for the request that it answers; to an estimate it brings its configuration."""
    if not {"request", "provenance", "configuration"} <= data.keys():
        return data
    from planner.plan import Plan

    plan = Plan.read(data)
    request = plan.request.as_request()
    chosen = plan.configuration
    if decisions == "configuration" and chosen is not None:
        request["configuration"] = chosen.model_dump(mode="json")
    return request


def _piped(stream: TextIO) -> dict[str, Any]:
    """The request on standard input, of which JSON is nearly a part; paths in it are relative to this folder."""
    from planner.reading import MAX_BYTES, read_json, read_yaml
    from planner.request import inline_files

    text = _whole(stream, MAX_BYTES + 1)
    # {"key": ...} is JSON; {key: ...} is YAML.
    stripped = text.lstrip()
    read = read_json if stripped.startswith("{") and stripped[1:].lstrip().startswith('"') else read_yaml
    return inline_files(read(text, "standard input"), Path())


@lru_cache(maxsize=1)
def _whole(stream: TextIO, limit: int) -> str:
    """What a stream holds, read once: a plan with rivals asks for its request again."""
    try:
        return stream.read(limit)
    except UnicodeDecodeError as error:
        raise SpecError(f"standard input is not UTF-8 text (byte {error.start})") from error


def read_request(data: dict[str, Any]) -> "PlanRequest":
    """The request, validated.

    Raises:
        SpecError: naming the field and both sides of the broken rule.
    """
    from planner.request import PlanRequest

    for key, flag in (("model", "--model"), ("cluster", "--device and --gpus"), ("training", "--sequence-length")):
        if key not in data:
            raise SpecError(f"{key} is missing: give a request with -f, or {flag}")
    stated = data["training"]
    for key in ("sequence_length", "global_batch_size"):
        if isinstance(stated, dict) and key not in stated:
            raise SpecError(f"training.{key} is missing: give --{key.replace('_', '-')}")
    return PlanRequest.read(data)


def _model(text: str) -> dict[str, str]:
    """A file, else a Hub id, else a preset's name."""
    if text.endswith(".json") or Path(text).exists():
        return {"config": text}
    return {"hub": text} if "/" in text else {"preset": text}


def _cluster(cluster: Any, device: str | None, gpus: int | None, nodes: int | None) -> dict[str, Any]:
    """One pool: what the file says of it, the flags on top."""
    pools = cluster.get("pools") if isinstance(cluster, dict) else None
    pool = dict(pools[0]) if isinstance(pools, list) and pools and isinstance(pools[0], dict) else {}
    if isinstance(pools, list) and len(pools) > 1:
        raise BrokenRule(f"--device, --gpus and --nodes change one pool, cluster.pools lists {len(pools)}")
    if device is not None:
        pool["device"] = device
    if "device" not in pool:
        raise SpecError("cluster.pools.0.device is missing: give --device")
    if gpus is not None:
        pool["nodes"], pool["gpus_per_node"] = _nodes(pool["device"], gpus, nodes)
    elif nodes is not None:
        pool["nodes"] = nodes
    return {"pools": [pool]}


def _nodes(device: Any, gpus: int, nodes: int | None) -> tuple[int, int]:
    """Nodes and GPUs per node of a GPU count."""
    if gpus < 1:
        raise BrokenRule(f"--gpus {gpus} must be at least 1")
    if nodes is None:
        from cost_models import catalog

        usual = catalog.device(device).gpus_per_node if isinstance(device, str) else 8
        if gpus > usual and gpus % usual:
            raise BrokenRule(f"--gpus {gpus} is no multiple of the {usual} GPUs of a node; give --nodes")
        nodes = max(1, gpus // usual)
    if nodes < 1:
        raise BrokenRule(f"--nodes {nodes} must be at least 1")
    if gpus % nodes:
        below, above = gpus - gpus % nodes, gpus - gpus % nodes + nodes
        fitting = f"{below} or {above}" if below else f"{above}"
        raise BrokenRule(
            f"--gpus {gpus} does not divide over --nodes {nodes}: --gpus counts all nodes together, {fitting} would do"
        )
    return nodes, gpus // nodes


def _each_key_once(items: Sequence[str], option: str) -> None:
    said: dict[str, str] = {}
    for item in items:
        key = item.partition("=")[0].strip()
        if said.setdefault(key, item) != item:
            raise SpecError(f"{option} {said[key]!r} and {option} {item!r} give {key} two values; give one")


def _set(data: dict[str, Any], item: str, decisions: str, option: str = "--set") -> None:
    from planner.constraints import LIMITS, Constraints
    from planner.reading import read_yaml
    from planner.request import PlanRequest

    path, equals, text = item.partition("=")
    if not equals or not path.strip():
        raise SpecError(f"{option} {item!r} is not KEY=VALUE")
    keys = path.strip().split(".")
    if keys == ["gpus"]:
        for limit in ("min_gpus", "max_gpus"):
            _set(data, f"{limit}={text}", decisions, option)
        return
    if len(keys) == 1 and keys[0] not in PlanRequest.model_fields:
        keys.insert(0, "constraints" if keys[0] in ("oom_risk", *LIMITS) else decisions)
    if keys[0] == "constraints" and len(keys) > 1 and keys[1] not in Constraints.model_fields:
        raise SpecError(
            f"{option} {item!r}: {keys[1]} is no constraint; a dotted path names any other key of the request"
        )
    place: Any = data
    for key in keys[:-1]:
        if isinstance(place, list) and key.isdigit() and int(key) < len(place):
            place = place[int(key)]
            continue
        if not isinstance(place, dict):
            raise SpecError(f"{option} {item!r}: {key} is not inside a mapping")
        place = place.setdefault(key, {})
    if not isinstance(place, dict):
        raise SpecError(f"{option} {item!r}: {keys[-1]} is not inside a mapping")
    place[keys[-1]] = read_yaml(f"value: {text}", f"{option} {item!r}")["value"]
