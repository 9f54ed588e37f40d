"""One request without an SDK, and variables of the environment that a server starts with."""

import os
import urllib.error
import urllib.request
from contextlib import contextmanager

from waiting import PATIENCE


def answer_to(request):
    """The status and the body of any answer, errors included."""
    try:
        with urllib.request.urlopen(request, timeout=PATIENCE) as response:
            return response.status, response.read()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read()


@contextmanager
def variables(**values):
    os.environ.update(values)
    try:
        yield
    finally:
        for name in values:
            del os.environ[name]
