"""`meshwright models` and `meshwright devices`: what the catalogue knows by name."""

from typing import Annotated, Any

import typer

from planner.cli import asked, output

Filter = Annotated[str, typer.Argument(metavar="[TEXT]", help="Only names that contain this.", show_default=False)]


def models_command(text: Filter = "", as_json: asked.Json = False) -> None:
    """List the model presets."""
    from cost_models import catalog
    from cost_models.parameters import total_parameters
    from planner.cli.render.figures import count

    specs = [catalog.model(name) for name in catalog.models() if text.lower() in name]
    if as_json:
        output.print_json([{"name": s.name, "parameters": total_parameters(s)} | _shape(s) for s in specs])
        return
    if not specs:
        output.say(f"no model preset's name contains {text!r}")
        return
    rows = [
        (s.name, count(total_parameters(s)), *("-" if v is None else str(v) for v in _shape(s).values())) for s in specs
    ]
    header = ("name", "parameters", *(key.replace("_", " ") for key in _shape(specs[0])))
    _table("Model presets", header, rows)


def _shape(spec: Any) -> dict[str, Any]:
    return {
        "model_type": spec.model_type,
        "num_hidden_layers": spec.num_hidden_layers,
        "hidden_size": spec.hidden_size,
        "num_attention_heads": spec.num_attention_heads,
        "num_key_value_heads": spec.num_key_value_heads,
        "num_experts": spec.moe.num_experts if spec.moe is not None else None,
        "vocab_size": spec.vocab_size,
    }


def devices_command(text: Filter = "", as_json: asked.Json = False) -> None:
    """List the devices."""
    from cost_models import catalog

    specs = [spec for spec in catalog.devices() if text.lower() in spec.name]
    if as_json:
        output.print_json([spec.model_dump(mode="json") for spec in specs])
        return
    if not specs:
        output.say(f"no device's name contains {text!r}")
        return
    rows: list[tuple[str, ...]] = [
        (
            spec.name,
            f"{spec.usable_memory_bytes / 2**30:.2f}",
            spec.usable_memory_source,
            f"{spec.memory_bandwidth / 1e9:.0f}",
            " ".join(f"{dtype}:{_teraflops(rate)}" for dtype, rate in spec.peak_flops.items()),
            f"{spec.link} {spec.link_bandwidth / 1e9:.0f}",
            str(spec.gpus_per_node),
        )
        for spec in specs
    ]
    header = ("name", "usable GiB", "source", "memory GB/s", "peak TFLOP/s", "link GB/s", "per node")
    _table("Devices", header, rows)


def _teraflops(rate: float) -> str:
    """Whole ones; of less than one two digits, so that a processor's rate is not 0."""
    return f"{rate / 1e12:.0f}" if rate >= 1e12 else f"{rate / 1e12:.2g}"


def _table(title: str, header: tuple[str, ...], rows: list[tuple[str, ...]]) -> None:
    from rich.table import Table

    table = Table(title=title, title_justify="left")
    for index, name in enumerate(header):
        table.add_column(name, justify="left" if index == 0 else "right", no_wrap=index == 0)
    for row in rows:
        table.add_row(*row)
    output.plain_console().print(table)
