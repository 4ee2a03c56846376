"""The calibrations that answers are made with: this installation's own, and the versions that projects have added."""

from collections import OrderedDict
from dataclasses import dataclass
from typing import Final

from cost_models.calibration import Calibration
from planner import calibrations
from planner.identity import calibration_hash
from planner.version import __version__
from service.identifiers import new_id
from service.storage.repositories import Repositories
from service.storage.tables import CalibrationVersion

_REMEMBERED: Final = 32


@dataclass(frozen=True, slots=True)
class Constants:
    """A calibration with the id and the hash under which it is stored."""

    id: str
    sha256: str
    calibration: Calibration


class CalibrationShelf:
    """Which calibration a project's answers are made with. Versions never change, so that they are read once."""

    def __init__(self) -> None:
        """Nothing is read yet."""
        self._own: Constants | None = None
        self._read: OrderedDict[str, Constants] = OrderedDict()

    def register_own(self, work: Repositories) -> None:
        """Store what this process was started with, unless a process of equal constants has."""
        calibration = calibrations.current()
        sha256 = calibration_hash(calibration)
        found = work.calibrations.shipped(sha256)
        if found is None:
            found = new_id()
            work.calibrations.add(
                CalibrationVersion(
                    id=found,
                    project_id=None,
                    version=calibration.version,
                    content_sha256=sha256,
                    author=f"meshwright {__version__}",
                    reason="what the service was started with",
                    data=dict(calibration.data),
                    content=calibration.model_dump_json(),
                )
            )
        self._own = Constants(found, sha256, calibration)

    def current(self, work: Repositories, project_id: str) -> Constants:
        """The version that the project has activated last, or else this installation's own."""
        chosen = work.calibrations.in_force(project_id).calibration_id
        return self.installed(work) if chosen is None else self.get(work, project_id, chosen)

    def get(self, work: Repositories, project_id: str, calibration_id: str) -> Constants:
        """The version of an id that the project's rows name."""
        if self._own is not None and self._own.id == calibration_id:
            return self._own
        if calibration_id not in self._read:
            row = work.calibrations.get(project_id, calibration_id)
            assert row is not None, "rows name calibrations of their own project"
            found = Constants(row.id, row.content_sha256, Calibration.model_validate_json(row.content))
            self._read[calibration_id] = found
            while len(self._read) > _REMEMBERED:
                self._read.popitem(last=False)
            return found
        return self._read[calibration_id]

    def installed(self, work: Repositories) -> Constants:
        """What this process was started with."""
        if self._own is None:
            self.register_own(work)
        assert self._own is not None
        return self._own
