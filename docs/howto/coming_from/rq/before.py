"""Letters of a shop, with RQ. The worker: rq worker mails."""

import os
from datetime import timedelta

from redis import Redis
from rq import Queue, Retry

mails = Queue("mails", connection=Redis.from_url(os.environ["REDIS_URL"]))


def send_mail(to, subject="Welcome"):
    print(f"{subject} to {to}", flush=True)
    return f"sent to {to}"


def checkout():
    """What the web application calls."""
    retry = Retry(max=3, interval=[10, 60, 600])
    job = mails.enqueue(send_mail, "ann", subject="Thank you", retry=retry)
    mails.enqueue_in(timedelta(hours=1), send_mail, "bob", job_id="reminder-bob")
    return job
