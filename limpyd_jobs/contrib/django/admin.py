"""Jobs, errors, queues, schedules and workers in Django's admin: without the extra ``[web]``, it goes without them."""

from django.core.exceptions import ImproperlyConfigured

try:
    from limpyd_jobs.contrib.django.dashboard.pages import register
except ImproperlyConfigured:
    pass
else:
    register()
