"""The dashboard in a Django project: ``path("jobs/", include("limpyd_jobs.contrib.django.urls"))``."""
