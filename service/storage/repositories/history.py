"""Tags of plans, and the plans that a job has had."""

from collections.abc import Sequence

from sqlalchemy import delete, func, select

from service.storage.repositories.base import ALWAYS, Created, Page, Repository
from service.storage.tables import Job, JobVersion, Tag


class History(Repository):
    """The notebook."""

    def tag(self, project_id: str, plan_id: str, name: str) -> None:
        """Put a word on a plan; one that is there stays."""
        if self._session.get(Tag, (plan_id, name)) is None:
            self._session.add(Tag(project_id=project_id, plan_id=plan_id, name=name))
            self._session.flush()

    def untag(self, project_id: str, plan_id: str, name: str) -> None:
        """Take a word off a plan."""
        own = (Tag.project_id == project_id, Tag.plan_id == plan_id, Tag.name == name)
        self._session.execute(delete(Tag).where(*own))

    def tags(self, project_id: str, plan_ids: Sequence[str]) -> dict[str, tuple[str, ...]]:
        """The words on some plans."""
        own = (Tag.project_id == project_id, Tag.plan_id.in_(plan_ids))
        found: dict[str, tuple[str, ...]] = {}
        for tag in self._session.scalars(select(Tag).where(*own).order_by(Tag.name)):
            found[tag.plan_id] = (*found.get(tag.plan_id, ()), tag.name)
        return found

    def job(self, project_id: str, name: str) -> Job | None:
        """The job of a name."""
        return self._session.scalar(select(Job).where(Job.project_id == project_id, Job.name == name))

    def jobs(
        self, project_id: str, *, text: str = "", created: Created = ALWAYS, after: str | None, size: int
    ) -> Page[Job]:
        """Jobs whose name contains `text`, newest first."""
        query = created.of(select(Job).where(Job.project_id == project_id), Job.created_at)
        if text:
            query = query.where(Job.name.contains(text.lower(), autoescape=True))
        return self._page(query, Job.id, after, size)

    def add_job(self, job: Job) -> None:
        """Begin a job."""
        self._session.add(job)
        self._session.flush()

    def versions(self, job: Job) -> Sequence[JobVersion]:
        """What a job followed, oldest first."""
        own = JobVersion.job_id == job.id
        return self._session.scalars(select(JobVersion).where(own).order_by(JobVersion.number)).all()

    def current(self, job_ids: Sequence[str]) -> dict[str, JobVersion]:
        """The versions in force, by job."""
        last = (
            select(JobVersion.job_id, func.max(JobVersion.number).label("number"))
            .where(JobVersion.job_id.in_(job_ids))
            .group_by(JobVersion.job_id)
            .subquery()
        )
        query = select(JobVersion).join(
            last, (JobVersion.job_id == last.c.job_id) & (JobVersion.number == last.c.number)
        )
        return {version.job_id: version for version in self._session.scalars(query)}

    def add_version(self, version: JobVersion) -> None:
        """Let a job follow a plan from now on. Two at the same time get different numbers, one after the other."""
        self._session.add(version)
        self._session.flush()
