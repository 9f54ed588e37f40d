"""A body taken apart and put together again is the same bytes."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pager.errors import StoreCorrupt
from pager.log.body_delta import put_together, take_apart
from pager.log.events import CallReceived
from pager.wire import dialects

CHAT = dialects.load("chat")
texts = st.text(max_size=40)
messages = st.lists(
    st.fixed_dictionaries({"role": st.sampled_from(["user", "assistant"]), "content": texts}), max_size=8
)


def logged(recipe):
    facts = {name: getattr(recipe, name) for name in recipe.__dataclass_fields__ if name != "values"}
    return CallReceived(branch=0, call=1, attempt=1, dialect="chat", path="/", model="m", stream=False, **facts)


@given(messages, st.sampled_from([None, 0, 2]), st.text(max_size=2000), st.booleans(), st.integers(0, 8))
def test_any_body_comes_back_byte_for_byte(history, indent, system, tools_first, keep):
    tools = [{"type": "function", "function": {"name": "t", "description": system}}]
    members = {"model": "m", "tools": tools, "messages": history}
    if not tools_first:
        members = dict(reversed(members.items()))
    request = CHAT.parse(json.dumps(members, indent=indent, ensure_ascii=False).encode())
    keep = min(keep, len(request.digests)) if request.separator is not None else 0
    recipe, blobs = take_apart(request, keep)
    kept = dict(zip(request.digests, map(bytes, request.items), strict=True)) | blobs
    digests = [*request.digests[:keep], *(bytes.fromhex(one) for one in recipe.messages)]
    assert put_together(logged(recipe), digests, kept.__getitem__) == request.body


def test_the_digest_does_not_depend_on_what_the_parent_had():
    request = CHAT.parse(json.dumps({"messages": [{"role": "user", "content": str(n)} for n in range(4)]}).encode())
    assert take_apart(request, 0)[0].body == take_apart(request, 3)[0].body


def test_only_new_messages_are_among_the_blobs():
    request = CHAT.parse(json.dumps({"messages": [{"role": "user", "content": str(n)} for n in range(4)]}).encode())
    recipe, blobs = take_apart(request, 3)
    assert recipe.messages == [request.digests[3].hex()]
    assert not set(request.digests[:3]) & set(blobs)


def test_a_message_exchanged_for_another_is_noticed():
    request = CHAT.parse(b'{"messages": [{"role":"user","content":"a"}, {"role":"user","content":"b"}]}')
    recipe, blobs = take_apart(request, 0)
    with pytest.raises(StoreCorrupt, match="not made of the parts"):
        put_together(logged(recipe), list(reversed(request.digests)), blobs.__getitem__)


def test_unevenly_spaced_messages_are_kept_as_one_piece():
    body = (
        b'{"messages": [{"role":"user","content":"a"},  {"role":"user","content":"b"},\n{"role":"user","content":"c"}]}'
    )
    request = CHAT.parse(body)
    recipe, blobs = take_apart(request, 0)
    assert request.separator is None
    assert recipe.messages == []
    assert put_together(logged(recipe), (), blobs.__getitem__) == body
