"""What stands behind a calibration that was made from measurements."""

from pydantic import Field

from cost_models.specs.base import Spec
from planner.fitting.drift import Drift
from planner.fitting.learning import FamilyTold


class UsedMeasurement(Spec):
    """A measurement that is evidence."""

    measurement_id: str
    sha256: str = Field(description="of its canonical JSON")


class AsideMeasurement(Spec):
    """A measurement, or one figure of it, that no constant follows."""

    measurement_id: str
    quantity: str
    why: str


class Evidence(Spec):
    """What stands behind a calibration that was made from measurements."""

    automatic: bool = Field(description="nobody asked for it: enough had come in")
    prior: str = Field(description="id of the version that it corrects")
    used: tuple[UsedMeasurement, ...]
    set_aside: tuple[AsideMeasurement, ...]
    families: tuple[FamilyTold, ...] = Field(description="by device family, what moved, or why nothing did")
    raised: tuple[str, ...] = Field(description="factors of memory that runs which ran out of it have raised")
    drift: tuple[Drift, ...] = Field(description="the last runs against this calibration, when it was made")
