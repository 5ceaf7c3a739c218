"""For Django: settings, commands, what is around each job, a backend for its tasks.

>>> INSTALLED_APPS = [..., "limpyd_jobs.contrib.django"]
>>> LIMPYD_JOBS = {"DATABASE": "redis://localhost:6379/0", "QUEUES": ["default"]}
"""
