"""The dashboard: ``path("jobs/", include("limpyd_jobs.contrib.django.urls"))`` in the ``urls.py`` of a project.

``{% url "limpyd_jobs:dashboard" %}`` is its address, and ``{% url "limpyd_jobs:page" "queues" %}`` that of a page.
"""

from django.urls import path

from limpyd_jobs.contrib.django.dashboard.views import dashboard

app_name = "limpyd_jobs"

urlpatterns = [
    path("", dashboard, name="dashboard"),
    path("<path:path>", dashboard, name="page"),
]
