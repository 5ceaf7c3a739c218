"""The addresses of the project of the tests."""

from django.contrib import admin
from django.urls import include, path

urlpatterns = [
    path("admin/", admin.site.urls),
    path("staff/jobs/", include("limpyd_jobs.contrib.django.urls")),
]
