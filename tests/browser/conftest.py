"""A real Chromium, watched for what must not happen, and made-up stories to show in it."""

import os
import shutil
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

import pytest
from waiting import PATIENCE

from instrumentation.accounting.story import (
    CallStory,
    Inflicted,
    PageStory,
    RepackStory,
    Story,
    StoryParts,
)

TOOLS = ("read_file", "run_tests", "search", "list_files", "edit_file", "fetch")
SYSTEM, SCHEMAS, UNUSED, STUB = 2_400, 1_900, 5_200, 48
BETWEEN_REPACKS = 19
DOLLARS = 3e-6


@dataclass
class Viewed:
    """A page of the browser and all that it has complained of or asked for."""

    page: object
    errors: list[str] = field(default_factory=list)
    asked: list[str] = field(default_factory=list)


@pytest.fixture(scope="module")
def chromium():
    """The browser, for one file of tests: while it runs, its thread can't run another event loop."""
    playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    found = shutil.which("chromium") or shutil.which("google-chrome")
    if found is None:
        pytest.skip("Chromium is not installed")
    with playwright.sync_playwright() as started:
        browser = started.chromium.launch(executable_path=found, args=["--no-sandbox"])
        yield browser
        browser.close()


@pytest.fixture
def view(chromium):
    """Opens an address in a window of its own: ``view(address, width=1280, scheme="light")``."""
    windows = []

    def opened(address, width=1280, height=900, scheme="light", **options):
        window = chromium.new_context(viewport={"width": width, "height": height}, color_scheme=scheme, **options)
        window.set_default_timeout(1_000 * PATIENCE)
        windows.append(window)
        viewed = Viewed(window.new_page())
        viewed.page.on("console", lambda message: viewed.errors.append(message.text))
        viewed.page.on("pageerror", lambda error: viewed.errors.append(str(error)))
        viewed.page.on("request", lambda request: viewed.asked.append(request.url))
        viewed.page.goto(address)
        return viewed

    yield opened
    for window in windows:
        window.close()


@pytest.fixture
def pictures(tmp_path):
    """Where pictures go: the folder that CTXPAGER_PICTURES names (``docs/images`` renews the docs' own), else away."""
    return Path(os.environ.get("CTXPAGER_PICTURES", tmp_path))


@pytest.fixture(scope="session")
def made_up():
    """Makes a story up: ``made_up(calls, pages)``. The same numbers give the same story."""
    return _story


def _story(calls=140, pages=170, *, priced=True):
    chance = Random(calls * 10_000 + pages)
    branches = [int(3 * calls < 10 * at < 4 * calls) for at in range(calls)]
    lives = [_life(chance, branches, int(calls * at / pages)) for at in range(pages)]
    return Story(
        session="made-up-session",
        harness="example-agent",
        policy="cost_aware",
        failed=2,
        calls=_calls(chance, branches, lives, DOLLARS if priced else None),
        pages=[_page(chance, number, life) for number, life in enumerate(lives)],
    )


@dataclass(frozen=True)
class Life:
    """What becomes of a page: its branch, its size, how it is when resident, and its state in each call."""

    branch: int
    tokens: int
    dies: str
    states: str
    last_used: int


def _life(chance, branches, born):
    """A page is used again after ever longer pauses, or never; a repack evicts it once it has rested for a while."""
    branch = branches[born]
    uses, at = {born}, born
    while chance.random() < 0.55:
        at += int(chance.expovariate(1 / 9)) + 1
        uses.add(at)
    states, evicted, rested = ["."] * born, False, 0
    for call in range(born, len(branches)):
        if branches[call] != branch:
            states.append(".")
            continue
        used = call in uses
        evicted = evicted or (call % BETWEEN_REPACKS == 0 and rested > 5 and not used)
        states.append(
            "f" if used and evicted else "u" if used else "e" if evicted else "s" if call > max(uses) else "r"
        )
        evicted, rested = evicted and not used, 0 if used else rested + 1
    dies = chance.choices(("stale", "superseded", "duplicates"), (8, 2, 1))[0]
    return Life(branch, int(chance.lognormvariate(6.7, 0.8)) + 150, dies, "".join(states), max(uses))


def _page(chance, number, life):
    name = f"pg_{chance.getrandbits(64):016x}"
    kind = "argument" if number % 11 == 7 else "result"
    return PageStory(name, life.branch, kind, TOOLS[number % len(TOOLS)], life.tokens, life.states)


def _calls(chance, branches, lives, dollars):
    told, bill = [], Counter()
    for at, branch in enumerate(branches):
        seen = [life for life in lives if life.states[at] != "."]
        call = sum(1 for earlier in branches[:at] if earlier == branch)
        said = StoryParts(
            system=0 if call else SYSTEM,
            resent=SYSTEM if call else 0,
            schemas=SCHEMAS,
            unused_schemas=UNUSED,
            user=260 + 40 * (call // 12),
            assistant=130 * call,
        )
        sizes = Counter()
        for life in seen:
            state = life.states[at]
            part = "results" if at <= life.last_used else life.dies
            sizes[part] += life.tokens
            if state == "e":
                sizes["gone", part] += life.tokens
                sizes["stubs"] += STUB
        told.append(_call(chance, at, branch, call, said, sizes, seen, bill, dollars))
    return told


def _call(chance, at, branch, call, said, sizes, seen, bill, dollars):
    causes = ("results", "stale", "superseded", "duplicates")
    client = said.plus(StoryParts(**{name: sizes[name] for name in causes}))
    kept = {name: sizes[name] - sizes["gone", name] for name in causes}
    sent = said.plus(StoryParts(**kept, stubs=sizes["stubs"] + 90))
    faults = sum(life.states[at] == "f" for life in seen)
    newly = sum(life.states[at] == "e" and life.states[at - 1] in "rs" for life in seen)
    repack = _repack(at, newly, sent.total) if newly else None
    output = int(chance.expovariate(1 / 240)) + 20
    cached = int(0.3 * sent.total) if repack else min(bill["sent", branch], sent.total)
    cached_before = min(bill["client", branch], client.total)
    cost = _price(sent.total, cached, output) + 0.1 * sent.total * (faults > 0)
    before = _price(client.total, cached_before, output)
    bill["before", branch] = bill["client", branch]
    bill["sent", branch], bill["client", branch] = sent.total, client.total
    return CallStory(
        branch=branch,
        call=call + 1,
        attempt=1,
        at=1_767_225_600.0 + 21 * at,
        model="example-model-1",
        client=client,
        sent=sent,
        input=sent.total * (1 + (faults > 0)),
        cached=cached + sent.total * (faults > 0),
        written=sent.total - cached,
        output=output,
        estimated=at % 40 == 39,
        requests=1 + (faults > 0),
        cost=cost,
        cost_before=before,
        dollars=cost * dollars if dollars else None,
        dollars_before=before * dollars if dollars else None,
        pages_in=faults,
        schemas_in=int(at % 61 == 60),
        working=sum(life.tokens for life in seen if _in_use(life.states[max(0, at - 9) : at + 1])),
        repack=repack,
        calls=chance.sample(TOOLS, 1),
        cached_before=cached_before,
        new=max(0, client.total - bill["before", branch]),
        inflicted=Inflicted(
            stubs=0.1 * sent.stubs,
            page_ins=0.1 * sent.total * (faults > 0),
            rewritten=0.8 * sent.total if repack else 0.0,
            page_in_tokens=sent.total * (faults > 0),
        ),
    )


def _in_use(states):
    return "u" in states or "f" in states


def _repack(at, pages, tokens):
    cause = ("pays", "cold", "window")[(at // BETWEEN_REPACKS) % 3]
    reasons = {
        "pays": "the saving outweighs what is read again",
        "cold": "the cache has expired",
        "window": "the prompt nears the window",
    }
    return RepackStory(cause, reasons[cause], pages, pages * 900, int(0.7 * tokens), 0.8 * tokens, warm=cause != "cold")


def _price(tokens, cached, output):
    return 0.1 * cached + 1.25 * (tokens - cached) + 5 * output
