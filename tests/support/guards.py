"""Guards for tests of stitchers: which calls wait until they are complete, and which are held back."""


class Watching:
    """A guard that watches every call, and holds those whose arguments a function says."""

    def __init__(self, holds):
        self._holds = holds

    def watches(self, name):
        return True

    def holds(self, name, arguments):
        return self._holds(arguments)


class Picky:
    """A guard that watches only some tools, or all of them, and holds calls of one."""

    def __init__(self, *, everything=False):
        self._everything = everything

    def watches(self, name):
        return self._everything or name in ("checked", "refused")

    def holds(self, name, arguments):
        return name == "refused"


class Unwatched:
    """A guard that lets every call pass."""

    def watches(self, name):
        return False

    def holds(self, name, arguments):
        return False
