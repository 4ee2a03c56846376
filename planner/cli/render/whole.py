"""A whole plan, an estimate, a comparison, an artifact."""

from rich.console import Console
from rich.markup import escape

from planner.cli.render.figures import amount, gib, percent, seconds, words
from planner.cli.render.infeasible import infeasible_view
from planner.cli.render.ledgers import device_table, memory_tables, time_table, titled
from planner.explain import short_name
from planner.exporters.base import Artifact
from planner.neighbours import recompute_text
from planner.plan import Optimality, Plan, Prediction
from planner.why_not import against

LEAST_SHOWN = 1e-4
"""Probabilities below this are not told apart."""


def plan_view(console: Console, plan: Plan) -> None:
    """The answer from the top: what, how sure, why, why not the others."""
    if plan.configuration is None or plan.prediction is None:
        infeasible_view(console, plan)
        _foot(console, plan)
        return
    _head(console, plan, plan.prediction)
    _configuration(console, plan)
    _ledgers(console, plan.prediction)
    if plan.optimality is not None:
        _proof(console, plan.status, plan.optimality)
    _explanations(console, plan)
    _alternatives(console, plan)
    _foot(console, plan)


def estimate_view(console: Console, plan: Plan) -> None:
    """The price of one configuration."""
    assert plan.prediction is not None
    _head(console, plan, plan.prediction)
    _configuration(console, plan)
    _ledgers(console, plan.prediction)
    _explanations(console, plan)
    _foot(console, plan)


def _head(console: Console, plan: Plan, predicted: Prediction) -> None:
    assert plan.configuration is not None
    time, memory = predicted.time, predicted.memory
    console.print(f"[bold]{words(memory.verdict)}[/bold]  {escape(short_name(plan.configuration))}", soft_wrap=True)
    low, high = time.interval_seconds["80"]
    console.print(
        f"{seconds(time.step_seconds)} a step (80 % between {seconds(low)} and {seconds(high)}), "
        f"{time.tokens_per_second_per_gpu:,.0f} tokens/s/GPU, {time.samples_per_second:.3g} samples/s, "
        f"MFU {percent(time.mfu)}, communication {percent(time.communication_fraction)}",
        soft_wrap=True,
    )
    console.print(
        f"{gib(memory.conservative_bytes)} of {gib(memory.usable_bytes)} GiB at the asked risk; "
        f"probability of running out of memory {_probability(memory.oom_probability)}",
        soft_wrap=True,
    )
    if memory.host_bytes > memory.host_usable_bytes:
        console.print(
            f"[bold]it is host memory that does not fit[/bold]: {gib(memory.host_bytes)} of "
            f"{gib(memory.host_usable_bytes)} GiB usable on a node",
            soft_wrap=True,
        )
    console.print()


def _probability(value: float) -> str:
    return percent(value, 2) if value >= LEAST_SHOWN else f"below {percent(LEAST_SHOWN, 2)}"


def _configuration(console: Console, plan: Plan) -> None:
    assert plan.configuration is not None
    c = plan.configuration
    table = titled("Configuration", "decision", "value", header=False)
    table.columns[1].justify = "left"
    table.add_row("backend", escape(f"{c.backend.name} {c.backend.release_range}"))
    table.add_row("GPUs", f"{c.world_size}")
    skipped = {"backend", "stages", "lora"}
    for name, value in c.model_dump(mode="json").items():
        if name not in skipped:
            table.add_row(words(name), ("yes" if value else "no") if isinstance(value, bool) else escape(str(value)))
    table.add_row("global batch size", str(c.global_batch_size))
    table.add_row("recompute", recompute_text(c))
    if c.lora is not None:
        table.add_row("lora", escape(f"rank {c.lora.rank}, {c.lora.target_modules}"))
    console.print(table)
    if len(c.stages) > 1 or any(stage.optimizer_layers_offloaded for stage in c.stages):
        _stages(console, plan)
    console.print()


def _stages(console: Console, plan: Plan) -> None:
    assert plan.configuration is not None
    pools = plan.request.cluster.pools
    several = len(pools) > 1
    columns = ("layers", "recompute full", "selective", "none", "interval", "optimizer layers on host")
    table = titled("Stages", "stage", *(["pool"] if several else []), *columns)
    for index, stage in enumerate(plan.configuration.stages):
        counts = stage.recompute
        held = (f"{stage.pool} {pools[stage.pool].device.name}",) if several else ()
        row = (index, *held, stage.layers, counts.full, counts.selective, counts.none, counts.interval)
        table.add_row(*(str(value) for value in row), str(stage.optimizer_layers_offloaded))
    console.print(table)


def _ledgers(console: Console, predicted: Prediction) -> None:
    for table in memory_tables(predicted.memory):
        console.print(table)
    console.print(device_table(predicted.memory))
    console.print(time_table(predicted.time))
    console.print()


def _proof(console: Console, status: str, proof: Optimality) -> None:
    unit = escape(str(proof.certificate.get("unit", "")))
    shown = "proven" if proof.proven else "not proven"
    console.print(
        f"[bold]Proof[/bold]  {status}, {shown}: {' then '.join(proof.objective)} "
        f"{amount(proof.value, unit)}, bound {amount(proof.bound, unit)}, gap {percent(proof.gap, 3)}",
        soft_wrap=True,
    )
    counted = ", ".join(f"{count:,} {escape(words(name))}" for name, count in proof.candidates.items())
    console.print(f"candidates: {counted}", soft_wrap=True)
    for rule in proof.certificate.get("dropped", [])[:8]:
        console.print(
            f"  {rule['candidates']:,} dropped: {escape(rule['backend'])}, {escape(rule['reason'])}", soft_wrap=True
        )
    console.print()


def _explanations(console: Console, plan: Plan) -> None:
    choices = [e for e in plan.explanation if e.kind != "runner_up"]
    if choices:
        console.print("[bold]Why[/bold]")
        for entry in choices:
            console.print(f"- {escape(entry.text)}", soft_wrap=True)
        console.print()


def _alternatives(console: Console, plan: Plan) -> None:
    rivals = [entry for entry in plan.explanation if entry.kind == "runner_up"]
    if not rivals:
        return
    table = titled("Other ways to split the job, and why they lost", "configuration", "step", "GiB", "why")
    table.columns[3].justify = "left"
    for entry, rival in zip(rivals, plan.alternatives, strict=True):
        why = entry.text + (" (a tie within what predictions can rank)" if rival.within_noise else "")
        table.add_row(escape(entry.subject), seconds(rival.step_seconds), gib(rival.conservative_bytes), escape(why))
    console.print(table)
    console.print()


def _foot(console: Console, plan: Plan) -> None:
    if plan.assumptions:
        console.print("[bold]Assumed, as the request left it open[/bold]")
        for item in plan.assumptions:
            size = item.key.endswith("_memory") and isinstance(item.value, int)
            value = f"{gib(item.value)} GiB" if size else str(item.value)
            console.print(f"- {escape(item.key)} = {escape(value)} ({escape(item.from_ or '')})", soft_wrap=True)
            if item.scenarios and item.spread:
                cases = ", ".join(
                    f"{escape(str(case['value']))} {gib(case['device_bytes'])}" for case in item.scenarios
                )
                console.print(f"  device memory by what it may be: {cases}", soft_wrap=True)
        console.print()
    for text in plan.warnings:
        console.print(f"[bold]warning:[/bold] {escape(text)}", soft_wrap=True)
    made = plan.provenance
    console.print(
        f"meshwright {escape(made.meshwright)}, calibration {escape(made.calibration)}, {words(made.class_)}, "
        f"request {escape(made.request_hash[:16])}, {plan.envelope.solve_seconds:.2f} s",
        soft_wrap=True,
    )


def why_not_view(console: Console, choice: str, plan: Plan, rival: Plan | str) -> None:
    """What a choice would cost, term by term, or what forbids it."""
    console.print(f"[bold]Why not {escape(choice)}?[/bold]")
    if isinstance(rival, str):
        console.print(f"  it is forbidden: {escape(rival)}", soft_wrap=True)
        console.print()
        return
    if rival.prediction is None or rival.configuration is None or plan.prediction is None:
        console.print("  with it there is no plan" if rival.configuration is None else "  only with it there is a plan")
        infeasible_view(console, rival if rival.configuration is None else plan)
        return
    slower = rival.prediction.time.step_seconds / plan.prediction.time.step_seconds - 1
    memory = rival.prediction.memory.conservative_bytes - plan.prediction.memory.conservative_bytes
    console.print(
        f"  the best with it is {escape(short_name(rival.configuration))}: "
        f"step {slower:+.1%}, memory {memory / 2**30:+.2f} GiB",
        soft_wrap=True,
    )
    found = against(choice, plan, rival)
    for name, terms in (("time", _seconds(found.seconds)), ("memory at the fullest instant", _sizes(found.bytes))):
        if terms:
            console.print(f"  {name}: {escape(', '.join(terms))}", soft_wrap=True)
    console.print()


def _seconds(terms: dict[str, float] | None) -> list[str]:
    return [f"{words(name)} {'+' if value > 0 else '-'}{seconds(abs(value))}" for name, value in (terms or {}).items()]


def _sizes(terms: dict[str, int] | None) -> list[str]:
    return [f"{words(name)} {value / 2**30:+.2f} GiB" for name, value in (terms or {}).items()]


def artifact_text(artifact: Artifact) -> str:
    """An artifact under its name."""
    return f"==> {artifact.path} <==\n{artifact.text}\n"
