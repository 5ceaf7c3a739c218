"""The parameters of a function that is a job, and the arguments of its job class that stand for them."""

from __future__ import annotations

import hashlib
import inspect
import typing
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, NamedTuple

from limpyd_extensions.related import RelatedModel

from limpyd_jobs.fields.argument import Argument, texts_of
from limpyd_jobs.fields.form import dump_json
from limpyd_jobs.limiting.limit import Limit
from limpyd_jobs.models.functions.giving import GivenParameter, given_parameter
from limpyd_jobs.models.functions.refusing import refuse
from limpyd_jobs.models.job import Job

_EMPTY = inspect.Parameter.empty

# What a job, its class or `add_job` has under these names since version 2, so that no argument can have them.
_NAMES_OF_JOBS = (
    "added add_job always_cancel_on_error cancel_on_error cls delayed_for delayed_until duration end "
    "enqueue_or_delay get_from_ident get_model_repr ident identifier must_be_cancelled_on_error on_delayed "
    "on_error on_exhausted on_released on_requeued on_rescued on_scheduled on_skipped on_started on_success prepend "
    "priority queue_model queue_name queued related_collections requeue run self set_fields start status tries"
)
_OF_JOBS = frozenset(_NAMES_OF_JOBS.split())

# What `add_job` takes beside fields, so that a parameter of the same name and an option of `configure` are two things.
_OF_CALLS = frozenset({"on_duplicate", "unique_for"})

# What the code of a function may ask of `current_job()`, so that no parameter hides it.
_NAMES_OF_RUNNING = (
    "progress aprogress settle asettle rest arest log alog emit aemit iterate step is_cancelled attempt_token aget aset"
)
_OF_RUNNING = frozenset(_NAMES_OF_RUNNING.split())


class Parameter(NamedTuple):
    """A parameter of a function: its name there, the name of the argument of the job class, and how it is given."""

    name: str
    field: str
    argument: Argument[Any]
    default: Any
    is_by_name: bool
    limits: Sequence[Limit] = ()

    def value_of(self, text: str | None, path: str) -> Any:
        """Return the value of a stored text; the default if the job was added before there was this parameter."""
        if text is None:
            if self.default is _EMPTY:
                raise TypeError(f"{path} needs the argument {self.name!r}, which its job lacks: it was added before")
            return self.default
        try:
            return self.argument.codec.load(text)
        except (TypeError, ValueError, ArithmeticError, RecursionError) as error:
            name = self.argument.codec.name
            raise ValueError(f"The argument {self.name!r} of {path} is not {name}: {error}") from error


def parameters_of(function: Callable[..., Any], base: type[Job]) -> tuple[list[Parameter], list[GivenParameter]]:
    """Return the parameters of a function whose job class derives from a base, and those that a worker gives; refuse
    those that cannot travel."""
    taken = _taken_names(base)
    annotations = Annotations(function)
    found: list[Parameter] = []
    given: list[GivenParameter] = []
    for parameter in inspect.signature(function).parameters.values():
        _check_kind(function, parameter)
        if parameter.annotation is not _EMPTY:
            by_worker = given_parameter(function, parameter, annotations[parameter.name], base)
            if by_worker:
                given.append(by_worker)
                continue
        field = _free_name(parameter.name, taken)
        taken.add(field)
        kind, limits = _without_limits(function, parameter, annotations)
        argument = _argument(function, parameter, kind)
        by_name = parameter.kind is inspect.Parameter.KEYWORD_ONLY or bool(given)  # not behind what is given by name
        found.append(Parameter(parameter.name, field, argument, parameter.default, by_name, limits))
    return found, given


def limits_in(function: Any, parameters: Sequence[Parameter], of_option: Sequence[Limit]) -> list[Limit]:
    """Return the limits of the option, and those in the annotations of parameters: ``Annotated[str,
    Limit(concurrency=2)]``, by the names of fields."""
    fields = {each.name: each.field for each in parameters}

    def field_of(name: Any) -> Any:
        return fields.get(name, name) if isinstance(name, str) else name

    found = [replace(limit, field=field_of(limit.field), weight=field_of(limit.weight)) for limit in of_option]
    for each in parameters:
        for limit in each.limits:
            if limit.field is not None:
                refuse(function, f"{limit} in the annotation of {each.name!r} names a field: it is of this parameter")
            found.append(replace(limit, field=each.field, weight=field_of(limit.weight)))
    return found


def _without_limits(
    function: Any, parameter: inspect.Parameter, annotations: Mapping[str, Any]
) -> tuple[Any, list[Limit]]:
    """Return the annotation of a parameter without its limits, and these."""
    name = parameter.name
    if parameter.annotation is _EMPTY:
        refuse(
            function,
            f"the parameter {name!r} has no annotation: say what it is, as {name}: str, or {name}: Any for JSON",
        )
    kind = annotations[name]
    if Limit in getattr(kind, "__metadata__", ()):
        refuse(
            function,
            f"the annotation of {name!r} has the class Limit: write Limit(concurrency=1), or Limit(rate='10/s')",
        )
    limits = [each for each in getattr(kind, "__metadata__", ()) if isinstance(each, Limit)]
    if limits:
        others = [each for each in kind.__metadata__ if not isinstance(each, Limit)]
        kind = typing.Annotated[(kind.__origin__, *others)] if others else kind.__origin__
    return kind, limits


def values_of(job: Any, parameters: Sequence[Parameter], path: str) -> tuple[list[Any], dict[str, Any]]:
    """Return what to call the function with, by position and by name, for a job."""
    texts = texts_of(job, [each.field for each in parameters])
    in_order = [each.value_of(texts[each.field], path) for each in parameters if not each.is_by_name]
    by_name = {each.name: each.value_of(texts[each.field], path) for each in parameters if each.is_by_name}
    return in_order, by_name


def came_along(job: Any, parameters: Sequence[Parameter]) -> bool:
    """Return whether all arguments of a job came with its claim, so that none has to be read."""
    known = vars(job).get("_arguments", ())
    return all(each.field in known for each in parameters)


def _taken_names(base: type[Job]) -> set[str]:
    """Return the names that arguments must not have: those of version 2 and of limpyd, those that `add_job` takes, and
    those that the application's own base has. A name that is ours alone may be hidden, as in any subclass."""
    own = {*dir(base), *base._fields} - {*dir(Job)}
    of_adding = {*inspect.signature(Job.add_job).parameters, *inspect.signature(base.add_job).parameters}
    return {*_OF_JOBS, *_OF_CALLS, *_OF_RUNNING, *dir(RelatedModel), *of_adding - {"args", "kwargs"}, *own}


def _free_name(name: str, taken: Collection[str]) -> str:
    """Return the name of the argument for a parameter: its own one, unless that is taken."""
    while name in taken or name.startswith("_"):
        name = f"arg_{name}"
    return name


def _check_kind(function: Any, parameter: inspect.Parameter) -> None:
    if parameter.kind is inspect.Parameter.VAR_POSITIONAL:
        what = f"{parameter.name}: list[str]"
        refuse(function, f"the parameter *{parameter.name} cannot travel: name what it takes, as {what}")
    if parameter.kind is inspect.Parameter.VAR_KEYWORD:
        what = f"{parameter.name}: dict[str, str]"
        refuse(function, f"the parameter **{parameter.name} cannot travel: name what it takes, as {what}")


def _argument(function: Any, parameter: inspect.Parameter, kind: Any) -> Argument[Any]:
    name = parameter.name
    try:
        argument = Argument(Any if kind is object else kind)
    except TypeError as error:
        refuse(function, f"the parameter {name!r} cannot travel: {error}")
    if parameter.default is _EMPTY:
        return argument
    try:
        return Argument(Any if kind is object else kind, default=parameter.default)
    except (TypeError, ValueError) as error:
        hint = f": annotate it as {argument.codec.name} | None" if parameter.default is None else ""
        if parameter.default is not None and "cannot be stored" in str(error):
            hint = ": let it be None, and make the value in the function"
        why = str(error).removeprefix("The default of an argument ")
        refuse(function, f"the default of the parameter {name!r} {why}{hint}")


class Annotations(Mapping[str, Any]):
    """The annotations of the parameters of a function, each read when it is asked for: that of what it returns, which
    may name what exists for type checkers only, is not."""

    def __init__(self, function: Any) -> None:
        self._function = function
        self._inner = inspect.unwrap(function)

    def __getitem__(self, name: str) -> Any:
        holder = type("_", (), {"__annotations__": {name: self._inner.__annotations__[name]}})
        try:
            return typing.get_type_hints(holder, self._inner.__globals__, include_extras=True)[name]
        except Exception as error:  # whatever the text of an annotation raises
            refuse(
                self._function,
                f"the annotation of the parameter {name!r} cannot be read: {error}. Import what it names, outside of "
                "TYPE_CHECKING, and above the function",
            )

    def __iter__(self) -> Iterator[str]:
        return iter(self._inner.__annotations__)

    def __len__(self) -> int:
        return len(self._inner.__annotations__)


# The longest identifier that shows the arguments, in characters; a longer one is a digest of them.
MAX_SHOWN = 200

Unique = bool | str | Sequence[str] | Callable[[Any], str]


def identify_by(function: Any, unique: Any, parameters: Sequence[Parameter]) -> Callable[[Any], str] | None:
    """Return the `identify` of the job class of a function; None if each job is to have an identifier of its own."""
    if unique is None or unique is False:
        return None
    if callable(unique):
        return lambda values: unique(SimpleNamespace(**{each.name: getattr(values, each.field) for each in parameters}))
    names = [each.name for each in parameters] if unique is True else [unique] if isinstance(unique, str) else unique
    if not isinstance(names, (list, tuple)):
        refuse(function, f"unique is True, names of parameters, or a function of the arguments, not {unique!r}")
    by_name = {each.name: each for each in parameters}
    for name in names:
        if name not in by_name:
            refuse(function, f"unique: there is no parameter {name!r}, but {', '.join(by_name) or 'none'}")
    chosen = [by_name[name] for name in names]
    return lambda values: _identifier(chosen, values)


def _identifier(chosen: Sequence[Parameter], values: Any) -> str:
    texts = {
        each.name: each.argument.codec.stored(f"The argument {each.name!r}", getattr(values, each.field))
        for each in chosen
    }
    text = dump_json(texts)
    return text if len(text) <= MAX_SHOWN else f"sha256:{hashlib.sha256(text.encode()).hexdigest()}"
