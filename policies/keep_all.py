"""Evicts nothing: the baseline that every other policy is priced against."""

from pager.paging.policy import Decision, View


class KeepAll:
    """Keeps every page resident."""

    def choose(self, view: View) -> Decision:
        """Nothing goes."""
        del view
        return Decision(reason="keep_all never evicts")
