"""The version of the installed package."""

from importlib.metadata import version

EXACT_VERSION: str = version("redis-limpyd-jobs")
VERSION: tuple[int, ...] = tuple(int(part) for part in EXACT_VERSION.split(".") if part.isdecimal())
