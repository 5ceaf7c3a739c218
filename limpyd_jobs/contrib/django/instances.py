"""Instances of Django's models as arguments of jobs: they travel as their primary keys."""

from __future__ import annotations

from functools import partial
from typing import Any

from django.core.exceptions import ObjectDoesNotExist, ValidationError
from django.db.models import Model
from django.utils.functional import SimpleLazyObject

from limpyd_jobs.integration import Form, one_line, register_form


class InstanceGone(ObjectDoesNotExist):
    """An instance of a model that a job was given as an argument was deleted since."""


class InstanceOnUse(SimpleLazyObject):  # type: ignore[misc]
    """An instance of a model that is fetched when it is first used."""

    def __init__(self, model: type[Model], key: str) -> None:
        super().__init__(partial(_fetched, model, key))
        self.__dict__["_key"] = key


def _fetched(model: type[Model], key: str) -> Model:
    try:
        found: Model = model._base_manager.get(pk=_primary_key(model, key))
    except ObjectDoesNotExist:
        raise InstanceGone(
            f"{model._meta.label} {one_line(key)} is gone: it was deleted after the job was added that has it as an "
            "argument"
        ) from None
    return found


def form_of_model(model: Any) -> Form:
    """Return the form of the instances of a model: a text, their primary key.

    Raises
    ------
    TypeError
        If the model is abstract, so has no instances.
    """
    if model._meta.abstract:
        raise TypeError(f"values of {model.__qualname__} cannot travel: it is an abstract model")
    return Form(model.__name__, frozenset({"string"}), partial(_dump, model), partial(_load, model))


def _dump(model: Any, instance: Any) -> str:
    if type(instance) is InstanceOnUse:
        return str(vars(instance)["_key"])
    if not isinstance(instance, model):
        raise TypeError(f"{instance!r} is not an instance of {model.__name__}")
    if None in (instance.pk if isinstance(instance.pk, tuple) else (instance.pk,)):
        raise ValueError(f"{instance!r} is not saved, so it has no primary key")
    return str(model._meta.pk.value_to_string(instance))


def _load(model: Any, key: Any) -> InstanceOnUse:
    if not isinstance(key, str):
        raise TypeError(f"{key!r} is not the primary key of a {model.__name__}")
    try:
        _primary_key(model, key)
    except (ArithmeticError, RecursionError, TypeError, ValidationError, ValueError):  # it may be of several fields
        raise ValueError(f"{key!r} is not the primary key of a {model.__name__}") from None
    return InstanceOnUse(model, key)


def _primary_key(model: Any, key: str) -> Any:
    return model._meta.pk.to_python(key)


register_form(Model, form_of_model)
