"""What the log keeps of an answer that repeats a credential."""

from hashlib import sha256

import pytest

from pager.log.events import (
    AnswerFinished,
    AttemptFailed,
    Bypassed,
    LegFailed,
    LegFinished,
    ToolCalled,
)
from pager.proxy.redaction import (
    redacted,
    safe,
    secrets_of,
    words,
)

KEY = "sk-ant-api03-0123456789abcdef"
STARS = "*" * len(KEY)


@pytest.mark.parametrize(
    ("headers", "query"),
    [
        ({"authorization": f"Bearer {KEY}"}, b""),
        ({"authorization": f"Basic {KEY}"}, b""),
        ({"x-api-key": KEY}, b""),
        ({"api-key": KEY}, b""),
        ({}, f"alt=sse&key={KEY}".encode()),
    ],
)
def test_a_credential_is_hidden_wherever_the_request_had_it(headers, query):
    secrets = secrets_of(headers, query)
    assert redacted(f'{{"error": "bad key {KEY}"}}'.encode(), secrets) == f'{{"error": "bad key {STARS}"}}'.encode()


def test_the_proxys_own_credential_is_hidden_too():
    assert words(f"bad key: {KEY}", secrets_of({}, b"", KEY)) == f"bad key: {STARS}"


def test_a_credential_that_is_written_as_json_is_hidden():
    secret = "abc/def\\ghi-1"
    secrets = secrets_of({"x-api-key": secret}, b"")
    assert redacted(rb'"abc/def\\ghi-1 abc\/def\\ghi-1"', secrets) == b'"' + b"*" * 14 + b" " + b"*" * 15 + b'"'


def test_the_beginning_of_a_credential_where_the_text_was_cut_is_hidden():
    secrets = secrets_of({"x-api-key": KEY}, b"")
    assert words(f"bad key {KEY[:20]}", secrets) == "bad key " + "*" * 20
    assert words(f"bad key {KEY[:7]}", secrets) == f"bad key {KEY[:7]}"  # as providers mask them


@pytest.mark.parametrize("word", ["", "none", "ollama", "anything"])
def test_words_that_local_servers_take_for_keys_are_no_secrets(word):
    assert secrets_of({"authorization": f"Bearer {word}"}, b"") == ()


def test_events_name_what_is_kept_and_how_much_was_replaced():
    body = f"no such key: {KEY}".encode()
    kept, blobs = body.replace(KEY.encode(), STARS.encode()), {sha256(body).digest(): body, b"other": KEY.encode()}
    where, facts = (0, 1, 1), {"body": sha256(body).hexdigest(), "size": len(body)}
    events = [
        AttemptFailed(*where, "status", f"bad {KEY}", 401, **facts),
        Bypassed("refused", f"400: {KEY}", 0, 1),
        LegFailed(*where, leg=1, tries=1, phase="status", error=KEY, status=429, wait=None),
    ]
    written, contents = safe(events, blobs, secrets_of({"x-api-key": KEY}, b""))
    assert contents == {sha256(kept).digest(): kept, b"other": KEY.encode()}
    assert written[0] == AttemptFailed(
        *where, "status", f"bad {STARS}", 401, body=sha256(kept).hexdigest(), size=len(body), redacted=len(KEY)
    )
    assert (written[1].detail, written[2].error) == (f"400: {STARS}", STARS)


@pytest.mark.parametrize("kind", [AnswerFinished, LegFinished])
def test_what_holds_no_credential_is_written_as_it_came(kind):
    body = b'{"ok": true}'
    facts = {"branch": 0, "call": 1, "attempt": 1, "body": sha256(body).hexdigest(), "size": len(body)}
    more = (
        {"leg": 1, "said": ""}
        if kind is LegFinished
        else {"status": 200, "finish": "", "first_byte_ms": 0, "total_ms": 0}
    )
    events = [kind(**facts, **more), ToolCalled(0, 1, 1, 0, "run", "c1", "", "")]
    written, blobs = safe(events, {sha256(body).digest(): body}, (KEY.encode(),))
    assert (list(written), dict(blobs)) == (events, {sha256(body).digest(): body})
