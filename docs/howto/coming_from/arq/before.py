"""Letters of a shop, with arq. The worker: arq before.WorkerSettings."""

import os

from arq import Retry, create_pool
from arq.connections import RedisSettings

redis_settings = RedisSettings.from_dsn(os.environ["REDIS_URL"])


async def send_mail(ctx, to, subject="Welcome"):
    if to == "eve" and ctx["job_try"] == 1:
        raise Retry(defer=1)
    print(f"{subject} to {to}", flush=True)
    return f"sent to {to}"


async def checkout():
    """What the web application calls."""
    pool = await create_pool(redis_settings)
    await pool.enqueue_job("send_mail", "eve", subject="Sorry")
    await pool.enqueue_job("send_mail", "bob", _defer_by=3600, _job_id="reminder-bob")
    return await pool.enqueue_job("send_mail", "ann", subject="Thank you")


class WorkerSettings:
    functions = [send_mail]
    redis_settings = redis_settings
