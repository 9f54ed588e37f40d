"""The log in one SQLite file."""

from pager.log.stores.sqlite.store import Store

__all__ = ["Store"]
