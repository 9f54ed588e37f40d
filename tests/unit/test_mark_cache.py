"""What a provider that caches at marks holds and finds, on cases worked out by hand from its rules."""

import json

import pytest

from pager.pricing.mark_cache import (
    FIVE_MINUTES,
    HOUR,
    Entry,
    MarkCache,
    marks_in,
)


def each_is_one(part):
    return 1


def sent(cache, at, *marks, lifetime=FIVE_MINUTES, positions=each_is_one):
    return cache.send(at, dict.fromkeys(marks, lifetime), positions)


def test_what_was_marked_is_found_by_the_next_request_and_its_lifetime_starts_again():
    cache = MarkCache()
    assert sent(cache, 0, 0, 3) == -1
    assert sent(cache, 299, 0, 5) == 3
    assert cache.entries == {0: Entry(300, 299), 3: Entry(300, 299), 5: Entry(300, 299)}
    assert sent(cache, 599, 0, 7) == 5


def test_only_what_was_read_or_marked_lives_on():
    cache = MarkCache()
    for at, end in ((0, 3), (100, 5), (200, 7), (390, 9)):
        sent(cache, at, 0, end)
    assert cache.alive(480) == [0, 5, 7, 9], "3 was last read at 100, 5 at 200"
    assert cache.alive(501) == [0, 7, 9]


def test_a_mark_on_what_is_held_keeps_it_alive_for_nothing():
    cache = MarkCache()
    sent(cache, 0, 0, 30)
    for at in range(200, 1_200, 200):
        assert sent(cache, at, 0, 10, 30) == 30
    assert cache.alive(1_000) == [0, 10, 30]
    cache.cut(12)
    assert sent(cache, 1_100, 0, 10, 31) == 10, "what changed behind it is written again, and no more"


def test_a_prefix_is_found_at_most_19_positions_before_a_mark():
    cache = MarkCache()
    sent(cache, 0, 0, 10)
    assert cache.found(1, {29: FIVE_MINUTES}, each_is_one) == 10
    assert cache.found(1, {30: FIVE_MINUTES}, each_is_one) == -1
    assert cache.found(1, {0: FIVE_MINUTES, 30: FIVE_MINUTES}, each_is_one) == 0
    assert cache.found(1, {19: FIVE_MINUTES}, lambda part: 2) == 10
    assert cache.found(1, {20: FIVE_MINUTES}, lambda part: 2) == -1


def test_nothing_lives_longer_than_what_it_was_written_behind():
    cache = MarkCache()
    sent(cache, 0, 0, lifetime=FIVE_MINUTES)
    sent(cache, 1, 0, 4, lifetime=HOUR)
    assert cache.entries[4] == Entry(FIVE_MINUTES, 1)
    fresh = MarkCache()
    sent(fresh, 0, 0, 4, lifetime=HOUR)
    assert fresh.alive(HOUR) == [0, 4]
    assert fresh.alive(HOUR + 1) == []


def test_a_change_before_the_messages_empties_it():
    cache = MarkCache()
    sent(cache, 0, 0, 4)
    cache.cut(-1)
    assert cache.alive(0) == []


def test_a_branch_that_forks_has_a_cache_of_its_own():
    cache = MarkCache()
    sent(cache, 0, 0, 4)
    copy = cache.copy()
    copy.cut(2)
    assert (cache.alive(0), copy.alive(0)) == ([0, 4], [0])


@pytest.mark.parametrize(
    ("block", "lifetimes"),
    [
        ({"type": "text", "text": "x"}, ()),
        ({"text": "x", "cache_control": {"type": "ephemeral"}}, (300.0,)),
        ({"text": "x", "cache_control": {"type": "ephemeral", "ttl": "5m"}}, (300.0,)),
        ({"text": "x", "cache_control": {"type": "ephemeral", "ttl": "1h"}}, (3600.0,)),
        ({"text": "x", "cache_control": None}, ()),
        ({"text": '{"cache_control": {"type": "ephemeral"}}'}, ()),
        ([{"cache_control": {"ttl": "1h"}}, {"cache_control": {"type": "ephemeral"}}], (3600.0, 300.0)),
    ],
)
def test_marks_are_read_with_the_lifetime_that_they_ask_for(block, lifetimes):
    for written in (json.dumps(block), json.dumps(block, separators=(",", ":")), json.dumps(block, indent=2)):
        assert marks_in(written.encode()) == lifetimes
