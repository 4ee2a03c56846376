"""Exporters by name, imported on first use; third parties add theirs by the entry points `meshwright.exporters`."""

from collections.abc import Mapping
from importlib import import_module
from importlib.metadata import entry_points
from typing import Final, cast

from cost_models.errors import UnknownName
from planner.errors import ExportUnsupported
from planner.exporters.base import Artifact, Exporter, ExportOptions
from planner.plan import Plan

EXPORTERS: Final[Mapping[str, str]] = {
    "deepspeed": "planner.exporters.deepspeed:DeepSpeedExporter",
    "megatron": "planner.exporters.megatron:MegatronExporter",
}
"""Target -> `module:class`."""

GROUP: Final = "meshwright.exporters"

__all__ = ["EXPORTERS", "Artifact", "ExportOptions", "Exporter", "exporter", "render", "targets"]


def targets() -> tuple[str, ...]:
    """Every target that can be exported to, ours first."""
    return tuple(dict.fromkeys((*EXPORTERS, *sorted(point.name for point in entry_points(group=GROUP)))))


def exporter(name: str) -> Exporter:
    """The exporter of a target.

    Raises:
        UnknownName: no such target.
    """
    place = EXPORTERS.get(name) or next((point.value for point in entry_points(group=GROUP, name=name)), None)
    if place is None:
        raise UnknownName("export target", name, targets())
    module, _, attribute = place.partition(":")
    return cast(Exporter, getattr(import_module(module), attribute)())


def render(plan: Plan, target: str, options: ExportOptions | None = None) -> tuple[Artifact, ...]:
    """The artifacts of a plan for a target.

    Raises:
        UnknownName: no such target.
        ExportUnsupported: there is nothing to export, or the target cannot say it all.
    """
    options = options or ExportOptions()
    found = exporter(target)
    if plan.configuration is None:
        raise ExportUnsupported(target, (f"the plan is {plan.status} and has no configuration",))
    losses = found.unsupported(plan)
    if losses and not options.allow_lossy:
        raise ExportUnsupported(target, losses)
    return found.export(plan, options)
