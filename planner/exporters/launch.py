"""The launch script of a plan: the only place that makes shell text for it."""

import shlex
from collections.abc import Mapping

from planner.exporters.base import Artifact, ExportOptions, header, shape
from planner.plan import Plan


def comment(facts: Mapping[str, str]) -> list[str]:
    """The header as comment lines of a shell script."""
    return [f"# {key}: {' '.join(value.split())}" for key, value in facts.items()]


def environment(plan: Plan) -> dict[str, str]:
    """Environment that the plan asks for."""
    return dict(plan.recommendations.environment) if plan.recommendations else {}


def torchrun(plan: Plan, options: ExportOptions) -> list[str]:
    """The words of the torchrun command that starts every process of one node.

    With several nodes they meet at MASTER_ADDR, which the caller's environment states.
    """
    nodes, per_node = shape(plan, options)
    if nodes == 1:
        return ["torchrun", "--standalone", f"--nproc-per-node={per_node}"]
    return [
        "torchrun",
        f"--nnodes={nodes}",
        f"--nproc-per-node={per_node}",
        "--rdzv-backend=c10d",
        '--rdzv-endpoint="${MASTER_ADDR:?address of the first node}:${MASTER_PORT:-29500}"',
        '--rdzv-id="${RDZV_ID:-meshwright}"',
    ]


def launch_script(
    plan: Plan, target: str, options: ExportOptions, flags: list[str], notes: tuple[str, ...]
) -> Artifact:
    """`launch.sh`: run it with the training script and its arguments; `flags` are appended, one a line."""
    head = comment(header(plan, target)) + [f"# note: {' '.join(note.split())}" for note in notes]
    return shell_script(head, environment(plan), [" ".join(torchrun(plan, options)), '"$@"', *flags])


def shell_script(head: list[str], exported: Mapping[str, str], command: list[str]) -> Artifact:
    """`launch.sh` with comment lines, environment and the parts of the command, one a line."""
    lines = ["#!/usr/bin/env bash", *head, "# usage: ./launch.sh train.py [arguments of the script]"]
    lines += ["set -euo pipefail"]
    lines += [f"export {key}={shlex.quote(value)}" for key, value in sorted(exported.items())]
    lines.append("exec " + " \\\n  ".join(command))
    return Artifact(path="launch.sh", media_type="text/x-shellscript", text="\n".join(lines) + "\n")
