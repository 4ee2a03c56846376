"""Errors that the planner raises on purpose.

    MeshwrightError                    (cost_models)
    ├─ SpecError
    │  ├─ UnknownTarget                (an UnknownName) no exporter of that name
    │  ├─ RequestUnreadable            the request is no YAML or JSON mapping, or is too large or too clever
    │  └─ DatasetUnreadable            a file of measurements is missing, no text, or of another header
    └─ PlannerError
       ├─ SeveralPools                 the plan spans pools of different devices
       └─ ExportUnsupported            the target cannot express this plan
          └─ NothingToExport           the plan has no configuration

Infeasible is a result, not an error.
"""

from collections.abc import Mapping

from cost_models.errors import MeshwrightError, SpecError, UnknownName


class RequestUnreadable(SpecError):
    """The text of a request cannot be read as one plain mapping."""


class DatasetUnreadable(SpecError):
    """A file of measurements cannot be read; the message names the file and, where there is one, line and column."""


class PlannerError(MeshwrightError):
    """No plan and no artifact, for a reason that is not the input's form."""


class ExportUnsupported(PlannerError):
    """The target cannot express this plan; `losses` lists what it cannot say, `able` the targets that can say all."""

    exit_code = 2

    def __init__(self, target: str, losses: tuple[str, ...], able: tuple[str, ...] = ()) -> None:
        """Name the `target`, each part of the plan that it would lose, and where it would lose nothing."""
        self.target, self.losses, self.able = target, losses, able
        instead = f"; use --to {' or --to '.join(able)}" if able else ""
        super().__init__(f"{target} cannot express this plan: {'; '.join(losses)}{instead}")


class SeveralPools(PlannerError):
    """The plan's stages live in pools of different devices, which no launcher here starts as one job."""

    exit_code = 2

    def __init__(self, pools: Mapping[int, str]) -> None:
        """Name the devices of each pool in use."""
        named = " and ".join(f"pool {pool} ({device})" for pool, device in pools.items())
        super().__init__(
            f"the stages of this plan live in {named}: every exporter and `meshwright-exec run` start equal nodes; "
            "launch each pool's stages by hand, or plan for one of the pools"
        )


class NothingToExport(ExportUnsupported):
    """The plan has no configuration: nothing fits."""

    exit_code = 3


class UnknownTarget(UnknownName):
    """No exporter of that name; the message lists those there are, and which of them can express this plan."""

    def __init__(self, name: str, known: tuple[str, ...], able: tuple[str, ...]) -> None:
        """Say the `known` targets, and those `able` to say all of the plan."""
        super().__init__("export target", name, known)
        text = str(self)
        if "; known:" not in text:
            text += f" known: {', '.join(known)}"
        self.args = (f"{text}; this plan can go to {', '.join(able) or 'none of them'}",)
