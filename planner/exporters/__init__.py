"""Exporters by name, imported on first use; third parties add theirs by the entry points `meshwright.exporters`."""

from collections.abc import Mapping
from importlib import import_module
from importlib.metadata import entry_points
from typing import Final, cast

from cost_models.errors import UnknownName
from planner.edited import check_edited
from planner.errors import ExportUnsupported, NothingToExport, UnknownTarget
from planner.exporters.base import Artifact, Exporter, ExportOptions
from planner.plan import Plan

EXPORTERS: Final[Mapping[str, str]] = {
    "deepspeed": "planner.exporters.deepspeed:DeepSpeedExporter",
    "megatron": "planner.exporters.megatron:MegatronExporter",
    "accelerate": "planner.exporters.accelerate:AccelerateExporter",
}
"""Target -> `module:class`."""

GROUP: Final = "meshwright.exporters"

__all__ = ["EXPORTERS", "Artifact", "ExportOptions", "Exporter", "able", "exporter", "render", "targets"]


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


def able(plan: Plan) -> tuple[str, ...]:
    """The targets that can say all of a plan; a third party's that cannot be loaded is none of them."""
    if plan.configuration is None:
        return ()
    found = []
    for name in targets():
        try:
            losses = exporter(name).unsupported(plan)
        except (ImportError, AttributeError):
            continue
        if not losses:
            found.append(name)
    return tuple(found)


def render(plan: Plan, target: str, options: ExportOptions | None = None) -> tuple[Artifact, ...]:
    """The artifacts of a plan for a target.

    Raises:
        UnknownTarget: no such target.
        NothingToExport: the plan has no configuration.
        BrokenRule: the plan was edited by hand into a configuration that its back end cannot run.
        SeveralPools: its stages live in pools of different devices.
        ExportUnsupported: the target cannot say it all.
    """
    options = options or ExportOptions()
    if target not in targets():
        raise UnknownTarget(target, targets(), able(plan))
    found = exporter(target)
    if plan.configuration is None:
        raise NothingToExport(target, (f"the plan is {plan.status} and has no configuration",))
    if plan.edited:
        check_edited(plan)
    _ = plan.pool  # refuses several
    losses = found.unsupported(plan)
    if losses and not options.allow_lossy:
        raise ExportUnsupported(target, losses, able(plan))
    return found.export(plan, options)
