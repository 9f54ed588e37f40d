"""The dashboard in a real browser: quick, live, reached by keyboard, in both schemes, and it keeps to itself."""

import asyncio
import json
import re
import time
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from random import Random

import pytest
from waiting import PATIENCE

from pager.log.events import (
    AnswerFinished,
    BranchOpened,
    CallReceived,
    SessionOpened,
)
from pager.log.store import Batch
from pager.log.stores import open_store
from pager.paging.pager import Pager
from pager.paging.policy_choice import Arms, NamedPolicy
from pager.paging.policy_loader import load_policy
from pager.pricing.rates import in_force
from pager.proxy.call_log import CallLog
from pager.proxy.log_records import Incoming, Outcome
from pager.request_values import Answer, ToolUse, Usage
from pager.testing.scripted import Say, Script
from pager.wire.dialects import load

CHAT = load("chat")
MODEL = "gpt-5"
TOOLS = [
    {"type": "function", "function": {"name": name, "description": f"To {name}.", "parameters": {"type": "object"}}}
    for name in ("read_file", "run_tests", "search", "edit_file")
]
SECRET = "lantern"
WHOLE = "main > div[data-whole]"
UNSEEN = re.compile(rf"{SECRET}|src/part", re.IGNORECASE)


def _line(number, line):
    return f"{line}: the {SECRET} of {number * 7919 + line * 104729} stands in src/part{number}\n"


class Log:
    """Writes sessions into a folder's log, as the proxy would."""

    def __init__(self, folder):
        folder.mkdir()
        self.store = open_store(f"sqlite:{folder}")

    def session(self, key, calls, policy="cost_aware", compacted=60):
        """A session of so many calls that read files; the client compacts its history now and then."""
        with ThreadPoolExecutor(1) as thread:  # the browser has this thread's event loop
            return thread.submit(asyncio.run, self._play(key, calls, policy, compacted)).result()

    async def _play(self, key, calls, policy, compacted):
        rule = NamedPolicy(policy, load_policy(policy, {}))
        call_log = CallLog(self.store, load, 10, Pager(Arms(rule), in_force("", {}), load, marks=False))
        chance = Random(calls)
        opening = [json.dumps({"role": "system", "content": "Be careful. " * 60})]
        history, before = [], 0
        for number in range(calls):
            if number % compacted == 0:
                told = json.dumps({"role": "user", "content": f"Part {number // compacted} of the {SECRET} task."})
                history, before = [*opening, told], 0
            told = max(0, number - 1 - int(chance.expovariate(0.4)))
            entry, message, before = await self._call(call_log, key, number, history, before, _line(told, 3))
            read = "".join(_line(number, line) for line in range(chance.randrange(8, 120)))
            result = {"role": "tool", "tool_call_id": f"c{number}", "content": read}
            history += [json.dumps(message), json.dumps(result)]
        await call_log.drain()
        return entry.session.id

    async def _call(self, call_log, key, number, history, before, quoted):
        at = 1_767_225_600.0 + 21 * number + 9_000 * (number // 35)  # a long pause now and then
        body = f'{{"model":"{MODEL}","tools":{json.dumps(TOOLS)},"messages":[{",".join(history)}]}}'.encode()
        headers = {"x-session-id": key, "user-agent": "example-agent/1"}
        entry = await call_log.receive(Incoming(CHAT, CHAT.parse(body), "local", headers, CHAT.path, "", at))
        name = TOOLS[number % 3]["function"]["name"]
        arguments = json.dumps({"path": f"src/part{number}.py"})
        function = {"name": name, "arguments": arguments}
        called = [{"id": f"c{number}", "type": "function", "function": function}]
        message = {"role": "assistant", "content": f"It says:\n{quoted}On to {number}.", "tool_calls": called}
        said = json.dumps({"id": "x", "choices": [{"index": 0, "message": message, "finish_reason": "tool_calls"}]})
        out = entry.paged.outgoing
        sent, size = (out.digest(entry.recipe.body), out.size) if out.changed else ("", len(body))
        again = sum(event.rewritten for event in entry.paged.events if event.kind == "Repacked")
        cached = max(0, min(before, size // 4) - again) if number % 35 else 0
        usage = Usage(size // 4, cached, output=60, tells_cached=True)
        outcome = Outcome(200, said.encode(), 300.0, 900.0, at + 1, sent=sent, sent_size=size if sent else 0)
        answer = Answer(text=message["content"], calls=(ToolUse(0, f"c{number}", name, arguments),), usage=usage)
        call_log.answered(entry, answer, outcome, len(body) // 4)
        return entry, message, size // 4

    def short_ones(self, count):
        """So many sessions of one call."""
        usage = Usage(input=1200, cached=900, output=50)
        for at in range(count):
            call = CallReceived(0, 1, 1, "chat", CHAT.path, MODEL, True, "b", 4000, "", [])
            answer = AnswerFinished(0, 1, 1, 200, "stop", "", 9, 1.0, 2.0, usage=usage)
            opened = SessionOpened("local", f"key-{at}", "x-session-id", f"agent-{at % 5}/1")
            events = [opened, BranchOpened(0, "root", "chat"), call, answer]
            last = self.store.append(Batch(f"s_{at:016x}", 1_767_000_000.0 + at, events, urgent=False))
        last.result()

    def close(self):
        self.store.close()


@contextmanager
def logged(folder):
    log = Log(folder)
    try:
        yield log
    finally:
        log.close()


@pytest.fixture(scope="module")
def usual(tmp_path_factory, running):
    """A proxy with a session of 140 calls in its log, and some others."""
    folder = tmp_path_factory.mktemp("usual") / "data"
    with logged(folder) as log:
        log.short_ones(60)
        session = log.session("a-long-session", 140, compacted=140)
    with running("http://127.0.0.1:9/v1", folder) as proxy:
        yield proxy.root, session


@pytest.fixture
def show(view):
    """Opens a page of a dashboard; when the test ends, nothing may have been complained of or asked of others."""
    opened = []

    def shown(root, path="/", **options):
        viewed = view(root + path, **options)
        opened.append((viewed, root))
        return viewed.page

    yield shown
    for viewed, root in opened:
        assert viewed.errors == []
        assert [asked for asked in viewed.asked if not asked.startswith((f"{root}/", "data:"))] == []


def until(page, true):
    """Wait until this is true in the page; its own way to wait is forbidden by the page's policy."""
    end = time.monotonic() + PATIENCE
    while not page.evaluate(true):
        assert time.monotonic() < end, true
        page.wait_for_timeout(50)


def tile(page, name):
    return page.locator(f"[data-sum={name}] b").inner_text()


def test_the_list_shows_sessions_and_finds_them(show, usual):
    page = show(usual[0])
    page.wait_for_selector("tbody tr")
    assert page.locator("tbody tr").count() == 50
    assert page.locator("tbody tr").first.locator("a").inner_text() == "a-long-session"
    assert page.locator(".cx-where").inner_text() == "1\u201350 of 61"
    page.get_by_label("Older sessions").click()
    until(page, "document.querySelector('.cx-where').textContent === '51\\u201361 of 61'")
    page.get_by_label("Search").fill("agent-3 key-1")
    until(page, "document.querySelectorAll('tbody tr').length === 2")
    assert page.locator("tbody tr a").all_inner_texts() == ["key-18", "key-13"]
    page.get_by_label("Search").fill("nothing like it")
    page.get_by_text("No session is like that.").wait_for()


def test_what_a_session_saved_is_worked_out_for_those_that_are_seen(show, usual):
    root, session = usual
    page = show(root)
    cell = page.locator("tbody tr").first.locator("td").last
    until(page, "/\\$/.test(document.querySelector('tbody tr td:last-child')?.textContent)")
    with urllib.request.urlopen(f"{root}/ui/api/sums?session={session}", timeout=PATIENCE) as response:
        sums = json.loads(response.read())
    sign = "\u2212" if sums["dollars_saved"] < 0 else ""
    assert cell.inner_text().startswith(f"{sign}${abs(sums['dollars_saved']):.2f}"[:5])
    assert page.locator("tbody tr").last.locator("td").last.inner_text() == "\u2013"


def test_a_session_shows_the_reports_charts(show, usual):
    root, session = usual
    page = show(root)
    page.get_by_role("link", name="a-long-session").click()
    page.wait_for_selector(WHOLE)
    assert page.title() == f"{session} \u2013 ctxpager"
    assert tile(page, "calls") == "140"
    assert page.locator(".cx-section h2").all_inner_texts() == [
        "Sums",
        "Context over calls",
        "Money over calls",
        "Page map",
        "Waste by cause",
        "Page-ins, repacks and cache misses",
        "Calls",
        "What was decided, and why",
    ]
    assert "example-agent/1" in page.locator("#facts").inner_text()
    assert page.locator("[data-outline]").count() == 0
    page.go_back()
    page.wait_for_selector(".db-list tbody tr")
    assert page.locator("h1").inner_text() == "Sessions"


def test_text_of_a_prompt_is_shown_only_where_it_is_asked_for(show, usual):
    root, session = usual
    page = show(root, f"/#/s/{session}")
    page.wait_for_selector(WHOLE)
    assert not UNSEEN.search(page.content())
    page.locator(".cx-map-scroller").click(position={"x": 40, "y": 10})
    page.wait_for_selector(".cx-detail pre")
    assert SECRET in page.locator(".cx-detail pre").inner_text()


def test_it_is_told_why_a_call_went_out_as_it_did(show, usual):
    root, session = usual
    page = show(root, f"/#/s/{session}")
    page.wait_for_selector(WHOLE)
    page.locator(".cx-events tbody tr").first.click()
    page.wait_for_selector(".db-why dl")
    told = page.locator(".db-why").inner_text()
    assert "repack by policy" in told
    assert "went (policy)" in told
    chosen = page.locator(".db-number").input_value()
    page.get_by_role("button", name="Next repack").click()
    until(page, f"document.querySelector('.db-number').value !== '{chosen}'")
    page.get_by_role("button", name="Previous repack").click()
    until(page, f"document.querySelector('.db-number').value === '{chosen}'")
    page.wait_for_selector(".db-why dl")


def test_everything_is_reached_by_keyboard(show, usual):
    root, session = usual
    page = show(root)
    page.wait_for_selector("tbody tr")
    page.get_by_label("Search").focus()
    page.keyboard.type("a-long")
    until(page, "document.querySelectorAll('tbody tr').length === 1")
    for _ in range(8):
        page.keyboard.press("Tab")
        if page.evaluate("document.activeElement.dataset.session ?? ''") == session:
            break
    page.keyboard.press("Enter")
    page.wait_for_selector(WHOLE)
    assert page.evaluate("document.activeElement.id") == "title"
    reached = []
    for _ in range(60):
        page.keyboard.press("Tab")
        reached.append(page.evaluate("document.activeElement.className || document.activeElement.tagName"))
        if "db-number" in reached[-1]:
            break
    assert any("cx-map-scroller" in one for one in reached)
    page.keyboard.press("ControlOrMeta+a")
    page.keyboard.type("30")
    page.keyboard.press("Enter")
    page.wait_for_selector(".db-why dl")
    assert "0:30" in page.locator(".db-why dl").inner_text()


def test_both_schemes_are_drawn_and_pictures_hold_no_text_of_a_prompt(show, usual, pictures):
    root, session = usual
    backgrounds = set()
    for scheme in ("light", "dark"):
        page = show(root, f"/#/s/{session}", scheme=scheme)
        page.wait_for_selector(WHOLE)
        page.locator(".cx-events tbody tr").nth(2).click()
        page.wait_for_selector(".db-why dl")
        backgrounds.add(page.evaluate("getComputedStyle(document.body).backgroundColor"))
        page.evaluate("scrollTo(0, 0)")
        clip = {"x": 0, "y": 0, "width": 1280, "height": 1640}
        page.screenshot(path=pictures / f"dashboard-{scheme}.png", full_page=True, clip=clip)
        page.evaluate("document.querySelector('.db-why').remove()")
        assert not UNSEEN.search(page.content())
    assert len(backgrounds) == 2


def test_nothing_is_wider_than_a_small_screen(show, usual):
    root, session = usual
    for path in ("/", f"/#/s/{session}"):
        page = show(root, path, width=390)
        page.wait_for_selector("[data-ready]")
        assert page.evaluate("document.documentElement.scrollWidth") <= 390


def test_a_session_that_is_not_there_is_said_so(view, usual):
    viewed = view(f"{usual[0]}/#/s/s_none")
    viewed.page.get_by_text("there is no session 's_none'").wait_for()
    assert all("404" in error for error in viewed.errors)


def test_a_page_of_the_list_is_as_long_for_many_sessions_as_for_few(show, tmp_path, running):
    with logged(tmp_path / "data") as log:
        log.short_ones(1_500)
    with running("http://127.0.0.1:9/v1", tmp_path / "data") as proxy:
        page = show(proxy.root)
        until(page, "/of 1,500$/.test(document.querySelector('.cx-where')?.textContent)")
        page.reload()
        until(page, "/of 1,500$/.test(document.querySelector('.cx-where')?.textContent)")
        assert page.locator("tbody tr").count() == 50


def test_a_long_session_can_be_looked_at_before_all_of_it_is_worked_out(show, tmp_path, running):
    with logged(tmp_path / "data") as log:
        session = log.session("very-long", 400)
    with running("http://127.0.0.1:9/v1", tmp_path / "data") as proxy:
        page = show(proxy.root, f"/#/s/{session}")
        page.wait_for_selector("main > div[data-ready]")
        shown = page.locator("main > div")
        assert shown.get_attribute("data-calls") == "400"
        page.get_by_label("Last rows").last.click()
        assert page.locator(".cx-calls tbody tr").last.locator("th").inner_text() == "400"
        assert page.locator(".cx-calls tbody tr").count() <= 100
        page.wait_for_selector(WHOLE)
        assert tile(page, "calls") == "400"
        assert int(shown.get_attribute("data-ready")) < int(shown.get_attribute("data-whole"))


def test_a_session_is_seen_while_it_runs(show, scripted, start_proxy):
    scripted.play(Script([Say("fine")], repeat=True))
    with start_proxy() as proxy:
        page = show(proxy.root)
        page.get_by_text("No session yet").wait_for()
        history = []

        def call(number):
            history.append({"role": "user", "content": f"go on {number}"})
            body = {"model": MODEL, "max_tokens": 9, "messages": history}
            headers = {"content-type": "application/json", "x-session-id": "live-one"}
            request = urllib.request.Request(f"{proxy.root}/v1/messages", json.dumps(body).encode(), headers)
            with urllib.request.urlopen(request, timeout=PATIENCE) as response:
                history.append({"role": "assistant", "content": json.loads(response.read())["content"]})

        call(1)
        page.get_by_role("link", name="live-one").click()
        page.wait_for_selector(WHOLE)
        assert tile(page, "calls") == "1"
        call(2)
        call(3)
        until(page, "document.querySelector('[data-sum=calls] b').textContent === '3'")
        page.evaluate("Object.defineProperty(document, 'hidden', { value: true, configurable: true })")
        page.evaluate("document.dispatchEvent(new Event('visibilitychange'))")
        page.wait_for_timeout(2_500)
        asked = page.evaluate("performance.getEntriesByType('resource').length")
        call(4)
        page.wait_for_timeout(2_500)
        assert page.evaluate("performance.getEntriesByType('resource').length") == asked
        page.evaluate("delete document.hidden")
        page.evaluate("document.dispatchEvent(new Event('visibilitychange'))")
        until(page, "document.querySelector('[data-sum=calls] b').textContent === '4'")


def test_the_switch_turns_keeping_warm_on_and_off_and_sessions_say_when_they_go_cold(show, scripted, start_proxy):
    scripted.play(Script([Say("fine")], repeat=True))

    def state(root):
        with urllib.request.urlopen(f"{root}/ctxpager/keep-warm", timeout=PATIENCE) as response:
            return json.loads(response.read())["on"]

    with start_proxy("--policy", "cost_aware") as proxy:
        text = {"type": "text", "text": "harbour " * 3_000, "cache_control": {"type": "ephemeral"}}
        body = {"model": "claude-opus-5-5", "max_tokens": 9, "messages": [{"role": "user", "content": [text]}]}
        headers = {"content-type": "application/json", "x-session-id": "resting-one"}
        request = urllib.request.Request(f"{proxy.root}/v1/messages", json.dumps(body).encode(), headers)
        urllib.request.urlopen(request, timeout=PATIENCE).close()
        page = show(proxy.root)
        page.get_by_text(re.compile(r"^cold in \d+ (s|min)$")).wait_for()
        switch = page.get_by_role("switch", name="Keep warm")
        assert switch.get_attribute("aria-checked") == "false"
        assert (
            "off: nothing is sent that no client asked for; $0.00 spent in 24 h" in page.locator("#warm").inner_text()
        )
        switch.click()
        page.get_by_text("on (auto): ").wait_for()
        assert (switch.get_attribute("aria-checked"), state(proxy.root)) == ("true", True)
        assert "at most $0.50 a refresh, $20.00 a day" in page.locator("#warm").inner_text()
        page.get_by_role("link", name="resting-one").click()
        page.locator("#facts").get_by_text(
            re.compile(r"^cold in .*, then the next call costs \$0\.\d+ more$")
        ).wait_for()
        switch.focus()
        page.keyboard.press("Space")
        page.get_by_text("off: nothing is sent").wait_for()
        assert not state(proxy.root)


def test_under_keep_all_the_switch_says_why_it_can_t_be_turned(show, usual):
    page = show(usual[0])
    page.locator("#warm").get_by_text("under the policy keep_all").wait_for()
    assert page.get_by_role("switch", name="Keep warm").is_disabled()


def test_a_proxy_that_went_away_is_told(view, scripted, start_proxy):
    with start_proxy() as proxy:
        viewed = view(proxy.root)
        viewed.page.get_by_text("No session yet").wait_for()
    viewed.page.get_by_text("The proxy does not answer; trying again.").wait_for()
