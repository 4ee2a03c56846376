"""Slurm: an sbatch script with one task a node, each of which starts that node's processes."""

import shlex

from executor.errors import PlanRefused
from executor.launchers.job import PORT, Job

_PER_NODE = 'exec "$@"'


def render(job: Job) -> dict[str, str]:
    """`job.sbatch` and the plan, for a directory that all nodes share."""
    directory = job.options.directory
    head = {
        "job-name": job.name,
        "nodes": str(job.options.nodes.count),
        "ntasks-per-node": "1",
        **({"gpus-per-node": str(job.gpus)} if job.gpus else {"cpus-per-task": str(job.processes)}),
        **({"time": job.time_limit} if job.time_limit else {}),
        "output": f"{directory}/slurm-%j.out",
    }
    words = job.command(str(directory / "plan.json"), str(directory / "run"))
    several = job.options.nodes.count > 1
    # The first words are expanded on each node, whose number Slurm states there; the rest are passed on as they are.
    inner = f'exec "${{@:1:{len(words)}}}" --node-rank "$SLURM_NODEID" "${{@:{len(words) + 1}}}"'
    start = ["srun --kill-on-bad-exit=1 bash -c", shlex.quote(inner if several else _PER_NODE), "meshwright"]
    rendezvous = [f'--rendezvous "$head:{PORT}"'] if several else []
    lines = [
        "#!/usr/bin/env bash",
        *(f"#SBATCH --{key}={_directive(value)}" for key, value in head.items()),
        "set -euo pipefail",
        *(['head=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)'] if several else []),
        " \\\n  ".join([" ".join(start), shlex.join(words), *rendezvous, shlex.join(job.training)]),
    ]
    return {"job.sbatch": "\n".join(lines) + "\n", "plan.json": job.plan.to_json()}


def _directive(value: str) -> str:
    """A value of an #SBATCH line, which ends with its line and is split at blanks.

    Slurm reads these lines itself, without a shell, and takes quotes around blanks.

    Raises:
        PlanRefused: a quote or a line end.
    """
    if any(ord(character) < 32 for character in value) or '"' in value:
        raise PlanRefused(f"{value!r} cannot stand in an #SBATCH line")
    return f'"{value}"' if " " in value else value
