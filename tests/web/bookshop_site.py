"""A project of Django with the dashboard and the admin, as a program: it takes the URL of a Redis and a file for its
database, and prints its address. Its users have their names as passwords."""

from __future__ import annotations

import sys
from pathlib import Path

# What a user may do; carl is of the staff, and may do nothing.
USERS = {"ann": ["view_jobs"], "eve": ["act_jobs"], "root": ["admin_jobs"], "carl": []}


def set_up(redis: str, database: str) -> None:
    sys.path[:0] = [str(Path(__file__).parents[1] / "contrib" / "django"), str(Path(__file__).parent)]
    import django
    import project
    from django.conf import settings

    settings.configure(
        **{
            **project.SETTINGS,
            "INSTALLED_APPS": [*project.SETTINGS["INSTALLED_APPS"], "django.contrib.staticfiles"],
            "DATABASES": {"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": database}},
            "ALLOWED_HOSTS": ["127.0.0.1"],
            "LIMPYD_JOBS": {"DATABASE": redis, "MODULES": ["webshop", "hostile"]},
            "LANGUAGE_CODE": "en",
            "SESSION_COOKIE_SAMESITE": False,  # as in a project that does without this help of browsers
        }
    )
    django.setup()

    from django.contrib.auth.models import Permission, User
    from django.core.management import call_command

    call_command("migrate", run_syncdb=True, verbosity=0)
    for name, codenames in USERS.items():
        user = User.objects.create_user(name, password=name, is_staff=True)
        found = Permission.objects.filter(codename__in=codenames, content_type__app_label="limpyd_jobs")
        user.user_permissions.set(found)


def serve() -> None:
    from django.contrib.staticfiles.handlers import StaticFilesHandler
    from django.core.servers.basehttp import ThreadedWSGIServer, WSGIRequestHandler
    from django.core.wsgi import get_wsgi_application

    class Handler(WSGIRequestHandler):
        def log_message(self, *_: object) -> None: ...

    with ThreadedWSGIServer(("127.0.0.1", 0), Handler) as server:
        server.set_app(StaticFilesHandler(get_wsgi_application()))
        print(f"http://127.0.0.1:{server.server_port}/", flush=True)
        server.serve_forever()


if __name__ == "__main__":
    set_up(*sys.argv[1:])
    serve()
