"""How a function becomes a story."""

STORIES = {}


class Story:
    """A function with what may differ when it is told, as {pattern: reason}, and the workers to tell it with."""

    def __init__(self, tell, modes, not_copied):
        self.tell = tell
        self.modes = modes
        self.not_copied = not_copied


def story(tell=None, *, modes=("",), not_copied=None):
    """Make a function a story."""
    if tell is None:
        return lambda tell: story(tell, modes=modes, not_copied=not_copied)
    STORIES[tell.__name__] = Story(tell, modes, not_copied or {})
    return tell


def worker_story(tell=None, *, not_copied=None):
    """Make a function two stories: one told with a plain `Worker`, one with a subclass that has all the hooks."""
    return story(tell, modes=("plain", "watched"), not_copied=not_copied)


def names():
    """Return the names of all stories, each with its mode."""
    return [f"{name}-{mode}".rstrip("-") for name, told in STORIES.items() for mode in told.modes]
