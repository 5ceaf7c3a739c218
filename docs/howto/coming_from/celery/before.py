"""Letters of a shop, with Celery. The worker: celery -A before worker --queues=mails."""

import os

from celery import Celery

app = Celery("before", broker=os.environ["REDIS_URL"], backend=os.environ["REDIS_URL"])


@app.task(bind=True, name="send_mail", autoretry_for=(OSError,), retry_backoff=True, max_retries=3)
def send_mail(self, to, subject="Welcome"):
    if to == "eve" and self.request.retries == 0:
        raise OSError("the server is busy")
    print(f"{subject} to {to}", flush=True)
    return f"sent to {to}"


def checkout():
    """What the web application calls."""
    send_mail.apply_async(("eve",), {"subject": "Sorry"}, queue="mails")
    send_mail.apply_async(("bob",), countdown=3600, queue="mails")
    return send_mail.apply_async(("ann",), {"subject": "Thank you"}, queue="mails")
