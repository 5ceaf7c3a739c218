"""The outbox in Django's admin: what waits, what is set aside, and why."""

from __future__ import annotations

from typing import Any

from django.contrib import admin, messages

from limpyd_jobs.contrib.django.outbox.entries import try_again
from limpyd_jobs.contrib.django.outbox.models import OutboxEntry


@admin.register(OutboxEntry)
class OutboxEntryAdmin(admin.ModelAdmin):  # type: ignore[type-arg, misc]
    """Shows the entries, lets them be tried again, or deleted. The arguments, which may be secret, are not shown."""

    list_display = ("id", "job_class", "identifier", "created", "due", "tries", "error")
    list_filter = (("due", admin.EmptyFieldListFilter), "job_class")
    search_fields = ("job_class", "identifier", "error")
    fields = readonly_fields = ("token", "job_class", "identifier", "created", "due", "tries", "error")
    actions = ("try_again",)

    def has_add_permission(self, request: Any) -> bool:
        """Return False: applications write entries."""
        return False

    @admin.action(description="Try again to add the job", permissions=["change"])  # type: ignore[untyped-decorator]
    def try_again(self, request: Any, queryset: Any) -> None:
        """Let entries that are set aside be relayed again, by the next worker that looks."""
        number = try_again(queryset)
        self.message_user(request, f"{number} entries will be relayed again", messages.SUCCESS)
