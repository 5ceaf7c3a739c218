"""Tasks, among them those of the tests of Django itself."""

import contextlib

from bookshop.models import Book
from limpyd_jobs.contrib.django.tasks import task

ran: list[object] = []


@task()
def noop_task(*args, **kwargs):
    return None


@task
async def noop_task_async(*args, **kwargs):
    return None


@task
def calculate_meaning_of_life():
    return 42


@task
def failing_task_value_error():
    raise ValueError("This Task failed due to ValueError")


@task
def failing_task_system_exit():
    raise SystemExit("This Task failed due to SystemExit")


@task
def failing_task_keyboard_interrupt():
    raise KeyboardInterrupt("This Task failed due to KeyboardInterrupt")


@task
def complex_exception():
    raise ValueError(ValueError("This task failed"))


@task
def complex_return_value():
    return lambda: True


@task(takes_context=True)
def get_task_id(context):
    return context.task_result.id


@task(takes_context=True)
def check_context(context, attempt):
    assert context.attempt == attempt
    assert context.task_result.attempts == attempt


# Ours


class NoPaper(Exception):
    pass


@task(takes_context=True, max_attempts=3, backoff=0)
def print_invoice(context, number):
    ran.append((number, context.attempt))
    if context.attempt < 3:
        raise NoPaper(f"none for {number}\nbuiltins.KeyError: not this one")
    return {"printed": number}


@task(unique=True)
def restock(title):
    ran.append(title)
    return len(ran)


@task(keep_result=False)
def secret():
    return "secret"


@task(enqueue_on_commit=False)
def at_once():
    ran.append("at once")


@task
def order(title):
    with contextlib.suppress(Book.DoesNotExist):
        ran.append(Book.objects.get(title=title).title)


@task
def order_two():
    ran.append("first")
    noop_task.enqueue()
    ran.append("second")


def not_a_task():
    ran.append("never")


renamed = noop_task
