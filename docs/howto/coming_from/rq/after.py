"""Letters of a shop. The worker: limpyd-jobs-worker --queues=mails."""

from limpyd_jobs import Retry, job


@job(queue="mails", retry=Retry(times=3, delay=[10, 60, 600]), keep_result=True)
def send_mail(to: str, subject: str = "Welcome") -> str:
    print(f"{subject} to {to}", flush=True)
    return f"sent to {to}"


def checkout():
    """What the web application calls."""
    added = send_mail.add("ann", subject="Thank you")
    send_mail.configure(identifier="reminder-bob", delayed_for=3600).add("bob")
    return added
