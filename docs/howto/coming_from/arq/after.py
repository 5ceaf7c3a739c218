"""Letters of a shop. The worker: limpyd-jobs-worker --queues=mails --concurrency=100."""

from limpyd_jobs import Retry, job

refused = set()


@job(queue="mails", retry=Retry(times=4, delay=1), keep_result=3600)
async def send_mail(to: str, subject: str = "Welcome") -> str:
    if to == "eve" and to not in refused:
        refused.add(to)
        raise OSError("the server is busy")
    print(f"{subject} to {to}", flush=True)
    return f"sent to {to}"


async def checkout():
    """What the web application calls."""
    await send_mail.aadd("eve", subject="Sorry")
    await send_mail.configure(identifier="reminder-bob", delayed_for=3600).aadd("bob")
    return await send_mail.aadd("ann", subject="Thank you")
