"""Compiles patterns of models and schemas for RE2, whose searches take time linear in the text."""

from typing import Any

LARGEST_PROGRAM = 5_000
"""In instructions; a larger one takes too long to run."""


def program_of(pattern: str, *, memory: int, one_line: bool = False, ignore_case: bool = False) -> Any:  # noqa: ANN401
    """The program of a pattern, which searches in bytes; None if RE2 refuses it.

    ``memory`` bounds the program and its states, in bytes. A match of ``one_line`` never crosses a line feed.
    """
    import re2  # type: ignore[import-untyped]  # loads a large library, which most calls have no use for

    options = re2.Options()
    options.max_mem = memory
    options.log_errors = False
    options.never_nl = one_line
    options.never_capture = True
    options.case_sensitive = not ignore_case
    try:
        program = re2.compile(pattern.encode("utf-8", "surrogatepass"), options)
    except re2.error:
        return None
    re2.purge()  # it would keep 128 programs with all their states
    return program
