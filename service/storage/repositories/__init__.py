"""All queries, one module per resource; a unit of work holds one of each over the same transaction."""

from sqlalchemy.orm import Session

from service.storage.repositories.access import ApiKeys, Audit, Projects
from service.storage.repositories.calibrations import Calibrations
from service.storage.repositories.deliveries import Deliveries
from service.storage.repositories.history import History
from service.storage.repositories.keys import Keys
from service.storage.repositories.measurements import Measurements
from service.storage.repositories.plans import Plans
from service.storage.repositories.registrations import Registrations
from service.storage.repositories.solves import Solves


class Repositories:
    """What a unit of work may ask and change. Committed by `Database`, nowhere else."""

    def __init__(self, session: Session) -> None:
        """Over one open transaction."""
        self.session = session
        self.api_keys = ApiKeys(session)
        self.audit = Audit(session)
        self.calibrations = Calibrations(session)
        self.deliveries = Deliveries(session)
        self.history = History(session)
        self.keys = Keys(session)
        self.measurements = Measurements(session)
        self.plans = Plans(session)
        self.projects = Projects(session)
        self.registrations = Registrations(session)
        self.solves = Solves(session)


__all__ = ["Repositories"]
