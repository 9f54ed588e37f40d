"""Which pages of a prompt are duplicates: the prompt has the same content again, further on.

Pages of one content are numbered in the order of the prompt, without a gap, and named by the handle of that content and
their number: ``pg_1``, ``pg_1@2``, ``pg_1@3``. So all of them but the last are duplicates.
"""


def page_name(handle: str, number: int) -> str:
    """The name of the page that is this number of its content, from 1 on."""
    return handle if number == 1 else f"{handle}@{number}"


def handle_in(name: str) -> str:
    """The handle in the name of a page."""
    return name.partition("@")[0]


def next_name(name: str) -> str:
    """The name of the page that makes this one a duplicate while it is in the prompt."""
    handle, _, number = name.partition("@")
    return page_name(handle, int(number or 1) + 1)


def duplicates(handle: str, number: int) -> list[str]:
    """The names of the pages that are duplicates once this number of their content has come."""
    return [page_name(handle, earlier) for earlier in range(1, number)]
