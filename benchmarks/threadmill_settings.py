"""The settings of Django for the peer threadmill."""

from inside import URL

SECRET_KEY = "none"
USE_TZ = True
INSTALLED_APPS = ["threadmill"]
TASKS = {"default": {"BACKEND": "threadmill.backends.redis.RedisTaskBackend", "REDIS_URL": URL}}
