"""What every batch system renders: the command of one node and what a node must have."""

from dataclasses import dataclass
from typing import Final

from executor.launch import LaunchOptions, Script
from planner.plan import Plan

PORT: Final = 29500
"""torchrun's usual rendezvous port."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """One job."""

    plan: Plan
    script: Script
    options: LaunchOptions
    processes: int
    """On each node."""
    image: str | None = None
    time_limit: str | None = None

    @property
    def name(self) -> str:
        """A name that every batch system takes: lower case, digits and dashes."""
        word = "".join(c if c.isalnum() and c.isascii() else "-" for c in self.plan.envelope.id.lower())
        return f"meshwright-{word[:36]}".rstrip("-")

    @property
    def gpus(self) -> int:
        """GPUs of a node; none for a plan on CPUs."""
        return self.processes if self.plan.pool.device.kind == "gpu" else 0

    def command(self, plan: str, out: str) -> tuple[str, ...]:
        """Words of `meshwright-exec run` on one node, up to where its rank and the rendezvous are added."""
        measuring = self.options.measuring
        return (
            *("meshwright-exec", "run", plan, "--out", out),
            *("--nodes", str(self.options.nodes.count), "--processes", str(self.processes)),
            *("--warmup-steps", str(measuring.warmup_steps), "--timed-steps", str(measuring.timed_steps)),
            *(word for name in self.options.passed for word in ("--pass-env", name)),
            *(() if self.options.memory_cap is None else ("--memory-cap", str(self.options.memory_cap))),
        )

    @property
    def training(self) -> tuple[str, ...]:
        """The script and its arguments, as given."""
        return ("--", str(self.script.path), *self.script.arguments)
