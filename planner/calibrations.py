"""Which calibration answers: the shipped one, or the file that the settings name."""

from functools import cache
from pathlib import Path

from cost_models import catalog
from cost_models.calibration import Calibration
from cost_models.errors import SpecError
from planner.settings import settings


def current() -> Calibration:
    """The calibration of this process (`MESHWRIGHT_CALIBRATION`, else the shipped one).

    Raises:
        SpecError: the file cannot be read or is no calibration.
    """
    file = settings().calibration
    return catalog.calibration() if file is None else read(file)


@cache
def read(file: Path) -> Calibration:
    """A calibration from a YAML file.

    Raises:
        SpecError: the file cannot be read, is no calibration, or states what no machine has.
    """
    try:
        found = Calibration.read(catalog.read_yaml(file))
        catalog.check_calibration(found)
    except (OSError, UnicodeDecodeError) as error:
        raise SpecError(f"calibration {file}: {getattr(error, 'strerror', None) or error}") from error
    except SpecError as error:
        raise SpecError(f"calibration {file}: {error}") from error
    return found
