"""Policies whose decisions need no working out."""

from pager.paging.policy import Decision


class KeepAll:
    def choose(self, view):
        return Decision(reason="nothing goes")


class Greedy:
    """Evicts all that it may."""

    def choose(self, view):
        return Decision(tuple(page.handle for page in view.pages if page.evictable), reason="all goes")


class Fixed:
    """Decides the same whatever it sees; None is no decision at all."""

    def __init__(self, decision):
        self.decision = decision

    def choose(self, view):
        return self.decision


class Broken:
    def choose(self, view):
        raise ZeroDivisionError("no pages")
