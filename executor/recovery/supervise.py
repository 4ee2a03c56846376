"""Run a plan, and where it ends badly, go on under the next one."""

import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TextIO

from executor import environment
from executor.checkpoints import newest, steps_of
from executor.files import empty_directory
from executor.launch import LaunchOptions, Script
from executor.overrides import as_it_reads
from executor.recovery.ladder import Step, next_step
from executor.report import RunReport
from executor.run import PreparedRun, execute, prepare_run
from planner.plan import Plan

LOG = "recovery.jsonl"
Execute = Callable[[PreparedRun, TextIO], RunReport]


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """How far recovery goes."""

    attempts: int
    """Runs after the first, at most."""
    checkpoint_every: int
    """Optimizer steps."""
    slowdown: float
    """Times that steps may take longer before it counts as a collapse; 0: never."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """One run and what came of it."""

    plan: Plan
    report: RunReport
    step: Step


def supervise(
    plan: Plan, script: Script, options: LaunchOptions, policy: Policy, output: TextIO, run: Execute = execute
) -> tuple[Attempt, ...]:
    """Every attempt, the last one last; each has a directory `attempt-N` under the run's.

    Raises:
        PlanRefused: the plan cannot be run here, or the directory holds a run or cannot be written.
    """
    root = options.directory
    plan, _ = as_it_reads(plan)  # what is to be said of it, each attempt says
    empty_directory(root)
    cap = options.memory_cap or plan.pool.device.usable_memory_bytes
    attempts: list[Attempt] = []
    while True:
        here = replace(
            options, directory=root / f"attempt-{len(attempts)}", recovery=_environment(root / "checkpoints", policy)
        )
        report = run(prepare_run(plan, script, here), output)
        again = bool(attempts) and attempts[-1].report.outcome == report.outcome and report.steps_done == 0
        step = next_step(plan, report, cap=cap, again=again)
        if step.action not in ("done", "give_up") and len(attempts) >= policy.attempts:
            step = Step(action="give_up", reason=f"{step.reason}; but {policy.attempts} were allowed, and are used up")
        attempts.append(Attempt(plan=plan, report=report, step=step))
        found = _next_plan(plan, step)
        _log(root, attempts, found, output)
        if found is None or found.status == "infeasible":
            return tuple(attempts)
        plan = found


def _environment(checkpoints: Path, policy: Policy) -> dict[str, str]:
    return {
        environment.CHECKPOINTS: str(checkpoints),
        environment.CHECKPOINT_EVERY: str(policy.checkpoint_every),
        environment.SLOWDOWN: str(policy.slowdown),
    }


def _next_plan(plan: Plan, step: Step) -> Plan | None:
    """The plan to go on with; an infeasible one where nothing smaller fits."""
    if step.action in ("done", "give_up"):
        return None
    if step.action == "same_plan":
        return plan
    from planner.replanning import replan

    return replan(plan, max_memory_bytes=step.max_memory_bytes, precision=step.precision)


def _log(root: Path, attempts: list[Attempt], found: Plan | None, output: TextIO) -> None:
    """One line for people, one for programs."""
    last = attempts[-1]
    checkpoint = newest(root / "checkpoints")
    line = {
        "at": datetime.now(tz=UTC).isoformat(),
        "attempt": len(attempts) - 1,
        "plan": last.plan.envelope.id,
        "outcome": last.report.outcome,
        "action": last.step.action,
        "reason": last.step.reason,
        "next_plan": found.envelope.id if found else None,
        "next_status": found.status if found else None,
        "continues_from_step": steps_of(checkpoint) if checkpoint and found else None,
    }
    with (root / LOG).open("a", encoding="utf-8") as file:
        file.write(json.dumps(line) + "\n")
    nothing = "; nothing fits" if found is not None and found.status == "infeasible" else ""
    output.write(f"recovery: {last.step.action}: {last.step.reason}{nothing}\n")
    if found is not None and not nothing and checkpoint is None:
        output.write(
            "recovery: there is no checkpoint, so the script starts at step 0 again: it keeps one by "
            "executor.checkpoints.Keeper, every --checkpoint-every steps\n"
        )
    output.flush()
