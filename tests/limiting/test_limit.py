"""What can be declared as a limit: everything else is refused when the class is made, with what to do."""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable
from typing import Any

import pytest
from cases import each
from limpyd import fields

from limpyd_jobs import Argument, ConfigurationException, Job, Limit
from limpyd_jobs.limiting.limit import interval_of, limits_of_class
from limpyd_jobs.records.layout import layout_of


def class_with(*limits: Limit) -> Callable[[], Any]:
    """Return what makes a class with these limits."""

    def make() -> Any:
        attributes = {"namespace": "declared", "account": Argument(str), "lines": fields.ListField()}
        return type(Job)("Limited", (Job,), {**attributes, "__module__": __name__, "limits": [*limits]})

    return make


def class_saying(limits: Any) -> Callable[[], Any]:
    return lambda: type(Job)("Limited", (Job,), {"namespace": "declared", "__module__": __name__, "limits": limits})


WRONG: dict[str, tuple[Callable[[], Any], str]] = {
    "no list": (
        class_saying(Limit(concurrency=1)),
        "limits of Limited must be a list of Limit, not Limit(concurrency=1)",
    ),
    "a name among them": (class_saying([Limit(concurrency=1), "account"]), "must be a list of Limit, not [Limit("),
    "no list, but a set of limits": (class_saying({Limit(concurrency=1)}), "must be a list of Limit, not {Limit("),
    "a list in a list": (class_saying([[Limit(concurrency=1)]]), "must be a list of Limit, not [[Limit("),
    "limits by name": (
        class_saying({"account": Limit(concurrency=1)}),
        "must be a list of Limit, not {'account': Limit(",
    ),
    "no limit, but its class": (class_saying([Limit]), "must be a list of Limit, not [<class"),
    "nothing": (lambda: Limit("account"), r"Limit('account'): it limits nothing: give concurrency, rate, or both"),
    "no rate": (lambda: Limit(rate="ten/s"), "'ten/s' is not a rate: write how much in which time, such as '10/s'"),
    "an empty rate": (lambda: Limit(rate="0/s"), "'0/s' is not a rate"),
    "a rate of no time": (lambda: Limit(rate="5/0m"), "'5/0m' is not a rate"),
    "a negative number": (lambda: Limit(concurrency=-1), "a whole number, 0 for none, not -1"),
    "half a job": (lambda: Limit(concurrency=1.5), "a whole number, 0 for none, not 1.5"),  # type: ignore[arg-type]
    "True": (lambda: Limit(concurrency=True), "a whole number, 0 for none, not True"),
    "no burst": (lambda: Limit(rate="1/s", burst=0), "burst must be a whole number of at least 1, not 0"),
    "a negative weight": (lambda: Limit(rate="1/s", weight=-1), "weight must be a number from 0"),
    "a weight above all": (
        lambda: Limit(rate="10/s", weight=11),
        "no job could begin: its weight is above all that '10/s' allows",
    ),
    "a weight of no rate": (lambda: Limit(concurrency=1, weight=2), "give a rate, too"),
    "a burst of no rate": (
        lambda: Limit(concurrency=1, burst=2),
        "how much of a rate may begin at once: give a rate, too",
    ),
    "fair to some": (lambda: Limit("a", concurrency=1, fair="yes"), "fair must be True or False, not 'yes'"),  # type: ignore[arg-type]
    "fair to nothing": (class_with(Limit(concurrency=1, fair=True)), "fair needs a field, whose values take turns"),
    "another end": (
        lambda: Limit(concurrency=1, on_limit="skip"),
        "on_limit must be 'wait', 'drop', 'newest' or 'replace', not 'skip'",
    ),  # type: ignore[arg-type]
    "what runs, for a rate": (
        lambda: Limit(concurrency=1, rate="1/s", on_limit="replace"),
        "on_limit='replace' cancels the job that runs, but a rate is not free again by that: give concurrency alone",
    ),
    "no name": (lambda: Limit(name="a b", concurrency=1), "name must be a name of letters, digits"),
    "an unknown field": (class_with(Limit("acount", concurrency=1)), "Limited has no field 'acount'; its fields are"),
    "an unknown weight": (class_with(Limit("account", rate="1/s", weight="tokens")), "Limited has no field 'tokens'"),
    "a list": (class_with(Limit("lines", concurrency=1)), "cannot be limited by 'lines', which is not in its hash"),
    "two of one name": (
        class_with(Limit("account", concurrency=1), Limit("account", rate="1/s")),
        "Limited has two limits named 'account': give one both numbers, or another name",
    ),
    "two turns": (
        class_with(Limit("account", concurrency=1, fair=True), Limit("account", name="b", concurrency=1, fair=True)),
        "only one can decide whose turn it is",
    ),
}


@each("name", WRONG)
def test_what_is_wrong_is_refused_when_the_class_is_made(name: str) -> None:
    make, message = WRONG[name]
    with pytest.raises(ConfigurationException, match=re.escape(message)):
        make()


@each(
    "rate, microseconds",
    [("10/s", 1e5), ("90000/m", 60e6 / 90000), ("100/10m", 6e6), ("0.5/h", 7200e6), ("1/d", 86400e6)],
)
def test_a_rate_is_so_much_in_a_time(rate: str, microseconds: float) -> None:
    assert interval_of(rate) == microseconds


def test_a_limit_of_none_is_warned_of() -> None:
    with pytest.warns(UserWarning, match="with concurrency=0, no job of it begins"):
        Limit("account", concurrency=0)


def test_a_shared_limit_with_two_numbers_is_warned_of() -> None:
    class First(Job):
        namespace = "declared"
        limits = [Limit(name="shared_in_a_test", concurrency=1)]

    with pytest.warns(UserWarning, match=r"Second and .*First share the limit 'shared_in_a_test', but give it other"):

        class Second(Job):
            namespace = "declared"
            limits = [Limit(name="shared_in_a_test", concurrency=2)]

    assert limits_of_class(First) != limits_of_class(Second)


def test_names_of_fields_in_place_of_limits_are_warned_of() -> None:
    for limits in (["identifier"], {"priority": 2}):
        with pytest.warns(
            UserWarning, match=r"limits of Limited is .*, which limits nothing: .*\[Limit\('(ident|prio)"
        ):
            made = class_saying(limits)()
        assert limits_of_class(made) == ()


def test_limits_of_an_application_are_its_own() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")

        class WithField(Job):
            namespace = "declared"
            limits = fields.InstanceHashField()

        class WithMethod(Job):
            namespace = "declared"

            def limits(self) -> int:
                return 3

        class WithList(Job):
            namespace = "declared"
            limits = ["a", "b"]

    assert [limits_of_class(cls) for cls in (WithField, WithMethod, WithList)] == [(), (), ()]
    assert [layout_of(cls).description["limits"] for cls in (WithField, WithMethod, WithList)] == [{}, {}, {}]


def test_subclasses_have_the_limits_of_their_class_for_themselves() -> None:
    class Base(Job):
        namespace = "declared"
        account = Argument(str)
        limits = [Limit("account", concurrency=1)]

    class Derived(Base):
        pass

    keys = [layout_of(cls).description["limits"]["rules"][0]["key"] for cls in (Base, Derived)]
    assert keys == ["declared:base:_limit:account", "declared:derived:_limit:account"]
