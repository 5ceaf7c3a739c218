"""Jobs that are found because of the name of this module."""

from django.db import connection
from django.utils import timezone, translation

from bookshop.models import Book, Edition
from limpyd_jobs import Argument, Job, Queue


class Sell(Job):
    """Sells a book."""

    namespace = "bookshop"
    queue_name = "sales"
    keep_result = True
    book = Argument(Book)
    others = Argument(list[Book], default=[])

    def run(self, queue: Queue) -> list[str]:
        return [book.title for book in [self.arguments.book, *self.arguments.others]]


class Reprint(Job):
    """Prints an edition once more: its primary key has two fields."""

    namespace = "bookshop"
    queue_name = "sales"
    edition = Argument(Edition)


class Stock(Job):
    """Makes a book, and tells what was around the job."""

    namespace = "bookshop"
    queue_name = "stock"
    title = Argument()

    def run(self, queue: Queue) -> dict[str, object]:
        queries = len(connection.queries)
        Book.objects.create(title=self.arguments.title)
        found = {
            "queries": queries,
            "language": translation.get_language(),
            "zone": timezone.get_current_timezone_name(),
        }
        translation.activate("de")
        timezone.activate("Asia/Tokyo")
        return found
