"""Branches advanced call by call, without a proxy or a log."""

from hashlib import sha256

from chat_items import encoded

from pager.paging.pages.page import Items
from pager.paging.pages.session_pages import TableSource
from pager.wire.dialects import load


def empty_table(name="chat"):
    """The page table of a branch before its first call."""
    return TableSource(load, {}.get).make(name)


def items_of(dialect, items, *marks):
    """The items of a prompt, given as values or as bytes, as a page table takes them."""
    raws = [encoded(one) if isinstance(one, dict) else bytes(one) for one in items]
    norms = [dialect.decode(raw).norm for raw in raws]
    return Items([sha256(raw).digest() for raw in raws], norms, raws.__getitem__, *marks)


def items_of_request(dialect, request):
    return items_of(dialect, request.items, request.head_marks, request.auto_mark)
