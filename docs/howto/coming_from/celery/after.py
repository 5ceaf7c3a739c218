"""Letters of a shop. The worker: limpyd-jobs-worker --queues=mails."""

from limpyd_jobs import Exponential, Retry, job

refused = set()


@job(queue="mails", retry=Retry(times=3, delay=Exponential(base=1), only_on=OSError), keep_result=True)
def send_mail(to: str, subject: str = "Welcome") -> str:
    if to == "eve" and to not in refused:
        refused.add(to)
        raise OSError("the server is busy")
    print(f"{subject} to {to}", flush=True)
    return f"sent to {to}"


def checkout():
    """What the web application calls."""
    send_mail.add("eve", subject="Sorry")
    send_mail.configure(delayed_for=3600).add("bob")
    return send_mail.add("ann", subject="Thank you")
