"""The queues, jobs and errors of the application: abstract bases, a metaclass, and fields of many types."""

from limpyd import fields
from limpyd.contrib.indexes import SimpleDateTimeIndex
from limpyd.model import MetaRedisModel

from limpyd_jobs import STATUSES, Error, Job, Queue

CLASSES = {}


class RegisteringMeta(MetaRedisModel):
    """Keeps each concrete job class by the queue it uses."""

    def __new__(cls, name, base, attrs):
        new_class = super().__new__(cls, name, base, attrs)
        if not new_class.abstract:
            CLASSES[new_class.queue_name] = new_class
        return new_class


class AppQueue(Queue):
    """Queues of one name are served in the order of the names, whatever the priorities say between names."""

    namespace = "app"

    @classmethod
    def get_all_by_priority(cls, names):
        queues = []
        for name in cls._get_iterable_for_names(names):
            queues += sorted(cls.get_all([name]), key=lambda queue: -int(queue.priority.hget()))
        return queues


class AppError(Error):
    """An error that knows more, and finds its job."""

    namespace = "app"
    repository = fields.InstanceHashField(indexable=True)
    headers = fields.HashField()
    date_time = fields.InstanceHashField(indexable=True, indexes=[SimpleDateTimeIndex])

    def get_job(self):
        return CLASSES[self.queue_name.hget()].get(self.job_pk.hget())


class BaseJob(Job, metaclass=RegisteringMeta):
    """The base of all jobs of the application."""

    abstract = True
    namespace = "app"
    queue_model = AppQueue
    gh_args = fields.HashField()
    clone_delay = 60

    @property
    def label(self):
        if not hasattr(self, "_label"):
            self._label = f"{type(self).__name__} of {self.identifier.hget()}"
        return self._label

    @property
    def gh(self):
        return getattr(self, "_gh", None)

    @gh.setter
    def gh(self, value):
        self._gh = value

    @classmethod
    def add_job(cls, *args, **kwargs):
        if "gh" in kwargs:
            kwargs["gh_args"] = {"token": kwargs.pop("gh")}
        return super().add_job(*args, **kwargs)


class RepositoryJob(BaseJob):
    """The base of the jobs about a repository, which may be given as an object."""

    abstract = True
    force = fields.InstanceHashField(indexable=True)
    steps = fields.ListField()

    @classmethod
    def add_job(cls, identifier, *args, **kwargs):
        if isinstance(identifier, Repository):
            identifier = identifier.pk
        return super().add_job(identifier, *args, **kwargs)


class Repository:
    """Something in another database."""

    def __init__(self, pk):
        self.pk = pk


class Fetch(RepositoryJob):
    """Runs."""

    queue_name = "fetch"

    def run(self, queue):
        self.gh = self.gh_args.hget("token")
        return f"{self.label} with {self.gh}"


class Repeat(RepositoryJob):
    """Adds a copy of itself for later when it succeeds."""

    queue_name = "repeat"

    def run(self, queue):
        return True

    def on_success(self, queue, result):
        self.clone(delayed_for=self.clone_delay)

    def clone(self, **options):
        return type(self).add_job(
            self.identifier.hget(),
            priority=self.priority.hget(),
            gh_args=self.gh_args.hgetall(),
            steps=self.steps.lmembers(),
            **options,
        )


class RateLimited(Exception):
    """The remote side wants us to come back later."""


class Limited(RepositoryJob):
    """Meets a limit at its first run."""

    queue_name = "limited"

    def run(self, queue):
        if not hasattr(type(self), "met"):
            type(self).met = True
            raise RateLimited
        return "done"


class Broken(RepositoryJob):
    """Always fails."""

    queue_name = "broken"

    def run(self, queue):
        raise ConnectionError("the remote side is down")


class Canceling(RepositoryJob):
    """Gives up by itself."""

    queue_name = "canceling"

    def run(self, queue):
        self.status.hset(STATUSES.CANCELED)
