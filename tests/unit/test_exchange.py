"""What follows a leg with held calls, and how they are answered."""

import json

import pytest

from pager.paging.held_calls import (
    ANSWER_NOW,
    LAST,
    LONGEST,
    ROUNDS,
    Next,
    Refusal,
    Replies,
    follows,
    reply,
)
from pager.wire.stitching import HeldCall, LegEnd

A, B = "pg_aaaaaaaaaaaaaaaa", "pg_bbbbbbbbbbbbbbbb"
PAGES = {A: "one\ntwo\n", B: "x" * 5_000}


def asked(*handles, call_id="h1", **more):
    return HeldCall(call_id, "page_in", json.dumps({"pages": handles, **more}))


def refused(call):
    return Refusal("invalid" if call.name == "read" else "imitated", f"{call.name} was not run")


def answered(*calls, limit=100_000, rounds=1):
    return reply(LegEnd(calls), "page_in", PAGES.get, refused, limit=limit, rounds=rounds)


@pytest.mark.parametrize(
    ("held", "rounds", "following"),
    [
        (LegEnd(), 0, Next.FINISH),
        (LegEnd((asked(A),)), 0, Next.RESEND),
        (LegEnd((asked(A),)), ROUNDS - 1, Next.RESEND),
        (LegEnd((asked(A),)), LONGEST, Next.FINISH),
        (LegEnd((asked(A),), mixed=True), 0, Next.LATER),
        (LegEnd((asked(A),), mixed=True), LONGEST, Next.FINISH),
        (LegEnd((asked(A),), whole=False), 0, Next.FINISH),
        (LegEnd((asked(A),), mixed=True, whole=False), 0, Next.FINISH),
    ],
    ids=["nothing", "held", "last round", "one too many", "mixed", "mixed, one too many", "cut", "mixed, cut"],
)
def test_what_follows_a_leg(held, rounds, following):
    assert follows(held, rounds) is following


def test_a_page_is_given_whole():
    told = answered(asked(A))
    assert told == Replies((f"=== {A}, all 2 lines ===\none\ntwo\n",), (A,), (), 0)


def test_every_held_call_gets_an_answer_of_its_own_in_their_order():
    told = answered(asked(A), asked("pg_cccccccccccccccc", call_id="h2"), asked(A, B, call_id="h3", search="x"))
    assert len(told.texts) == 3
    assert "pg_cccccccccccccccc" in told.texts[1]
    assert (told.pages, told.unknown) == ((A, B), ("pg_cccccccccccccccc",))


def test_a_handle_counts_once_however_often_it_is_asked_for():
    told = answered(asked(A), asked(A, call_id="h2"), asked("pg_cccccccccccccccc"), asked("pg_cccccccccccccccc"))
    assert (told.pages, told.unknown) == ((A,), ("pg_cccccccccccccccc",))


def test_the_last_answers_tell_the_model_to_go_on():
    told = answered(asked(A), asked(call_id="h2"), rounds=ROUNDS)
    assert all(text.endswith(LAST) for text in told.texts)
    assert "ask for more" in LAST


def test_a_model_that_asks_once_more_gets_its_pages_and_is_told_to_answer():
    told = answered(asked(A), rounds=LONGEST)
    assert told.texts == (f"=== {A}, all 2 lines ===\none\ntwo\n{ANSWER_NOW}",)
    assert told.pages == (A,)


def test_the_limit_holds_for_all_answers_together():
    told = answered(asked(B), asked(B, call_id="h2"), limit=6_000)
    assert "x" * 5_000 in told.texts[0]
    assert 0 < told.texts[1].count("x") < 1_000


def test_where_no_room_is_left_a_question_is_still_answered():
    told = answered(asked(B), asked(B, call_id="h2"), limit=-5)
    assert len(told.texts) == 2
    assert all(text and "x" * 100 not in text for text in told.texts)


def test_calls_of_other_tools_are_answered_in_their_places_and_counted():
    told = answered(HeldCall("c1", "write", "{}"), asked(A), HeldCall("c2", "read", "{}"), limit=100)
    assert (told.texts[0], told.texts[2]) == ("write was not run", "read was not run")
    assert (told.imitated, told.invalid, told.pages) == (1, ("read",), (A,))


def test_what_is_no_question_is_answered_with_how_to_ask():
    told = answered(HeldCall("h1", "page_in", "no json"), HeldCall("h2", "page_in", ""))
    assert ["not JSON" in told.texts[0], "No handle" in told.texts[1]] == [True, True]
    assert (told.pages, told.unknown, told.imitated) == ((), (), 0)
