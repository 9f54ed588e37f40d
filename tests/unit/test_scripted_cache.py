"""The scripted provider's cache: what it finds, what it forgets, and what it counts."""

from pager.request_values import Usage
from pager.testing.scripted.prompt_cache import PromptCache
from pager.wire.messages.scripted import Scripted as Messages
from pager.wire.scripted import FIVE_MINUTES, HOUR, Piece, piece


class Clock:
    def __init__(self):
        self.now = 0.0

    def __call__(self):
        return self.now


def prompt(count, tokens=1_000, **lifetimes):
    """Parts of so many tokens each; ``p3=300.0`` marks the third."""
    return [Piece(f"{at:04}" * tokens, lifetimes.get(f"p{at}", 0.0)) for at in range(1, count + 1)]


def test_an_automatic_cache_forgets_what_was_not_used_for_its_lifetime():
    clock = Clock()
    cache = PromptCache(clock, lifetime=600)
    cache.read("m", prompt(4))
    clock.now = 600
    assert cache.read("m", prompt(5)).cached == 4_000 // 128 * 128
    clock.now = 1_201
    assert cache.read("m", prompt(6)).cached == 0


def test_a_cache_whose_clock_stands_still_forgets_nothing():
    cache = PromptCache()
    cache.read("m", prompt(4))
    assert cache.read("m", prompt(4)).cached == 4_000 // 128 * 128


def test_written_tokens_are_counted_for_models_that_charge_for_them():
    for model, counted in (("gpt-5.5", 0), ("gpt-5.6", 4_000)):
        assert PromptCache().read(model, prompt(4)).written == counted


def test_only_what_ends_at_a_mark_is_written_and_found_again():
    cache = PromptCache()
    assert cache.read_marked("m", prompt(5, p3=FIVE_MINUTES)) == written(5_000, 0, 3_000)
    assert cache.read_marked("m", prompt(6, p3=FIVE_MINUTES)) == written(6_000, 3_000, 0)
    assert cache.read_marked("m", prompt(6, p6=FIVE_MINUTES)) == written(6_000, 3_000, 3_000), (
        "read from behind the mark"
    )
    assert cache.read_marked("m", prompt(2, p2=FIVE_MINUTES)) == written(2_000, 0, 2_000), "no mark ended there"


def test_a_mark_finds_nothing_that_ends_more_than_twenty_positions_before_it():
    cache = PromptCache()
    cache.read_marked("m", prompt(3, p3=FIVE_MINUTES))
    assert cache.read_marked("m", prompt(22, p22=FIVE_MINUTES)).cached == 3_000
    cache = PromptCache()
    cache.read_marked("m", prompt(3, p3=FIVE_MINUTES))
    assert cache.read_marked("m", prompt(23, p23=FIVE_MINUTES)).cached == 0
    results = [part._replace(kind="tool_result") for part in prompt(30, p30=FIVE_MINUTES)[3:]]
    cache = PromptCache()
    cache.read_marked("m", prompt(3, p3=FIVE_MINUTES))
    assert cache.read_marked("m", [*prompt(3), *results]).cached == 3_000, "results in a row are one position"


def test_a_mark_lives_for_five_minutes_or_an_hour_after_its_last_use():
    for lifetime in (FIVE_MINUTES, HOUR):
        clock = Clock()
        cache = PromptCache(clock)
        cache.read_marked("m", prompt(3, p3=lifetime))
        clock.now = lifetime
        assert cache.read_marked("m", prompt(4, p4=lifetime)).cached == 3_000
        clock.now = 2 * lifetime
        assert cache.read_marked("m", prompt(5, p5=lifetime)).cached == 4_000, "reading has begun its life anew"
        clock.now = 3 * lifetime + 1
        used = cache.read_marked("m", prompt(6, p6=lifetime))
        assert (used.cached, used.written) == (0, 6_000)


def test_what_is_written_for_an_hour_is_counted_apart():
    cache = PromptCache()
    used = cache.read_marked("m", prompt(5, p2=HOUR, p4=FIVE_MINUTES))
    assert used == written(5_000, 0, short=2_000, long=2_000)


def written(whole, cached, short=0, long=0):
    return Usage(whole, cached, short + long, written_5m=short, written_1h=long)


def test_a_prompt_too_short_to_be_cached_is_not():
    cache = PromptCache()
    assert cache.read_marked("m", prompt(2, tokens=500, p2=FIVE_MINUTES)) == written(1_000, 0, 0)
    assert cache.read_marked("m", prompt(2, tokens=500, p2=FIVE_MINUTES)).cached == 0


def test_the_lifetime_of_a_block_is_the_longest_that_a_mark_in_it_asks_for():
    assert piece({"type": "text", "text": "x"}).lifetime == 0
    assert piece({"type": "text", "text": "x", "cache_control": {"type": "ephemeral"}}).lifetime == FIVE_MINUTES
    inside = [{"type": "text", "text": "x", "cache_control": {"type": "ephemeral", "ttl": "1h"}}]
    assert piece({"type": "tool_result", "content": inside}).lifetime == HOUR


def test_a_mark_of_the_whole_request_is_for_its_last_block():
    asked = {"messages": [{"role": "user", "content": "a"}, {"role": "user", "content": "b"}]}
    assert [part.lifetime for part in Messages().prompt(asked)] == [0, 0]
    asked["cache_control"] = {"type": "ephemeral"}
    assert [part.lifetime for part in Messages().prompt(asked)] == [0, FIVE_MINUTES]
