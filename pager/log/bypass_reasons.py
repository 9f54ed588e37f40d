"""Why a call went out without our help: every reason that the log knows, and which of them mean what."""

from enum import StrEnum


class BypassReason(StrEnum):
    """A reason of a ``Bypassed`` event; the log holds its value."""

    ASKED = "asked"  # the client sent x-pager-bypass
    CANNOT_CARRY = "cannot_carry"  # the request can't carry our tool
    DECISION_REJECTED = "decision_rejected"  # the policy chose what it may not; nothing more was removed
    FAILED = "failed"  # a step of ours failed after the call was logged
    KEPT_ASKING = "kept_asking"  # the model called page_in and nothing else, too often
    NOT_LOGGED = "not_logged"  # the call went out without being logged
    NOT_UNDERSTOOD = "not_understood"  # the body could not be read
    PAGE_TABLE = "page_table"  # planning failed, and the session is not paged any more
    REFUSED = "refused"  # the provider took only the client's own request: paging stops in the branch
    REFUSED_BOTH = "refused_both"  # the provider took neither the paged request nor the client's own


WENT_IN_FULL = frozenset(BypassReason) - {
    BypassReason.DECISION_REJECTED,
    BypassReason.NOT_LOGGED,
    BypassReason.NOT_UNDERSTOOD,
}
"""The call of a paged branch went out as the client sent it, so that the provider's cache holds another prompt.

A call that could not be read is in no branch that is paged; a call that was not logged is in no branch of the log.
"""

NOT_PLANNED = frozenset({BypassReason.ASKED, BypassReason.PAGE_TABLE})
"""The policy was not asked."""

UNDER_ANY_POLICY = frozenset({BypassReason.ASKED, BypassReason.CANNOT_CARRY})
"""The request itself is why, whatever the policy would have decided."""
