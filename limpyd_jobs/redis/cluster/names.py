"""The names of the models of a database, with which their keys begin: on a cluster, behind its tag."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

from limpyd_jobs.exceptions import ConfigurationException
from limpyd_jobs.functions import forget_memoized


def rename_models(database: Any, before: str, after: str) -> None:
    """Let the names of all models of a database begin otherwise, and forget what was found out by their names."""
    models = vars(database).get("_models", {})
    for name, model in list(models.items()):
        del models[name]
        model._name = _renamed(name, before, after)
        models[model._name] = model
        _rename_fields(model, before.lower(), after.lower())
    relations = vars(database).get("_relations", {})
    for target, entries in list(relations.items()):
        del relations[target]
        relations[_renamed(target, before.lower(), after.lower())] = [
            (_renamed(name, before, after), *rest) for name, *rest in entries
        ]
    forget_memoized()


def _rename_fields(model: Any, before: str, after: str) -> None:
    for field in model.get_fields():
        related = getattr(field, "related_to", None)
        if isinstance(related, str):
            field.related_to = _renamed(related, before, after)


def _renamed(name: str, before: str, after: str) -> str:
    return f"{after}{name.removeprefix(before)}"


def prefix_in(database: Any) -> str:
    """Return what the names of the models of a database begin with; nothing but on a cluster."""
    prefix: str = getattr(database, "prefix", "")
    return prefix


def without_prefix(model: Any) -> str:
    """Return the name of a model: its namespace, and the name of its class."""
    return str(model._name).removeprefix(prefix_in(model.database))


def check_namespace(model: Any) -> None:
    """Refuse a namespace with braces on a cluster: there, they are around the tag."""
    if prefix_in(model.database) and {"{", "}"} & {*without_prefix(model)}:
        namespace = without_prefix(model).rpartition(":")[0]
        raise ConfigurationException(
            f"{model.__name__} has the namespace {namespace!r}: on a cluster, only the tag is in braces. Write it "
            f"without them, as namespace = {namespace.translate({ord('{'): None, ord('}'): None})!r}"
        )


def check_one_tag(one: Any, other: Any) -> None:
    """Refuse models whose keys are in different slots, which no script can change together."""
    first, second = prefix_in(one.database), prefix_in(other.database)
    if first != second:
        raise ConfigurationException(
            f"{one.__name__} and {other.__name__} have different tags on a cluster, {first or 'none'} and "
            f"{second or 'none'}: use one database for both"
        )


@contextmanager
def plain_names(*databases: Any) -> Iterator[None]:
    """Let the models of some databases have names without the tags while a model moves from one to another."""
    with ExitStack() as ends:
        for database in {id(each): each for each in databases if prefix_in(each)}.values():
            prefix = prefix_in(database)
            rename_models(database, prefix, "")
            database.prefix = ""
            ends.callback(_restore, database, prefix)
        yield


def _restore(database: Any, prefix: str) -> None:
    database.prefix = prefix
    rename_models(database, "", prefix)
