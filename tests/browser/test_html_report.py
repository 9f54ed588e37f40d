"""The HTML report in a real browser: what it shows, how it is reached, and that it keeps to itself."""

import json
from itertools import pairwise

import msgspec
import pytest

from instrumentation.accounting.story import (
    WASTE,
    CallStory,
    KeptWarm,
    Missed,
    MissStory,
    PageStory,
    RepackStory,
    Story,
    StoryParts,
)
from instrumentation.reports.html_page import page, values

STATES = {"r": "resident", "u": "used", "s": "stale", "e": "evicted", "f": "faulted"}
NASTY = "</script><img src=x onerror='window.hacked=1'><!--<script>window.hacked=1</script>$script\u2028\"'`&"
MAP = ".cx-map-scroller"


@pytest.fixture
def report(view, tmp_path):
    """Opens the report of a story; when the test ends, nothing may have been complained of or asked for."""
    opened = []

    def show(story, with_content=False, **options):
        file = tmp_path / f"{len(opened)}.html"
        file.write_text(page(story, with_content=with_content), encoding="utf-8")
        viewed = view(file.as_uri(), **options)
        opened.append((viewed, file.as_uri()))
        return viewed.page

    yield show
    for viewed, address in opened:
        assert viewed.errors == []
        assert [asked for asked in viewed.asked if not asked.startswith("data:")] == [address]


@pytest.fixture(scope="session")
def story(made_up):
    return made_up()


def said(shown):
    """What was last said to those who can't see the charts."""
    return shown.locator("[role=status].cx-hidden").inner_text()


def sums(shown):
    tiles = shown.locator(".cx-tile")
    return {tile.get_attribute("data-sum"): tile.locator("b").inner_text() for tile in tiles.all()}


def picture_of(shown, selector):
    return shown.locator(selector).first.evaluate("canvas => canvas.toDataURL()")


def cells_of(shown, table):
    rows = shown.locator(f"{table} tbody tr")
    rows.first.wait_for()  # a table that is opened is made a moment later
    return [row.locator("th, td").all_inner_texts() for row in rows.all()]


def of_calls(story, name):
    return sum(getattr(call, name) for call in story.calls)


def test_the_sums_are_those_of_the_story(report, story):
    opened = report(story)
    shown = sums(opened)
    hits_before = f"{100 * of_calls(story, 'cached_before') / story.client.total:.1f} %"
    amplification = f"{story.client.total / of_calls(story, 'new'):.1f} times"
    assert len(story.calls) > 100
    assert hits_before in opened.locator("[data-sum=hit_rate]").inner_text()
    assert amplification in opened.locator("[data-sum=client]").inner_text()
    assert shown["calls"] == f"{len(story.calls):,}"
    assert shown["client"] == f"{story.client.total:,}"
    assert shown["sent"] == f"{story.sent.total:,}"
    assert shown["tokens_saved"] == f"{story.client.total - story.sent.total:,}"
    assert shown["cost"] == f"${of_calls(story, 'dollars'):,.2f}"
    assert shown["cost_before"] == f"${of_calls(story, 'dollars_before'):,.2f}"
    assert shown["saved"] == f"${of_calls(story, 'dollars_before') - of_calls(story, 'dollars'):,.2f}"
    assert shown["hit_rate"] == f"{100 * of_calls(story, 'cached') / of_calls(story, 'input'):.1f} %"
    assert shown["pages_in"] == f"{of_calls(story, 'pages_in'):,}"
    assert shown["repacks"] == f"{sum(call.repack is not None for call in story.calls):,}"


def test_waste_is_told_by_cause_and_adds_up(report, story):
    rows = cells_of(report(story), ".cx-waste")
    causes, together = rows[: len(WASTE)], rows[len(WASTE)]
    before, after = story.client.waste, story.sent.waste
    assert sorted(row[1] for row in causes) == sorted(f"{before[name]:,}" for name in WASTE)
    assert sorted(row[4] for row in causes) == sorted(f"{after[name]:,}" for name in WASTE)
    avoided = sum(before.values()) - sum(after.values())
    assert together[:2] + together[3:5] == [
        "all waste",
        f"{sum(before.values()):,}",
        f"{avoided:,}",
        f"{sum(after.values()):,}",
    ]


def test_what_paging_itself_cost_stands_apart(report, story):
    stubs, page_ins, corrections, repacks = cells_of(report(story), ".cx-waste")[-4:]
    own = [call.inflicted for call in story.calls]
    assert stubs[1:3] == [f"{story.sent.stubs:,}", f"{sum(one.stubs for one in own):,.0f}"]
    assert page_ins[1:3] == [f"{sum(one.page_in_tokens for one in own):,}", f"{sum(one.page_ins for one in own):,.0f}"]
    assert corrections[1:3] == ["0", "0"]
    assert repacks[1] == f"{sum(call.repack.rewritten for call in story.calls if call.repack):,}"
    assert repacks[3] == f"{100 * sum(one.rewritten for one in own) / of_calls(story, 'cost'):.1f} %"


def test_why_calls_missed_the_cache_and_what_keeping_warm_brought_stand_apart(report, story):
    pause = MissStory("pause", 9_000, 10_350.0, 0.25, 600.0, 300.0)
    setting = MissStory("settings", 4_000, 4_600.0, 0.125, 9.0, 300.0, ("thinking",))
    first, second, third, *others = story.calls
    calls = [
        msgspec.structs.replace(first, miss=pause, cold_before=Missed(1, 12_000, 13_800.0, 0.5)),
        msgspec.structs.replace(second, miss=setting),
        msgspec.structs.replace(third, kept_warm=KeptWarm(2, 1_000.0, 0.05, 1, 8_000.0, 0.4)),
        *others,
    ]
    shown = report(msgspec.structs.replace(story, calls=calls))
    rows = [row[:4] for row in cells_of(shown, ".cx-waste")]
    assert ["pause", "1", "9,000", "$0.2500"] in rows
    assert ["settings changed", "1", "4,000", "$0.1250"] in rows
    assert ["pauses, without ctxpager", "1", "12,000", "$0.5000"] in rows
    assert rows[-3:] == [
        ["refreshes", "2", "$0.0500"],
        ["calls rescued", "1", "$0.4000"],
        ["saved, net", "", "$0.3500"],
    ]
    assert cells_of(shown, ".cx-calls")[0][12] == "pause"
    assert "settings changed: thinking" in shown.locator(".cx-events").inner_text()


def test_every_cell_of_the_page_map_has_the_colour_of_its_state(report, story):
    shown = report(story)
    colours = shown.evaluate(
        "names => names.map(name => getComputedStyle(document.body).getPropertyValue('--cx-' + name))",
        list(STATES.values()),
    )
    hexes = dict(zip(STATES, colours, strict=True))
    read = """([columns, rows, places]) => {
        const canvas = document.querySelector('.cx-map-canvas');
        const data = canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height).data;
        return places.map(([row, column]) => {
            const x = Math.floor((column + 0.4) * canvas.width / columns);
            const y = Math.floor((row + 0.5) * canvas.height / rows);
            const [r, g, b, a] = data.subarray(4 * (y * canvas.width + x), 4 * (y * canvas.width + x) + 4);
            return a ? '#' + [r, g, b].map(value => value.toString(16).padStart(2, '0')).join('') : '.';
        });
    }"""
    places = [(row, column) for row in range(len(story.pages)) for column in range(len(story.calls))]
    drawn = shown.evaluate(read, [len(story.calls), len(story.pages), places])
    expected = [hexes.get(story.pages[row].states[column], ".") for row, column in places]
    assert {story.pages[row].states[column] for row, column in places} == {*STATES, "."}
    assert drawn == expected


def test_the_keyboard_walks_over_the_page_map(report, story):
    shown = report(story)
    shown.get_by_role("button", name="Show all").focus()
    shown.keyboard.press("Tab")
    assert story.pages[0].name in said(shown)
    for key in ("ArrowDown", "ArrowDown", "End", "ArrowLeft", "PageDown", "ArrowUp"):
        shown.keyboard.press(key)
    reached, call = story.pages[11], len(story.calls) - 1
    assert said(shown).startswith(
        f"{reached.name}, tool {reached.tool}, kind {reached.kind}, tokens {reached.tokens:,}"
    )
    assert f"call {call} ·" in said(shown)
    assert reached.states[call - 1] == "e"
    assert said(shown).endswith("state evicted")
    assert shown.locator(".cx-tooltip").is_visible()
    shown.keyboard.press("Home")
    shown.keyboard.press("ArrowLeft")
    shown.keyboard.press("PageUp")
    shown.keyboard.press("PageUp")
    assert story.pages[0].name in said(shown)
    shown.keyboard.press("Escape")
    assert shown.locator(".cx-tooltip").is_hidden()


def test_the_mouse_shows_the_same_cell_as_the_keyboard(report, story):
    shown = report(story)
    shown.locator(MAP).scroll_into_view_if_needed()
    box = shown.locator(MAP).bounding_box()
    row, column = 100, 120
    x = box["x"] + (column + 0.5) * box["width"] / len(story.calls)
    shown.mouse.move(x, box["y"] + (row + 0.5) * box["height"] / len(story.pages))
    told = shown.locator(".cx-tooltip").inner_text()
    assert story.pages[row].name in told
    assert f"{column + 1} ·" in told
    shown.mouse.move(2, 2)
    assert shown.locator(".cx-tooltip").is_hidden()


def test_a_zoomed_map_scrolls_and_keeps_what_was_reached_in_view(report, story):
    shown = report(story)
    shown.locator(MAP).focus()
    for key in ("+", "+", "End"):
        shown.keyboard.press(key)
    scrolled = shown.locator(MAP).evaluate(
        "box => [box.scrollWidth > box.clientWidth, box.scrollLeft + box.clientWidth]"
    )
    assert scrolled[0]
    assert scrolled[1] >= shown.locator(MAP).evaluate("box => box.scrollWidth") - 1
    shown.keyboard.press("-")
    shown.keyboard.press("0")
    assert shown.locator(MAP).evaluate("box => box.scrollWidth - box.clientWidth") == 0
    for name in ("Zoom in", "Zoom out", "Show all"):
        shown.get_by_role("button", name=name).click()
    assert shown.locator(MAP).evaluate("box => box.scrollHeight - box.clientHeight") == 0


def test_pages_can_be_put_in_another_order(report, story):
    shown = report(story)
    shown.get_by_label("Order").select_option("tokens")
    shown.get_by_text("Pages as a table").click()
    sizes = [int(row[3].replace(",", "")) for row in cells_of(shown, ".cx-map")]
    assert sizes[0] == max(page.tokens for page in story.pages)
    assert all(one >= other for one, other in pairwise(sizes))
    shown.get_by_label("Order").select_option("tool")
    assert {row[1] for row in cells_of(shown, ".cx-map")} == {min(page.tool for page in story.pages)}


def test_a_page_tells_what_became_of_it(report, story):
    shown = report(story)
    shown.locator(MAP).focus()
    shown.keyboard.press("Enter")
    first = story.pages[0]
    detail = shown.get_by_role("region", name="The chosen page")
    assert first.name in detail.inner_text()
    facts = dict(pair.inner_text().split("\n") for pair in detail.locator("dl div").all())
    assert facts["calls evicted"] == f"{first.states.count('e'):,}"
    assert facts["calls used"] == f"{first.states.count('u'):,}"
    assert facts["came"] == f"call {len(first.states) - len(first.states.lstrip('.')) + 1}"
    assert detail.locator("pre").count() == 0
    detail.get_by_role("button", name="Close").click()
    assert detail.is_hidden()


def test_context_can_be_shown_with_and_without_paging_and_part_by_part(report, story):
    shown = report(story)
    figures = shown.locator(".cx-context figure")
    for choice, seen in (("without paging", [True, False]), ("with paging", [False, True]), ("both", [True, True])):
        shown.locator(".cx-context").get_by_text(choice, exact=True).click()
        assert [figure.is_visible() for figure in figures.all()] == seen
    before = picture_of(shown, ".cx-context canvas")
    shown.get_by_label("stale results").uncheck()
    assert picture_of(shown, ".cx-context canvas") != before
    shown.get_by_label("stale results").check()
    assert picture_of(shown, ".cx-context canvas") == before


def test_reasons_of_repacks_and_page_ins_are_reached_by_keyboard(report, story):
    shown = report(story)
    plot = shown.locator(".cx-money .cx-plot")
    plot.focus()
    marked = [at for at, call in enumerate(story.calls) if call.repack or call.pages_in or call.schemas_in]
    shown.keyboard.press("n")
    first = story.calls[marked[0]]
    assert f"Call {marked[0] + 1} ·" in said(shown)
    assert first.repack.reason in said(shown)
    shown.keyboard.press("n")
    assert f"Call {marked[1] + 1} ·" in said(shown)
    shown.keyboard.press("p")
    assert f"Call {marked[0] + 1} ·" in said(shown)
    shown.keyboard.press("p")
    assert f"Call {marked[0] + 1} ·" in said(shown), "there is none before the first"


def test_reasons_show_when_the_mouse_comes_near_a_mark(report, story):
    shown = report(story)
    plot = shown.locator(".cx-money .cx-plot")
    plot.scroll_into_view_if_needed()
    box = plot.bounding_box()
    at = next(at for at, call in enumerate(story.calls) if call.repack)
    left, width = 64, box["width"] - 74
    shown.mouse.move(box["x"] + left + (at + 0.2) * width / len(story.calls) - 4, box["y"] + box["height"] - 31)
    assert story.calls[at].repack.reason in shown.locator(".cx-tooltip").inner_text()
    shown.mouse.move(box["x"] + left + 2, box["y"] + box["height"] - 31)
    assert "Call 1 ·" in shown.locator(".cx-tooltip").inner_text()


def test_money_is_shown_in_dollars_or_in_units(report, story):
    shown = report(story)
    plot = shown.locator(".cx-money .cx-plot")
    plot.focus()
    shown.keyboard.press("End")
    assert f"cost so far ${of_calls(story, 'dollars'):,.2f}" in said(shown)
    shown.locator(".cx-money").get_by_text("units", exact=True).click()
    plot.focus()
    shown.keyboard.press("End")
    assert f"cost so far {of_calls(story, 'cost'):,.0f}," in said(shown)


def test_without_prices_there_are_no_dollars(report, made_up):
    story = made_up(30, 20, priced=False)
    shown = report(story)
    assert sums(shown)["cost"] == f"{of_calls(story, 'cost'):,.0f}"
    assert "$" not in shown.locator("body").inner_text()
    assert shown.locator(".cx-money fieldset").is_hidden()


def test_a_session_that_paging_made_dearer_says_so(report):
    calls = [
        CallStory(0, at, 1, 0.0, "m", client=StoryParts(user=9), sent=StoryParts(user=9), cost=12.0, cost_before=10.0)
        for at in (0, 1)
    ]
    shown = report(Story("dear", "", calls))
    assert "Costs more by" in shown.locator("[data-sum=saved]").inner_text()
    assert sums(shown)["saved"] == "4"
    assert "+20.0 %" in shown.locator("[data-sum=saved]").inner_text()


def test_a_branch_can_be_looked_at_alone(report, story):
    shown = report(story)
    shown.get_by_label("Show").first.select_option("branch 1")
    calls = [call for call in story.calls if call.branch == 1]
    assert sums(shown)["calls"] == str(len(calls))
    assert sums(shown)["client"] == f"{sum(call.client.total for call in calls):,}"
    pages = sum(page.branch == 1 for page in story.pages)
    assert f"{pages} pages over {len(calls)} calls" in shown.locator(MAP).get_attribute("aria-label")
    shown.get_by_label("Show").first.select_option("all branches")
    assert sums(shown)["calls"] == str(len(story.calls))


def test_tables_stand_in_for_charts(report, story):
    shown = report(story)
    for caption in ("Context over calls as a table", "Money over calls as a table", "Pages as a table"):
        shown.get_by_text(caption, exact=True).first.click()
    without, with_paging, *_ = cells_of(shown, ".cx-context")
    assert without[-1] == f"{story.calls[0].client.total:,}"
    assert with_paging[-1] == f"{story.calls[0].sent.total:,}"
    assert cells_of(shown, ".cx-money")[0][1] == f"{story.calls[0].cost:,.0f}"
    assert cells_of(shown, ".cx-map")[0][0] == story.pages[0].name


def test_the_calls_are_leafed_through(report, story):
    shown = report(story)
    calls = shown.locator(".cx-calls")
    assert cells_of(shown, ".cx-calls")[0][4] == f"{story.calls[0].client.total:,}"
    calls.get_by_role("button", name="Next rows").click()
    assert cells_of(shown, ".cx-calls")[0][0] == "21"
    calls.get_by_role("button", name="Last rows").click()
    assert cells_of(shown, ".cx-calls")[-1][0] == str(len(story.calls))
    assert calls.get_by_role("button", name="Next rows").is_disabled()
    calls.get_by_role("button", name="Previous rows").click()
    calls.get_by_role("button", name="First rows").click()
    assert cells_of(shown, ".cx-calls")[0][0] == "1"


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_it_is_shown_in_both_colour_schemes(report, story, pictures, scheme):
    shown = report(story, scheme=scheme)
    back = shown.evaluate("getComputedStyle(document.body).backgroundColor")
    assert back == {"light": "rgb(245, 246, 248)", "dark": "rgb(13, 16, 20)"}[scheme]
    end = shown.locator(".cx-map").evaluate("box => Math.ceil(box.getBoundingClientRect().bottom + scrollY)") + 16
    clip = {"x": 0, "y": 0, "width": 1280, "height": end}
    file = pictures / f"report-{scheme}.png"
    shown.screenshot(path=file, full_page=True, clip=clip)
    assert file.stat().st_size > 50_000


def test_the_charts_follow_a_change_of_the_scheme_and_of_the_width(report, story):
    shown = report(story)
    before = picture_of(shown, ".cx-map-canvas")
    shown.emulate_media(color_scheme="dark")
    shown.wait_for_function("before => document.querySelector('.cx-map-canvas').toDataURL() !== before", arg=before)
    width = shown.locator(".cx-map-canvas").evaluate("canvas => canvas.width")
    shown.set_viewport_size({"width": 800, "height": 900})
    shown.wait_for_function("width => document.querySelector('.cx-map-canvas').width < width - 300", arg=width)


@pytest.mark.parametrize("width", [390, 1280])
def test_nothing_is_wider_than_the_window(report, story, width):
    shown = report(story, width=width)
    assert shown.evaluate("document.documentElement.scrollWidth") == width
    assert shown.locator(MAP).bounding_box()["width"] > 0.75 * (width - 60)


def test_those_who_want_no_motion_get_none(report, story):
    shown = report(story, reduced_motion="reduce")
    moving = """() => [...document.querySelectorAll('*')].filter(one =>
        getComputedStyle(one).transitionDuration !== '0s' || getComputedStyle(one).animationName !== 'none').length"""
    assert shown.evaluate(moving) == 0


def test_it_has_landmarks_and_every_control_has_a_name(report, story):
    shown = report(story)
    assert shown.title() == "ctxpager: made-up-session"
    for role in ("banner", "main", "contentinfo"):
        assert shown.get_by_role(role).count() == 1
    assert shown.get_by_role("heading", level=1).inner_text() == "made-up-session"
    nameless = """() => [...document.querySelectorAll('[tabindex="0"], button, input, select, summary, a[href]')]
        .filter(one => !(one.getAttribute('aria-label') || one.textContent.trim() || one.labels?.length)).length"""
    assert shown.evaluate(nameless) == 0
    regions = shown.get_by_role("region")
    assert all(
        region.evaluate("one => Boolean(one.ariaLabel || one.getAttribute('aria-labelledby'))")
        for region in regions.all()
    )


def test_the_keyboard_reaches_every_chart(report, story):
    shown = report(story)
    reached = set()
    shown.evaluate("void (window.at = () => document.activeElement.closest('section').className)")
    for _ in range(60):
        shown.keyboard.press("Tab")
        reached.add(shown.evaluate("document.activeElement.matches('[role=application]') && at()"))
    assert {"cx-section cx-context", "cx-section cx-money", "cx-section cx-map"} <= reached


def test_nothing_in_a_story_becomes_markup(report):
    call = CallStory(
        0,
        0,
        1,
        1.0,
        NASTY,
        client=StoryParts(user=5),
        sent=StoryParts(user=5),
        repack=RepackStory(NASTY, NASTY, 1),
        pages_in=1,
        calls=[NASTY],
    )
    pages = [PageStory(NASTY, 0, NASTY, NASTY, 7, "u", about=NASTY, content=NASTY)]
    shown = report(Story(NASTY, NASTY, [call], pages, policy=NASTY), with_content=True)
    shown.locator(MAP).focus()
    shown.keyboard.press("Enter")
    shown.locator(".cx-money .cx-plot").focus()
    shown.get_by_text("Pages as a table").click()
    assert shown.locator(".cx-detail pre").evaluate("one => one.textContent") == NASTY
    assert shown.locator("h1").evaluate("one => one.textContent") == NASTY
    assert shown.locator("img").count() == 0
    assert shown.evaluate("window.hacked") is None


def test_content_is_shown_only_on_demand(report):
    call = CallStory(0, 0, 1, 1.0, "m", client=StoryParts(user=5), sent=StoryParts(user=5))
    story = Story(
        "s", "", [call], [PageStory("pg_0123456789abcdef", 0, "result", "read", 7, "u", "a file", "its text")]
    )
    shown = report(story, with_content=True)
    assert "its text" not in shown.locator("body").inner_text()
    shown.locator(MAP).click(position={"x": 5, "y": 5})
    assert shown.locator(".cx-detail pre").inner_text() == "its text"
    assert "a file" in shown.locator(".cx-detail").inner_text()
    bare = report(story)
    bare.locator(MAP).click(position={"x": 5, "y": 5})
    assert bare.locator(".cx-detail").is_visible()
    assert "its text" not in bare.content()
    assert "a file" not in bare.content()


def test_a_session_without_calls_is_shown_too(report):
    shown = report(Story("empty", "", []))
    assert sums(shown)["calls"] == "0"
    assert sums(shown)["hit_rate"] == "\N{EN DASH}"
    assert shown.locator(MAP).is_hidden()
    assert shown.locator(".cx-events").inner_text().endswith("None.")
    for plot in shown.locator(".cx-plot").all():
        plot.focus()
        shown.keyboard.press("End")
    shown.get_by_role("button", name="Zoom in").click()


def test_a_shown_story_is_brought_up_to_date(report, made_up, story):
    """As a dashboard does it: what was chosen stays, what is told is new."""
    shown = report(made_up(60, 40))
    show = """story => { window.shown = ctxpager.show(document.querySelector('main'), story, {
        content: async (page) => 'got ' + page.name }); }"""
    shown.evaluate(show, json.loads(values(made_up(60, 40))))
    shown.get_by_label("stale results").uncheck()
    shown.evaluate("story => { window.shown.update(story); }", json.loads(values(story)))
    assert sums(shown)["calls"] == str(len(story.calls))
    assert not shown.get_by_label("stale results").is_checked()
    shown.locator(MAP).focus()
    shown.keyboard.press("Enter")
    shown.wait_for_selector(".cx-detail pre")
    assert shown.locator(".cx-detail pre").inner_text() == f"got {story.pages[0].name}"
    shown.evaluate("window.shown.close()")
    assert shown.locator("main").inner_text() == ""


def test_a_long_session_needs_no_larger_page_than_a_short_one(report, made_up):
    sizes = []
    for story in (made_up(200, 150), made_up(1_000, 750)):
        shown = report(story)
        sizes.append(shown.locator("main *").count())
        shown.locator(MAP).focus()
        shown.keyboard.press("End")
        assert f"call {len(story.calls)} ·" in said(shown)
        assert sums(shown)["client"] == f"{story.client.total:,}"
        for _ in range(10):
            shown.keyboard.press("ArrowDown")
        assert story.pages[10].name in said(shown)
    assert sizes[1] < 1.5 * sizes[0], sizes
