"""The HTML report as a file: what is in it, what is not, and that its colours can be told apart."""

import base64
import hashlib
import json
import math
import re
from html.parser import HTMLParser
from itertools import combinations, pairwise

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from instrumentation.accounting.story import (
    WASTE,
    CallStory,
    PageStory,
    RepackStory,
    Story,
    StoryParts,
)
from instrumentation.reports.html_page import (
    SCRIPTS,
    WITH,
    WITHOUT,
    page,
    script,
    style,
    values,
)

ANYTHING = st.text(st.characters(), max_size=30) | st.sampled_from(
    ["</script>", "<!--<script>", "]]>", "$story", "${script}", "$$", "\u2028", "\ud800", "&lt;", '"\\']
)

# How those see colours who lack one kind of cones (Machado and others, 2009), in linear light.
SIGHTS = {
    "full": ((1, 0, 0), (0, 1, 0), (0, 0, 1)),
    "no red": ((0.152286, 1.052583, -0.204868), (0.114503, 0.786281, 0.099216), (-0.003882, -0.048116, 1.051998)),
    "no green": ((0.367322, 0.860646, -0.227968), (0.280085, 0.672501, 0.047413), (-0.011820, 0.042940, 0.968881)),
    "no blue": ((1.255528, -0.076749, -0.178779), (-0.078411, 0.930809, 0.147602), (0.004733, 0.691367, 0.303900)),
}
STATES = ("resident", "used", "stale", "evicted", "faulted")
CONTRACT = msgspec.json.decode(script().partition(" = ")[2].partition(";\n")[0])
PARTS = [part["name"] for part in CONTRACT["PARTS"]]


class Elements(HTMLParser):
    """The elements of a file as a browser sees them: name, attributes and text."""

    def __init__(self, text):
        super().__init__()
        self.found = []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.found.append([tag, dict(attrs), ""])

    def handle_endtag(self, tag):
        self.found.append([f"/{tag}", {}, ""])

    def handle_data(self, data):
        if self.found:
            self.found[-1][2] += data

    def named(self, tag):
        return [(attrs, text) for name, attrs, text in self.found if name == tag]


def told(text):
    """The story that stands in a file."""
    return json.loads(next(inner for attrs, inner in Elements(text).named("script") if attrs.get("id") == "story"))


def a_story(text):
    call = CallStory(
        0,
        0,
        1,
        1.0,
        text,
        client=StoryParts(user=5),
        sent=StoryParts(user=5),
        repack=RepackStory(text, text),
        calls=[text],
    )
    return Story(text, text, [call], [PageStory(text, 0, text, text, 7, "u", about=text, content=text)], policy=text)


@given(ANYTHING)
def test_whatever_a_story_says_is_read_back_as_it_was(text):
    story = a_story(text)
    assert told(page(story, with_content=True)) == msgspec.to_builtins(story)


@given(ANYTHING)
def test_whatever_a_story_says_the_file_has_the_same_elements(text):
    names = [name for name, *_ in Elements(page(a_story("plain"))).found]
    assert [name for name, *_ in Elements(page(a_story(text))).found] == names


def test_a_file_has_no_text_of_pages_unless_it_is_asked_for():
    story = Story("s", "h", [], [PageStory("pg_1", 0, "result", "read", 7, "", about="of what", content="secret")])
    bare, full = page(story), page(story, with_content=True)
    assert "secret" not in bare
    assert "of what" not in bare
    assert WITHOUT in bare
    assert told(full)["pages"][0] | {"about": "of what", "content": "secret"} == told(full)["pages"][0]
    assert WITH in full


def test_the_values_are_the_story():
    story = a_story("words")
    assert msgspec.json.decode(values(story, with_content=True), type=Story) == msgspec.convert(
        msgspec.to_builtins(story), Story
    )


def test_the_policy_allows_this_script_and_this_style_alone():
    elements = Elements(page(a_story("words")))
    (policy,) = [attrs["content"] for attrs, _ in elements.named("meta") if attrs.get("http-equiv")]
    rules = dict(rule.split(" ", 1) for rule in policy.split("; "))
    (code,) = [text for attrs, text in elements.named("script") if "type" not in attrs]
    (look,) = [text for _, text in elements.named("style")]
    digests = {
        name: base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
        for name, text in (("script-src", code), ("style-src", look))
    }
    assert rules == {
        "default-src": "'none'",
        "base-uri": "'none'",
        "form-action": "'none'",
        "img-src": "data:",
        **{name: f"'sha256-{digest}'" for name, digest in digests.items()},
    }


def test_neither_script_nor_style_asks_for_anything_or_makes_markup_of_text():
    for text in (script(), style()):
        assert re.findall(r"https?:|\burl\(|@import|fetch\(|XMLHttpRequest|innerHTML|insertAdjacent|eval\(", text) == []
        assert re.findall(r"</?script|</style|<!--", text) == []


def test_every_script_of_the_charts_is_in_the_file_once():
    text = page(a_story("words"))
    assert script() in text
    assert text.count('"use strict";') == len(SCRIPTS) + 1


def test_the_charts_know_every_part_and_every_cause_of_waste():
    assert set(PARTS) == set(StoryParts.__struct_fields__)
    assert {part["name"] for part in CONTRACT["PARTS"] if part["waste"]} == set(WASTE)


def test_the_charts_know_every_field_of_a_call_and_its_default():
    always = {"branch", "call", "attempt", "at", "model"}
    assert CONTRACT["DEFAULTS"]["call"].keys() | always == set(CallStory.__struct_fields__)
    assert CONTRACT["DEFAULTS"]["call"]["requests"] == 1


def colours(scheme):
    light, dark = style().split("@media (prefers-color-scheme: dark)")[:2]
    found = dict(re.findall(r"--cx-(\w+): (#[0-9a-f]{6});", light))
    return found if scheme == "light" else {**found, **dict(re.findall(r"--cx-(\w+): (#[0-9a-f]{6});", dark))}


def linear(colour):
    shares = (int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5))
    return [share / 12.92 if share <= 0.04045 else ((share + 0.055) / 1.055) ** 2.4 for share in shares]


def contrast(one, other):
    light = (0.2126, 0.7152, 0.0722)
    darker, brighter = sorted(sum(map(math.prod, zip(light, linear(colour), strict=True))) for colour in (one, other))
    return (brighter + 0.05) / (darker + 0.05)


def seen(colour, sight):
    """The place of a colour in CIELAB, where distance is difference to the eye."""
    red, green, blue = (
        min(1, max(0, sum(map(math.prod, zip(row, linear(colour), strict=True))))) for row in SIGHTS[sight]
    )
    x = (0.4124 * red + 0.3576 * green + 0.1805 * blue) / 0.95047
    y = 0.2126 * red + 0.7152 * green + 0.0722 * blue
    z = (0.0193 * red + 0.1192 * green + 0.9505 * blue) / 1.08883
    x, y, z = (value ** (1 / 3) if value > 0.008856 else 7.787 * value + 16 / 116 for value in (x, y, z))
    return 116 * y - 16, 500 * (x - y), 200 * (y - z)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_colours_stand_out_from_the_background(scheme):
    found = colours(scheme)
    marks = [*STATES, *PARTS, "repack", "cost", "before", "focus"]
    assert {name: found[name] for name in marks if contrast(found[name], found["back"]) < 3} == {}
    words = ["ink", "quiet", "good", "bad"]
    assert {name for name in words for back in ("back", "page") if contrast(found[name], found[back]) < 4.5} == set()


@pytest.mark.parametrize("sight", SIGHTS)
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_states_and_neighbouring_parts_can_be_told_apart_with_any_sight(scheme, sight):
    found = colours(scheme)
    pairs = [*combinations(STATES, 2), *pairwise(PARTS)]
    alike = [pair for pair in pairs if math.dist(*(seen(found[name], sight) for name in pair)) < 18]
    assert alike == []
