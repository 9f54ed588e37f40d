"""The errors of ctxpager, one tree.

    PagerError                  anything we raise on purpose
    ├── NotUnderstood           a body or stream that a dialect can't read: it is passed on unread
    ├── BadRequest              the client's fault; answered in the client's dialect
    │   ├── BodyTooLarge        413
    │   ├── BodyTooSlow         408: the body made no progress; the connection is closed
    │   └── NotAllowed          401: the proxy has keys of its own and the client showed none of them
    ├── ConfigError             a setting is wrong: says which file, which key, what is allowed
    ├── NotRunning              no proxy answers where it was asked
    ├── Refused                 a running proxy does not allow what it was asked for, or can't do it
    ├── PolicyError             a policy can't be found or breaks its contract
    │   └── OptionError         it was given options that it does not take
    └── StoreError              the log can't be written or read: the call goes out all the same
        ├── StoreConflict       the session went on without us: read it again, then write again
        │   └── StoreReplaced   the log's file was deleted or replaced: all that was known of it is void
        └── StoreCorrupt        what was read is not what was written

A class exists only where a caller acts differently on it.
"""


class PagerError(Exception):
    """Anything ctxpager raises on purpose."""


class NotUnderstood(PagerError):
    """A body or stream that the dialect can't read; the caller passes it on unread."""


class BadRequest(PagerError):
    """The client sent something that can't be served; ``status`` is what it gets back."""

    status = 400


class BodyTooLarge(BadRequest):
    """The request body is larger than the configured limit."""

    status = 413


class BodyTooSlow(BadRequest):
    """The request body made no progress for too long."""

    status = 408


class NotAllowed(BadRequest):
    """The proxy has keys of its own, and the client showed none of them."""

    status = 401


class ConfigError(PagerError):
    """A setting is wrong."""


class NotRunning(PagerError):
    """No proxy answers where it was asked."""


class Refused(PagerError):
    """A running proxy does not allow what it was asked for, or can't do it."""


class PolicyError(PagerError):
    """A policy can't be found, can't be loaded, or broke its contract."""


class OptionError(PolicyError):
    """A policy was given options that it does not take: the mistake is in the options, not in the policy's name."""


class StoreError(PagerError):
    """The log can't be written or read."""


class StoreConflict(StoreError):
    """Another call of the session was logged first, or one before this was not: what this builds on is not there."""


class StoreReplaced(StoreConflict):
    """The log's file was deleted or replaced, and another is open now: nothing that was known to be in it is."""


class StoreCorrupt(StoreError):
    """What was read from the log is not what was written to it."""
