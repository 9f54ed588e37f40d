"""Short conversations, and the branches a person would name."""

from hashlib import sha256

from pager.request_values import (
    Block,
    Kind,
    Message,
    Request,
)
from pager.sessions.identity import Key
from pager.sessions.lineage import (
    Session,
    continued,
    history,
    place,
    receive,
)

KEY = Key("x-session-id", "s")


def said(role, text, *call_ids):
    norm = sha256(f"{role} {text} {call_ids}".encode()).digest()
    return Message(role, norm, tuple(Block(Kind.CALL, call_id=call_id) for call_id in call_ids))


def request(tools=True, system="", follows=""):
    return Request(
        dialect="chat", body=b"", members={}, items_key="messages", items=(), starts=(), separator=b"", digests=(),
        model="m", stream=False, system=sha256(system.encode()).digest(), has_tools=tools, follows=follows,
    )  # fmt: skip


class Told:
    """A session told call by call."""

    def __init__(self):
        self.session = Session("s", "local")

    def call(self, *messages, key=KEY, answer_id="", issues=(), **facts):
        past = history(request(**facts), list(messages), key)
        spot = place(self.session, past)
        receive(self.session, spot, past, past.norms, body=past.fingerprint.hex())
        self.session.answered(spot.branch.number, spot.call, answer_id, issues)
        opened = spot.opened and (spot.opened.reason, spot.opened.parent, spot.opened.fork_call)
        return (spot.branch.number, spot.call, spot.attempt), opened


SYSTEM, TASK = said("system", "be good"), said("user", "do it")
DOING, DONE = said("assistant", "", "c1"), said("tool", "done", "c1")
AGAIN, ANSWER = said("user", "and now?"), said("assistant", "that")


def test_a_call_that_begins_with_the_last_one_is_the_next_of_its_branch():
    told = Told()
    assert told.call(SYSTEM, TASK) == ((0, 1, 1), ("root", None, 0))
    assert told.call(SYSTEM, TASK, DOING, DONE) == ((0, 2, 1), None)
    assert told.call(SYSTEM, TASK, DOING, DONE, ANSWER, AGAIN) == ((0, 3, 1), None)


def test_the_same_messages_again_are_another_attempt():
    told = Told()
    told.call(SYSTEM, TASK)
    assert told.call(SYSTEM, TASK)[0] == (0, 1, 2)
    assert told.call(SYSTEM, TASK)[0] == (0, 1, 3)
    assert told.call(SYSTEM, TASK, DOING, DONE)[0] == (0, 2, 1)


def test_a_rewind_forks_after_the_last_common_call():
    told = Told()
    told.call(SYSTEM, TASK)
    told.call(SYSTEM, TASK, DOING, DONE)
    told.call(SYSTEM, TASK, DOING, DONE, ANSWER, AGAIN)
    other = said("user", "something else")
    assert told.call(SYSTEM, TASK, DOING, DONE, ANSWER, other) == ((1, 3, 1), ("fork", 0, 2))
    assert told.call(SYSTEM, TASK, DOING, DONE, ANSWER, AGAIN, ANSWER, AGAIN)[0] == (0, 4, 1)


def test_a_compaction_forks_at_the_beginning():
    told = Told()
    told.call(SYSTEM, TASK)
    told.call(SYSTEM, TASK, DOING, DONE)
    assert told.call(SYSTEM, said("user", "summary")) == ((1, 1, 1), ("fork", 0, 0))


def test_a_title_request_is_a_line_of_its_own():
    told = Told()
    told.call(SYSTEM, TASK)
    assert told.call(said("system", "title"), TASK, tools=False) == ((1, 1, 1), ("side", None, 0))
    assert told.call(SYSTEM, TASK, DOING, DONE)[0] == (0, 2, 1)


def test_a_summary_of_the_whole_history_does_not_advance_the_main_branch():
    told = Told()
    told.call(SYSTEM, TASK)
    assert told.call(SYSTEM, TASK, ANSWER, said("user", "summarise"), tools=False)[0] == (1, 1, 1)
    assert told.call(SYSTEM, TASK, DOING, DONE) == ((0, 2, 1), None)


def test_a_sub_agent_with_the_parents_words_is_not_the_parent():
    told = Told()
    told.call(SYSTEM, TASK)
    child = Key("x-session-id", "s", lane="agent-1")
    assert told.call(SYSTEM, TASK, key=child) == ((1, 1, 1), ("subagent", None, 0))
    assert told.call(SYSTEM, TASK, DOING, DONE, key=child)[0] == (1, 2, 1)
    assert told.call(SYSTEM, TASK, DOING, DONE)[0] == (0, 2, 1)


def test_branches_that_run_at_the_same_time_stay_apart():
    told = Told()
    left, right = said("user", "left"), said("user", "right")
    told.call(SYSTEM, left)
    assert told.call(SYSTEM, right)[0] == (1, 1, 1)
    assert told.call(SYSTEM, left, ANSWER, AGAIN)[0] == (0, 2, 1)
    assert told.call(SYSTEM, right, ANSWER, AGAIN)[0] == (1, 2, 1)


def test_a_history_that_the_client_rewrites_every_turn_is_one_branch():
    told = Told()
    told.call(SYSTEM, said("user", "time 1, do it"), issues=["c1"])
    assert told.call(SYSTEM, TASK, DOING, DONE, said("user", "time 2"), issues=["c2"]) == ((0, 2, 1), None)
    second = (said("assistant", "", "c2"), said("tool", "two", "c2"))
    assert told.call(SYSTEM, TASK, said("user", "time 3"), DOING, DONE, *second) == ((0, 3, 1), None)


def test_a_resumed_session_with_a_new_date_in_its_first_message_is_one_branch():
    told = Told()
    told.call(SYSTEM, said("user", "Monday, do it"), issues=["c1"])
    told.call(SYSTEM, said("user", "Monday, do it"), DOING, DONE)
    assert told.call(SYSTEM, said("user", "Tuesday, do it"), DOING, DONE, ANSWER, AGAIN) == ((0, 3, 1), None)


def test_an_edit_after_the_newest_tool_call_is_a_fork_and_no_rewriting():
    told = Told()
    told.call(SYSTEM, TASK, issues=["c1"])
    told.call(SYSTEM, TASK, DOING, DONE)
    told.call(SYSTEM, TASK, DOING, DONE, ANSWER, AGAIN)
    assert told.call(SYSTEM, TASK, DOING, DONE, ANSWER, said("user", "no, this")) == ((1, 3, 1), ("fork", 0, 2))


def test_a_copied_slice_under_another_system_prompt_is_a_side_branch():
    told = Told()
    told.call(SYSTEM, TASK, issues=["c1"])
    told.call(SYSTEM, TASK, DOING, DONE)
    assert told.call(said("system", "memory agent"), DOING, DONE, AGAIN) == ((1, 1, 1), ("side", None, 0))


def test_a_history_that_goes_on_under_another_system_prompt_forks_from_the_one_that_it_repeats():
    told = Told()
    told.call(SYSTEM, TASK, issues=["c1"])
    told.call(SYSTEM, TASK, DOING, DONE)
    fresh, more = said("system", "Tuesday"), said("developer", "be brief")
    assert told.call(fresh, TASK, DOING, DONE, ANSWER, AGAIN) == ((1, 3, 1), ("fork", 0, 2))
    assert told.call(fresh, more, TASK, DOING, DONE, ANSWER, AGAIN, ANSWER) == ((2, 4, 1), ("fork", 1, 3))
    assert told.call(fresh, more, TASK, DOING, DONE, said("user", "no")) == ((3, 3, 1), ("fork", 2, 2))
    assert told.call(SYSTEM, TASK, DOING, DONE, ANSWER)[0] == (0, 3, 1)


def test_a_system_prompt_beside_the_messages_may_change_too():
    told = Told()
    told.call(TASK, system="Monday", issues=["c1"])
    told.call(TASK, DOING, DONE, system="Monday")
    assert told.call(TASK, DOING, DONE, ANSWER, AGAIN, system="Tuesday") == ((1, 3, 1), ("fork", 0, 2))


def test_the_same_first_words_under_another_system_prompt_are_another_line():
    told = Told()
    told.call(SYSTEM, TASK)
    assert told.call(said("system", "plan first"), TASK) == ((1, 1, 1), ("root", None, 0))
    assert told.call(said("system", "sum up"), TASK, ANSWER, AGAIN, tools=False) == ((2, 1, 1), ("side", None, 0))


def test_ids_that_a_local_model_repeats_prove_nothing():
    told = Told()
    told.call(SYSTEM, TASK, issues=["call_0"])
    told.call(SYSTEM, TASK, said("assistant", "", "call_0"), said("tool", "x", "call_0"), issues=["call_0"])
    other = (said("user", "other"), said("assistant", "", "call_0"), said("tool", "y", "call_0"))
    assert told.call(SYSTEM, *other) == ((1, 1, 1), ("fork", 0, 0))


def test_a_call_that_names_the_answer_it_follows_continues_that_branch():
    told = Told()
    told.call(TASK, answer_id="r1")
    assert told.call(DONE, follows="r1", answer_id="r2") == ((0, 2, 1), None)
    assert told.call(AGAIN, follows="r2", answer_id="r3")[0] == (0, 3, 1)
    assert told.call(said("user", "rather"), follows="r1") == ((1, 2, 1), ("fork", 0, 1))


def test_histories_of_different_keys_never_continue_each_other():
    told = Told()
    told.call(SYSTEM, TASK)
    past = history(request(), [SYSTEM, TASK, DOING, DONE], Key("x-session-id", "other"))
    assert continued(told.session, past) is None


def test_the_marks_of_a_long_history_hold_the_fingerprint_of_every_beginning():
    messages = [said("user", str(number)) for number in range(150)]
    fingerprints = list(history(request(), messages, None).fingerprints())
    beginnings = [history(request(), messages[: length + 1], None).fingerprint for length in range(150)]
    assert sorted(fingerprints) == sorted(beginnings)
    assert fingerprints[0] == beginnings[-1]


def test_a_session_with_very_many_branches_still_finds_each_of_them():
    told = Told()
    starts = [(SYSTEM, said("user", f"job {number}")) for number in range(300)]
    for start in starts:
        told.call(*start)
    for number, start in enumerate(starts):
        assert told.call(*start, ANSWER, AGAIN) == ((number, 2, 1), None)
        assert told.call(*start, ANSWER, AGAIN)[0] == (number, 2, 2)
    assert len(told.session.tips) == 300


def test_a_fork_of_a_fork_keeps_the_depth_of_the_calls_it_shares():
    told = Told()
    told.call(SYSTEM, TASK)
    told.call(SYSTEM, TASK, DOING, DONE)
    told.call(SYSTEM, TASK, DOING, DONE, ANSWER, said("user", "a"))
    assert told.call(SYSTEM, TASK, DOING, DONE, ANSWER, said("user", "b")) == ((1, 3, 1), ("fork", 0, 2))
    assert told.call(SYSTEM, TASK, DOING, DONE, ANSWER, said("user", "c")) == ((2, 3, 1), ("fork", 1, 2))
