"""A launch through a batch system, rendered as text: each node of the job runs `meshwright-exec run` for its share.

So every node holds the plan against its own hardware, measures and reports, and the batch system only starts processes.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final

from executor.backends.choice import described
from executor.errors import PlanRefused
from executor.launch import Launch, LaunchOptions, Script, configuration_to_run, processes_per_node
from executor.launchers import kubernetes, slurm
from executor.launchers.job import Job
from executor.overrides import as_it_reads
from planner.plan import Plan

RENDERERS: Final[dict[str, tuple[Callable[[Job], dict[str, str]], tuple[str, ...]]]] = {
    "slurm": (slurm.render, ("sbatch", "job.sbatch")),
    "kubernetes": (kubernetes.render_job, ("kubectl", "apply", "-f", "job.yaml")),
    "pytorchjob": (kubernetes.render_pytorchjob, ("kubectl", "apply", "-f", "job.yaml")),
}

_IMAGE: Final = re.compile(
    r"([A-Za-z0-9][A-Za-z0-9.-]*(:[0-9]+)?/)?[a-z0-9]+([._-]+[a-z0-9]+)*(/[a-z0-9]+([._-]+[a-z0-9]+)*)*"
    r"(:\w[\w.-]{0,127})?(@[A-Za-z0-9]+:[0-9a-fA-F]{32,})?",
    re.ASCII,
)
"""Of the OCI distribution specification 1.1, "Pulling manifests": host, path, tag and digest."""
_TIME_LIMIT: Final = re.compile(r"\d+(:\d{1,2}){0,2}|\d+-\d{1,2}(:\d{1,2}){0,2}|UNLIMITED|INFINITE", re.ASCII)
"""Of sbatch(1), --time."""
_SPELLED: Final = {
    "--image": "no container image: HOST/PATH:TAG or HOST/PATH@sha256:DIGEST",
    "--time-limit": "no time of Slurm: M, M:S, H:M:S, D-H, D-H:M or D-H:M:S",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchOptions:
    """What a batch system asks beside the launch."""

    image: str | None = None
    """Container image with meshwright and the training script, for Kubernetes."""
    time_limit: str | None = None
    """Of Slurm, as it spells it."""


def batch_launch(plan: Plan, script: Script, options: LaunchOptions, launcher: str, batch: BatchOptions) -> Launch:
    """What submits the job. The script is the nodes' own file: it is not looked for here.

    Raises:
        PlanRefused: the plan does not match the nodes, or the batch system lacks something or takes no such word.
    """
    plan, notes = as_it_reads(plan)
    for option, value, legal in (("--image", batch.image, _IMAGE), ("--time-limit", batch.time_limit, _TIME_LIMIT)):
        if value is not None and not legal.fullmatch(value):
            raise PlanRefused(f"{option} {value!r} is {_SPELLED[option]}")
    # Where node 0 is, the batch system knows.
    nodes = replace(options.nodes, rendezvous="batch")
    configuration = configuration_to_run(plan)
    render, command = RENDERERS[launcher]
    job = Job(
        plan=plan,
        script=script,
        options=options,
        processes=processes_per_node(configuration, nodes),
        image=batch.image,
        time_limit=batch.time_limit,
    )
    files = render(job)
    return Launch(
        argv=(*command[:-1], str(options.directory / command[-1])),
        environment={},
        added={},
        cwd=options.directory,
        directory=options.directory,
        files=files,
        wrapping=described(configuration),
        notes=notes,
    )
