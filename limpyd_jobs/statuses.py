"""The six states a job can be in."""

from __future__ import annotations


class Statuses(dict[str, str]):
    """The status names and the letters stored for them: ``STATUSES.WAITING == 'w'``.

    A dictionary with attribute access. An unknown name raises `KeyError`, as an item and as an attribute.
    """

    def __init__(self, **letters: str) -> None:
        super().__init__(letters)
        vars(self).update(letters)  # so that they are found without a call

    def __getattr__(self, name: str) -> str:
        if name.startswith("__"):  # copy and pickle ask for it, for example
            raise AttributeError(name)
        return self[name]

    def by_value(self, value: str | None, default: str | None = None) -> str:
        """Return the name of a stored status: ``STATUSES.by_value('s') == 'SUCCESS'``.

        Raises
        ------
        ValueError
            If the value is not one of the six, and no default is given.
        """
        for name, letter in self.items():
            if letter == value:
                return name
        if default is None:
            raise ValueError(f"{value!r} is not the value of a status")
        return default


STATUSES = Statuses(
    WAITING="w",
    DELAYED="d",
    RUNNING="r",
    SUCCESS="s",
    ERROR="e",
    CANCELED="c",
)
