"""Reports on stories, written for people and for programs."""

import csv
import io
import json
from hashlib import sha256

import msgspec
import pytest

from instrumentation.accounting.ledger.sums import ledger
from instrumentation.accounting.story import (
    CallStory,
    Inflicted,
    KeptWarm,
    Missed,
    MissStory,
    PageStory,
    RepackStory,
    Story,
    StoryParts,
)
from instrumentation.reports import gather as report
from instrumentation.reports import report as report_words
from instrumentation.reports.gather import (
    Report,
    Wanted,
    gather,
    since,
)
from instrumentation.reports.output_formats import written
from pager.errors import ConfigError, StoreCorrupt
from pager.log.events import (
    AnswerFinished,
    BranchOpened,
    CallReceived,
    SessionOpened,
)
from pager.log.store import Batch
from pager.log.stores.memory.store import Store
from pager.pricing.rates import in_force
from pager.wire.dialects import load

MODELS = in_force("anthropic", {})
DAY = 86_400.0


def call(number, *, branch=0, dollars=None, **more):
    """A call that is paged from its third on."""
    client = StoryParts(resent=100, unused_schemas=50, user=10, stale=840 * number)
    paged = number > 2
    sent = StoryParts(resent=100, unused_schemas=50, user=10, stubs=60) if paged else client
    cost = float(sent.total)
    per = {"dollars": cost * dollars, "dollars_before": client.total * dollars} if dollars else {}
    values = {
        "cached": 100,
        "output": 5,
        "cost": cost,
        "cost_before": float(client.total),
        "new": 40,
        "working": 7,
        **per,
    }
    inflicted = Inflicted(stubs=6.0) if paged else Inflicted()
    values = {"inflicted": inflicted, "cached_before": 100, "input": sent.total, **values, **more}
    return CallStory(branch, number, 1, number * DAY / 2, "some-model", client=client, sent=sent, **values)


REPACK = RepackStory("policy", "1 of 1 pages can go", 1, 840, 30, 34.5, warm=True)


def a_story(name="s_1", calls=4, **more):
    told = [call(number, repack=REPACK if number == 3 else None, **more) for number in range(1, calls + 1)]
    pages = [
        PageStory("pg_1", 0, "result", "read", 840, "rsee"[:calls]),
        PageStory("pg_2", 0, "result", "read", 9, "r..."),
    ]
    return Story(name, "pi/0.73", told, pages, "the-key", "fifo_age", 2)


def reported(*stories, by="session", overview=False, unread=(), with_content=False):
    return Report(stories, ledger(stories, by), overview, unread, with_content)


def lines(found, **more):
    return [" ".join(line.split()) for line in report_words.as_text(found, **more).splitlines()]


def test_an_overview_of_a_session_has_money_first_then_parts_and_what_happened():
    told = lines(reported(a_story(dollars=0.001), by="call", overview=True))
    assert told[0] == "ctxpager saved $5.76 of $9.04 (63.7 %), in 4 calls of 1 session."
    assert told[2:7] == [
        "session s_1 (the-key), pi/0.73, some-model",
        "calls 4 answered, in 1 branch",
        "before ▃▅▇█ up to 3,520 tokens",
        "after ▃▅▁▁ up to 1,840 tokens",
        "cost ▅█▁▁ up to $1.8400",
    ]
    assert "tokens of prompts before share removed after share" in told
    assert "stale results ~ 8,400 92.9 % 5,880 2,520 27.9 %" in told
    assert "put in by paging 0 0.0 % 120 1.3 %" in told
    assert "all 9,040 100.0 % 5,880 3,280 36.3 %" in told
    assert "~ waste 9,000 99.6 % 5,880 3,120 34.5 %" in told
    assert "money $ share token-equivalents*" in told
    assert "without ctxpager 9.04 100.0 % 9,040" in told
    assert "removed -5.77 -63.8 % -5,772" in told
    assert "cost of paging: stubs 0.0120 0.1 % 12" in told
    assert "with ctxpager 3.28 36.3 % 3,280" in told
    assert "12.2 % of prompts were cached, 4.4 % without ctxpager." in told
    assert "A token was sent 56.5 times on average; at most 7 were in use at once." in told
    assert "0 results, 0 tools fetched back, 0 calls corrected, 1 repack, 2 failed attempts." in told
    assert "0:3 2,680 220 0.2200 2.68 1 result removed, 840 tokens" in told
    assert told[-1] == "* token-equivalents: units of one uncached input token of the call's model"


def test_the_fault_rate_says_how_often_what_was_removed_was_missed():
    repack = RepackStory("policy", "r", pages=6)
    calls = [call(1, repack=repack), call(2, pages_in=2, missed=2), call(3, pages_in=1), call(4)]
    told = reported(Story("s_1", "pi/0.73", calls))
    assert "Fault rate: of 6 removed results 2 missed, 1.5 times each, 0.75 fetches a call." in lines(told)
    total = report_words.as_json(told)["total"]
    assert (total["evicted"], total["missed"], total["pages_in"]) == (6, 2, 3)
    assert (total["faults_per_page"], total["faults_per_call"]) == (1.5, 0.75)


def test_a_session_that_was_never_paged_has_no_fault_rate():
    assert "Fault rate" not in " ".join(lines(reported(Story("s_1", "pi/0.73", [call(1)]))))


def missing(*reasons, dollars=None):
    """A session whose calls missed the cache for these reasons, and of which one prompt was kept warm."""
    calls = []
    for at, reason in enumerate(reasons, 1):
        miss = MissStory(reason, 20_000, 100.0, 100.0 * dollars if dollars else None, 400.0, 300.0)
        calls.append(call(at, dollars=dollars, miss=miss, cold_before=Missed(1, 25_000, 120.0, 120.0 * (dollars or 0))))
    warm = KeptWarm(2, 50.0, 50.0 * (dollars or 0), 1, 90.0, 90.0 * (dollars or 0))
    return Story("s_1", "pi", [*calls, call(len(calls) + 1, dollars=dollars, kept_warm=warm)])


def test_cache_misses_pauses_and_keeping_warm_have_a_line_each():
    told = " ".join(lines(reported(missing("pause", "pause", "tools", dollars=0.001), by="call", overview=True)))
    cost = 1_000 + 1_840 + 2 * 220
    share = f"{100 * 300 / cost:.1f} % of the cost"
    assert (
        f"Cache misses: 3 (2 pauses, 1 tools changed); 60.0k tokens, $0.3000 more than reading them ({share})." in told
    )
    assert "Written again after pauses: 40.0k tokens, $0.2000; 75.0k, $0.3600 without ctxpager." in told
    assert "Keeping warm: 2 refreshes for $0.0500, 1 call rescued, $0.0900: $0.0400 saved." in told
    assert "keeping warm: rescued -0.0900 -1.0 % -90 keeping warm: refreshes 0.0500 0.6 % 50" in told
    assert "cache missed: tools changed, 20.0k tokens" in told


def test_without_prices_misses_are_in_token_equivalents():
    told = " ".join(lines(reported(missing("repack"))))
    assert "Cache misses: 1 (1 repack); 20.0k tokens, 100 token-equivalents* more than reading them" in told
    assert "Keeping warm: 2 refreshes for 50 token-equivalents*, 1 call rescued, 90: 40 saved." in told


def test_a_session_without_misses_says_nothing_of_them():
    told = " ".join(lines(reported(a_story())))
    assert "Cache misses" not in told
    assert "keeping warm" not in told.lower()


def test_misses_are_among_the_plain_values_by_their_reason():
    row = report_words.as_rows(reported(missing("pause", "history", "pause")))[0]
    assert (row["cache_misses"], row["cache_miss_tokens"], row["cost_misses"]) == (3, 60_000, 300.0)
    assert (row["cache_misses_pause"], row["cost_misses_pause"], row["cache_misses_history"]) == (2, 200.0, 1)
    assert (row["cold_calls_before"], row["cold_tokens_before"], row["cost_cold_before"]) == (3, 75_000, 360.0)
    assert (row["refreshes"], row["rescues"], row["cost_refreshes"], row["cost_rescued"]) == (2, 1, 50.0, 90.0)
    assert row["cost"] == pytest.approx(row["cost_before"] - row["avoided_cost"] + 12 + 50 - 90)


def test_groups_have_a_line_of_seven_columns_each_and_one_for_all_of_them():
    told = lines(reported(a_story(dollars=0.001), a_story("s_2", calls=1, dollars=0.001), by="session"))
    assert told[0] == "ctxpager saved $5.76 of $10.04 (57.4 %), in 5 calls of 2 sessions."
    assert told[2:4] == ["without with", "session calls before after ctxpager $ it $ saved"]
    assert told[5] == "s_1 4 9,040 3,280 9.04 3.28 63.7 %"
    assert told[6] == "s_2 1 1,000 1,000 1.00 1.00 0.0 %"
    assert told[7] == "total 5 10.0k 4,280 10.04 4.28 57.4 %"
    one = lines(reported(a_story(), by="harness"), width=100)
    assert one[0] == "ctxpager saved 5,760 of 9,040 token-equivalents* (63.7 %), in 4 calls of 1 session."
    assert one[2:4] == ["without with", "harness calls before after ctxpager * it * saved"]
    assert one[5] == "pi/0.73 4 9,040 3,280 9,040 3,280 63.7 %"
    assert not any(line.startswith("total") for line in one)


def test_a_loss_and_a_session_that_was_not_paged_are_said_first():
    dearer = a_story(dollars=0.001, cost_before=200.0, dollars_before=0.2)
    assert lines(reported(dearer))[0].startswith(
        "ctxpager cost $2.48 more than $0.8000 without it (310.0 %), in 4 calls"
    )
    unpaged = a_story(calls=2, dollars=0.001)
    assert lines(reported(unpaged))[0] == "Nothing was paged: 2 calls of 1 session cost $2.84."


def test_dollars_are_shown_where_prices_are_known_and_what_is_missing_is_said():
    told = lines(reported(a_story(dollars=0.001), a_story("s_2")))
    assert told[5] == "s_1 4 9,040 3,280 9.04 3.28 63.7 %"
    assert told[6] == "s_2 4 9,040 3,280 63.7 %", "in dollars nothing is known of it"
    assert "of 4 calls the model's price is not known: they are in no sum of dollars" in told
    assert "without ctxpager 9.04 100.0 % 18,080" in told
    small = lines(reported(a_story(dollars=1e-6)))
    assert "with ctxpager 0.0033 36.3 % 3,280" in small


def test_what_is_estimated_or_can_not_be_read_is_said():
    told = lines(reported(a_story(estimated=True), unread=["s_9: it is damaged"]))
    assert "of 4 calls the provider reported no tokens: theirs are estimated" in told
    assert told[-1] == "can't be read: s_9: it is damaged"


def test_requests_that_were_sent_again_have_their_line():
    again = a_story(inflicted=Inflicted(page_ins=9.0, corrections=3.0, page_in_tokens=70, correction_tokens=30))
    told = lines(reported(again))
    assert "sent once more, for fetches 400 4.4 %" in told
    assert "cost of paging: results fetched back 0.4 % 36" in told
    assert "cost of paging: corrected calls 0.1 % 12" in told


@pytest.mark.parametrize(
    ("more", "words"),
    [
        (
            {"repack": msgspec.structs.replace(REPACK, cause="rescue")},
            "1 result removed, 840 tokens, to fit the model's window",
        ),
        ({"repack": msgspec.structs.replace(REPACK, cause="odd")}, "1 result removed, 840 tokens, odd"),
        ({"pages_in": 2, "schemas_in": 1, "corrected": 2}, "3 fetched back; 2 calls corrected"),
    ],
)
def test_what_happened_at_a_call_is_said_in_words(more, words):
    told = lines(reported(Story("s_1", "pi", [call(1, **more)]), by="call", overview=True))
    assert words in " ".join(told)


def test_a_session_in_which_nothing_happened_lists_no_calls():
    told = lines(reported(a_story(calls=2), by="call", overview=True))
    assert not any(line.startswith("call before") for line in told)


def test_no_number_is_cut_in_eighty_columns_or_fewer():
    large = call(3, branch=12, dollars=987.654321)
    big = StoryParts(resent=9_876_543_210, stale=12_345_678_901, user=1_234_567)
    large = msgspec.structs.replace(
        large, client=big, sent=big, call=98_765, cost=98_765_432.1, cost_before=198_765_432.1, repack=REPACK
    )
    stories = [Story("s_0123456789abcdef", "an agent of a rather long name", [large])] * 3
    for width in (40, 80, 200):
        for by, overview in (("session", False), ("call", False), ("call", True)):
            told = report_words.as_text(reported(*stories, by=by, overview=overview), width=width)
            assert max(map(len, told.splitlines())) <= max(80, width)
            assert "…" not in told
            assert f"{987.654321 * 220 * 3:,.2f}" in told
            assert "296,296,296" in told


def test_an_empty_prompt_breaks_nothing():
    empty = Story("s_1", "", [CallStory(0, 1, 1, 0.0, "m")])
    told = lines(reported(empty, by="call", overview=True))
    assert told[2] == "session s_1, unknown agent, m"
    assert report_words.values(ledger([empty]).total)["amplification"] == 0.0


@pytest.mark.parametrize(
    ("series", "top", "expected"),
    [([0, 1, 2, 4], 0, "▁▃▅█"), ([1, 1], 8, "▂▂"), ([], 0, ""), ([0, 0], 0, "▁▁"), (list(range(400)), 0, None)],
)
def test_a_sparkline_shows_how_a_series_goes(series, top, expected):
    shown = report_words.spark(series, 72, top)
    assert shown == expected if expected is not None else (len(shown), shown[0], shown[-1]) == (72, "▁", "█")


def test_text_for_a_terminal_has_its_width_and_color():
    assert max(map(len, report_words.as_text(reported(a_story()), width=80).splitlines())) <= 80
    assert "\x1b[" in report_words.as_text(reported(a_story()), color=True)
    assert "\x1b[" not in report_words.as_text(reported(a_story()))


# ---------------------------------------------------------------- for programs


def test_plain_values_have_the_ledger_and_the_story():
    plain = json.loads(written(report_words, reported(a_story(), by="call", overview=True), "json"))
    assert (plain["by"], plain["failed"], plain["unread"], len(plain["rows"])) == ("call", 2, [], 4)
    total = plain["total"]
    assert total["client"] == total["upstream"] + total["avoided"] - total["inflicted"] == 9_040
    assert (total["client_stale"], total["sent_stale"], total["cost_stubs"]) == (8_400, 2_520, 12.0)
    assert plain["story"]["calls"][2]["repack"]["cause"] == "policy"
    assert plain["story"]["pages"][0]["states"] == "rsee"
    assert "story" not in report_words.as_json(reported(a_story()))


def test_a_table_for_programs_has_one_row_a_group():
    rows = list(csv.DictReader(io.StringIO(written(report_words, reported(a_story(), by="day"), "csv"))))
    assert [(row["name"], row["calls"]) for row in rows] == [
        ("1970-01-01", "1"),
        ("1970-01-02", "2"),
        ("1970-01-03", "1"),
    ]
    assert sum(int(row["client"]) for row in rows) == 9_040
    assert None not in rows[0]


def test_a_page_for_browsers_shows_one_session():
    shown = report_words.as_html(reported(a_story()))
    assert shown.lstrip().lower().startswith("<!doctype html>")
    with pytest.raises(ConfigError, match=r"shows one session; name one of 2, such as s_1, s_2"):
        report_words.as_html(reported(a_story(), a_story("s_2")))


def test_text_of_pages_is_in_a_page_for_browsers_only_if_asked_for():
    page = PageStory("pg_1", 0, "result", "read", 840, "rsee", "src/secret.py", "the secret itself")
    told = Story("s_1", "pi", a_story().calls, [page])
    for with_content in (True, False):
        shown = report_words.as_html(reported(told, with_content=with_content))
        assert ("the secret itself" in shown, "src/secret.py" in shown) == (with_content, with_content)
    for form in ("text", "csv"):
        assert "secret" not in written(report_words, reported(told, with_content=True), form)


# ---------------------------------------------------------------- what is reported on


def test_a_story_from_a_time_on_has_its_later_calls_and_their_pages():
    whole = a_story()
    assert since(whole, 0.0) is whole
    later = since(whole, 1.5 * DAY)
    assert [one.call for one in later.calls] == [3, 4]
    assert [(page.name, page.states) for page in later.pages] == [("pg_1", "ee")]


def logged(store, name, at, *, damaged=False):
    """A session of one call of an unreadable body, answered at some time."""
    skeleton = f"no json: {name}".encode()
    digest = sha256(skeleton).digest()
    frame = f"{digest.hex()}||".encode()
    body = sha256(frame).hexdigest()
    where = (0, 1, 1, "chat", "/v1/chat/completions", "m")
    received = CallReceived(*where, stream=False, body=body, size=len(skeleton), skeleton=digest.hex(), cuts=[])
    answer = AnswerFinished(0, 1, 1, 200, "stop", "", 0, 1.0, 2.0)
    opened = SessionOpened("local", name, "x-session-id", "pi")
    events = [opened, BranchOpened(0, "root", "chat"), received, answer]
    store.append(Batch(name, at, events, {} if damaged else {digest: skeleton}))


def test_sessions_with_calls_since_a_time_are_reported_on():
    store = Store()
    for at in range(1, 6):
        logged(store, f"s_{at}", at * DAY)
    names = [one.session for one in gather(store, Wanted(), MODELS, load).stories]
    assert names == ["s_1", "s_2", "s_3", "s_4", "s_5"]
    found = gather(store, Wanted(since=2.5 * DAY, by="day"), MODELS, load)
    assert [row.name for row in found.ledger.rows] == ["1970-01-04", "1970-01-05", "1970-01-06"]
    assert not found.overview
    with pytest.raises(ConfigError, match=r"there is no answered call to report on$"):
        gather(store, Wanted(since=9 * DAY), MODELS, load)


def test_many_answers_are_looked_through_for_those_since_a_time():
    store = Store()
    for at in range(report.FIRST_LOOK + 5):
        store.append(Batch("s_1", DAY + at, [AnswerFinished(0, at, 1, 200, "stop", "", 0, 1.0, 2.0)]))
    assert len(report._answers(store, DAY)) == report.FIRST_LOOK + 5
    assert len(report._answers(store, DAY + 5)) == report.FIRST_LOOK


def test_a_named_session_is_told_call_by_call_unless_it_is_summed_up():
    store = Store()
    logged(store, "s_1", DAY)
    one = gather(store, Wanted("s_1"), MODELS, load)
    assert (one.overview, one.ledger.by) == (True, "call")
    by_model = gather(store, Wanted("s_1", by="model"), MODELS, load)
    assert (by_model.overview, by_model.ledger.rows[0].name) == (False, "m")


def test_a_damaged_session_spoils_only_its_own_report():
    store = Store()
    logged(store, "s_1", DAY)
    logged(store, "s_2", DAY, damaged=True)
    found = gather(store, Wanted(), MODELS, load)
    assert [one.session for one in found.stories] == ["s_1"]
    assert found.unread[0].startswith("s_2: ")
    with pytest.raises(StoreCorrupt):
        gather(store, Wanted("s_2"), MODELS, load)
    alone = Store()
    logged(alone, "s_2", DAY, damaged=True)
    with pytest.raises(ConfigError, match="1 sessions can't be read, run `ctxpager check`"):
        gather(alone, Wanted(), MODELS, load)
