"""The reasons why a call goes out without our help."""

import re
from pathlib import Path

import pytest

from pager.log.bypass_reasons import NOT_PLANNED, UNDER_ANY_POLICY, WENT_IN_FULL, BypassReason

DOCS = Path(__file__).parents[2] / "docs"


def test_every_reason_is_documented_and_no_other():
    (row,) = re.findall(r"^\| `reason` \|(.*);", (DOCS / "metrics.md").read_text(), re.MULTILINE)
    assert set(re.findall(r"`(\w+)`", row)) == set(BypassReason)
    told = (DOCS / "log.md").read_text()
    assert [reason for reason in BypassReason if f"- `{reason}`: " not in told] == []


@pytest.mark.parametrize("reasons", [NOT_PLANNED, UNDER_ANY_POLICY])
def test_a_call_that_was_not_paged_for_any_of_these_reasons_went_out_in_full(reasons):
    assert reasons < WENT_IN_FULL


def test_a_reason_is_the_word_that_the_log_holds():
    assert "refused" in WENT_IN_FULL
    assert "a reason of tomorrow" not in WENT_IN_FULL
