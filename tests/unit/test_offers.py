"""Where the tools of a request stand, which of them must stay as they are, and what shortening one changes."""

import gzip
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from recordings import REQUESTS

from pager.errors import NotUnderstood
from pager.request_values import Span
from pager.tools.decide_forms import schema_handle
from pager.tools.shorten import Slim, slim
from pager.wire.byte_edits import apply_edits
from pager.wire.dialects import load

FORMATS = ("chat", "responses", "messages")
every_format = pytest.mark.parametrize("form", FORMATS)
SCHEMA = {"type": "object", "properties": {"path": {"type": "string", "description": "Where it is."}}}


def schema_key(form) -> str:
    return "input_schema" if form == "messages" else "parameters"


def entry(form, function, more=()):
    """A tool as this format writes it; ``function`` has its name, and in their order description and parameters."""
    function = {schema_key(form) if key == "parameters" else key: value for key, value in function.items()}
    if form == "chat":
        return {"type": "function", "function": function, **dict(more)}
    return {**({"type": "function"} if form == "responses" else {}), **function, **dict(more)}


def tool(form, name="read", description="Reads a file. Slowly.", parameters=SCHEMA, **more):
    return entry(form, {"name": name, "description": description, "parameters": parameters}, more)


def body_of(raw_tools) -> bytes:
    return b'{"model": "m", "messages": [], "input": [], "tools": %b, "stream": true}' % raw_tools


def listed(form, raw_tools):
    dialect = load(form)
    return dialect.offers(dialect.parse(body_of(raw_tools)))


def offers(form, *tools):
    return listed(form, json.dumps(tools).encode()).offers


def shortened(form, raw_tools, shorts) -> bytes:
    """The list of tools as it goes out."""
    body, found = body_of(raw_tools), listed(form, raw_tools)
    assert body[found.start :].startswith(raw_tools)
    edits = found.offers.edits(shorts)
    moved = [(Span(found.start + span.start, found.start + span.end), new) for span, new in edits]
    before, after = body.split(raw_tools)
    sent = apply_edits(body, moved)
    assert sent.startswith(before)
    assert sent.endswith(after)
    return sent[len(before) : len(sent) - len(after)]


def short(name, description="Short. [pg_00000000]", parameters=b'{"type":"object"}') -> Slim:
    return Slim(name, description, parameters)


def fixed(form, *tools) -> list[str]:
    return [one.fixed for one in offers(form, *tools).tools]


# Laws

texts = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="@"), max_size=8)
values = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | texts,
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=6,
)
schemas = st.just(SCHEMA) | st.dictionaries(texts | st.sampled_from(["description", "name"]), values, max_size=3)
extras = st.dictionaries(
    st.sampled_from(["cache_control", "strict", "x", "é\n", "tools", "format"]), values, max_size=2
)
blanks = st.text(" \t\n\r", max_size=2)
layouts = st.fixed_dictionaries(
    {
        "ensure_ascii": st.booleans(),
        "indent": st.none() | st.integers(0, 2),
        "separators": st.builds(lambda a, b, c, d: (a + "," + b, c + ":" + d), blanks, blanks, blanks, blanks),
    }
)
oddities = st.sampled_from(
    [7, "text", None, [], {}, {"name": 5}, {"type": "web_search"}, {"function": "read"}, {"function": {"name": ""}}]
)


@st.composite
def functions(draw, name):
    """A tool's own members, of which only the name is certain, in any order."""
    function = {"name": name}
    if draw(st.booleans()):
        function["description"] = draw(texts)
    if draw(st.booleans()):
        function["parameters"] = draw(schemas)
    function |= draw(extras)
    return dict(draw(st.permutations(list(function.items()))))


@st.composite
def toolboxes(draw):
    """Tools of different names, those of them that are to be short, and what else stands in the list."""
    names = draw(st.lists(texts.filter(bool), min_size=1, max_size=4, unique=True))
    tools = [draw(functions(name)) for name in names]
    chosen = draw(st.sets(st.sampled_from(names)))
    return tools, chosen, draw(st.lists(st.tuples(st.integers(0, 4), oddities), max_size=2)), draw(layouts)


def with_placeholders(function, at, chosen, layout):
    """The function with marks where its short form goes, and what each mark stands for."""
    if function["name"] not in chosen:
        return function, {}
    said, new = json.dumps(f"é {at}", ensure_ascii=False), b'{"type":"object","x":%d}' % at
    name = json.dumps(function["name"], ensure_ascii=layout["ensure_ascii"])
    marks = {f'"@d{at}@"': said.encode()} if "description" in function else {
        f'"@n{at}@"': f'{name},"description":{said}'.encode()
    }  # fmt: skip
    marked = {**function, **({"description": f"@d{at}@"} if "description" in function else {"name": f"@n{at}@"})}
    if "parameters" in function:
        marks[f'"@p{at}@"'] = new
        marked["parameters"] = f"@p{at}@"
    return marked, marks


def with_oddities(tools, odd) -> list:
    tools = list(tools)
    for at, value in odd:
        tools.insert(at, value)
    return tools


@every_format
@given(toolboxes())
def test_only_description_and_parameters_of_short_tools_change(form, toolbox):
    tools, chosen, odd, layout = toolbox
    raw = json.dumps(with_oddities([entry(form, one) for one in tools], odd), **layout).encode()
    marked = [with_placeholders(one, at, chosen, layout) for at, one in enumerate(tools)]
    expected = json.dumps(with_oddities([entry(form, one) for one, _ in marked], odd), **layout).encode()
    for mark, value in (pair for _, marks in marked for pair in marks.items()):
        expected = expected.replace(mark.encode(), value)
    shorts = {
        one["name"]: short(one["name"], f"é {at}", b'{"type":"object","x":%d}' % at)
        for at, one in enumerate(tools)
        if one["name"] in chosen
    }
    sent = shortened(form, raw, shorts)
    assert sent == expected
    json.loads(sent)


@every_format
@given(toolboxes())
def test_every_tool_is_offered_in_its_order_with_its_values(form, toolbox):
    tools, _, odd, layout = toolbox
    raw = json.dumps(with_oddities([entry(form, one) for one in tools], odd), **layout).encode()
    found = listed(form, raw).offers.tools
    assert [one.tool.name for one in found] == [one["name"] for one in tools]
    for one, given_tool in zip(found, tools, strict=True):
        assert one.tool.description == given_tool.get("description", "")
        assert one.tool.parameters == given_tool.get("parameters", {})
        for place, key in ((one.description, "description"), (one.parameters, "parameters")):
            there = raw[place.start : place.end]
            assert json.loads(there) == given_tool[key] if key in given_tool else there == b""


@given(toolboxes())
def test_the_same_tool_has_the_same_handle_in_every_format(toolbox):
    tools, _, _, layout = toolbox
    layout = {**layout, "indent": None}  # a deeper place would be indented further
    found = [
        listed(form, json.dumps([entry(form, one) for one in tools], **layout).encode()).offers for form in FORMATS
    ]
    raws = [[one.tool.raw for one in each.tools] for each in found]
    assert raws[0] == raws[1] == raws[2]
    for raw, given_tool in zip(raws[0], tools, strict=True):
        assert json.loads(raw) == {
            key: given_tool[key] for key in given_tool if key in ("name", "description", "parameters")
        }
    assert [schema_handle(raw) for raw in raws[0]] == [schema_handle(raw) for raw in raws[2]]


@every_format
@given(toolboxes(), layouts)
def test_a_list_is_known_again_however_it_is_written(form, toolbox, other):
    tools, _, _, layout = toolbox
    entries = [entry(form, one) for one in tools]
    found, again = (listed(form, json.dumps(entries, **each).encode()).offers for each in (layout, other))
    assert found.digest == again.digest
    more = listed(form, json.dumps([*entries, tool(form, "one more @")], **other).encode()).offers
    assert more.digest != found.digest


@every_format
def test_cache_marks_make_no_other_list(form):
    mark = {"cache_control": {"type": "ephemeral"}}
    plain, marked = offers(form, tool(form)), offers(form, tool(form, **mark))
    inside = offers(
        form, entry(form, {"name": "read", "description": "Reads a file. Slowly.", "parameters": SCHEMA, **mark})
    )
    assert plain.digest == marked.digest == inside.digest
    assert plain.digest != offers(form, tool(form, description="Reads.")).digest


@every_format
def test_a_list_nested_too_deep_to_be_written_is_known_by_its_bytes(form):
    deep = b'"x": ' + b"[" * 600 + b"]" * 600
    raws = [json.dumps([tool(form)]).encode()[:-2] + blank + deep + b"}]" for blank in (b", ", b",  ")]
    digests = [listed(form, raw).offers.digest for raw in raws]
    assert digests[0] != digests[1]
    assert digests[0] == listed(form, raws[0]).offers.digest


# What can't be read, and what stays as it is


@every_format
@pytest.mark.parametrize("raw", [b"null", b"{}", b'"read"', b"[]", b"[ ]", b'[7, null, "read", {}]'])
def test_a_list_without_tools_offers_nothing(form, raw):
    assert listed(form, raw) is None


@every_format
def test_a_request_without_tools_offers_nothing(form):
    dialect = load(form)
    assert dialect.offers(dialect.parse(b'{"model": "m", "messages": [], "input": []}')) is None


@every_format
def test_a_tool_with_a_key_twice_is_left_out_and_the_others_are_offered(form):
    twice = json.dumps(tool(form, "odd")).replace('"name"', '"name": "other", "name"').encode()
    raw = b"[%b, %b]" % (twice, json.dumps(tool(form)).encode())
    assert [one.tool.name for one in listed(form, raw).offers.tools] == ["read"]
    sent = shortened(form, raw, {name: short(name) for name in ("odd", "other", "read")})
    assert sent.startswith(b"[%b, " % twice)
    assert sent.count(b"Short. [pg_00000000]") == 1


def test_a_function_that_comes_twice_in_one_entry_is_left_out():
    function = json.dumps(tool("chat")["function"]).encode()
    assert listed("chat", b'[{"function": %b, "function": %b}]' % (function, function)) is None


@every_format
def test_half_an_emoji_leaves_its_tool_whole_and_the_others_are_offered(form):
    raw = json.dumps([tool(form, "odd", "Half: \ud83d"), tool(form)]).encode()
    assert [one.tool.name for one in listed(form, raw).offers.tools] == ["read"]
    assert shortened(form, raw, {"odd": short("odd")}) == raw


@every_format
def test_tools_of_one_name_stay_whole(form):
    assert fixed(form, tool(form), tool(form, "write"), tool(form)) == [
        "its name comes twice", "", "its name comes twice",
    ]  # fmt: skip
    raw = json.dumps([tool(form), tool(form)]).encode()
    assert shortened(form, raw, {"read": short("read")}) == raw


@every_format
def test_a_name_that_one_which_cant_be_read_has_too_comes_twice(form):
    assert fixed(form, tool(form), tool(form, "read", "Half: \ud83d")) == ["its name comes twice"]


@every_format
@pytest.mark.parametrize("description", [None, 7, ["Reads."], {"text": "Reads."}])
def test_a_description_that_is_no_text_stays(form, description):
    assert fixed(form, tool(form, description=description)) == ["its description is no text"]
    raw = json.dumps([tool(form, description=description)]).encode()
    assert shortened(form, raw, {"read": short("read")}) == raw


@every_format
def test_a_tool_without_a_description_gets_one_behind_its_name(form):
    raw = json.dumps([entry(form, {"parameters": {"type": "object", "title": "T"}, "name": "read", "x": 1})]).encode()
    sent = shortened(form, raw, {"read": short("read")})
    assert sent == raw.replace(b'"name": "read"', b'"name": "read","description":"Short. [pg_00000000]"').replace(
        b'{"type": "object", "title": "T"}', b'{"type":"object"}'
    )


@every_format
def test_a_tool_without_parameters_gets_none(form):
    raw = json.dumps([entry(form, {"name": "read", "description": "Reads."})]).encode()
    assert shortened(form, raw, {"read": short("read")}) == raw.replace(b'"Reads."', b'"Short. [pg_00000000]"')


@every_format
def test_keys_written_with_escapes_are_found(form):
    raw = json.dumps([tool(form)]).encode()
    escaped = raw.replace(b'"description": "Reads', b'"d\\u0065scription" : "R\\u0065ads')
    assert escaped != raw
    sent = shortened(form, escaped, {"read": short("read")})
    assert json.loads(sent) == [tool(form, description="Short. [pg_00000000]", parameters={"type": "object"})]
    assert b'"d\\u0065scription" : "Short' in sent


@pytest.mark.parametrize(("strict", "enforced"), [(True, "crm"), (False, ""), (None, "r"), ("absent", "r")])
def test_a_schema_is_enforced_where_the_format_says_so(strict, enforced):
    for form in FORMATS:
        more = {} if strict == "absent" else {"strict": strict}
        found = offers(form, entry(form, {"name": "read", "parameters": SCHEMA, **more}))
        assert found.tools[0].tool.strict is (form[0] in enforced)


PATCH = {"type": "custom", "name": "patch", "description": "Patches.", "format": {"type": "grammar", "definition": "x"}}


@pytest.mark.parametrize(
    ("form", "one", "reason"),
    [
        ("responses", PATCH, "it is of the type custom"),
        ("messages", {"type": "bash_20250124", "name": "bash"}, "it is of the type bash_20250124"),
        ("messages", {"type": "web_search_20250305", "name": "web_search"}, "it is of the type web_search_20250305"),
        ("messages", tool("messages", type=None), ""),
        ("messages", tool("messages", type="custom"), ""),
        ("messages", tool("messages", eager_input_streaming=True), ""),
        ("messages", tool("messages", allowed_callers=["direct"]), ""),
        ("messages", tool("messages", allowed_callers=["code_execution_20260120"]), "programs call it, too"),
        ("responses", tool("responses", allowed_callers=["direct", "programmatic"]), "programs call it, too"),
        ("chat", {**tool("chat"), "type": "other"}, "it is of the type other"),
        ("chat", {"function": tool("chat")["function"]}, ""),
    ],
)
def test_tools_that_the_proxy_must_not_change_say_why(form, one, reason):
    assert fixed(form, one) == [reason]
    raw = json.dumps([one, tool(form, "other")]).encode()
    if reason:
        assert shortened(form, raw, {offers(form, one).tools[0].tool.name: short("x")}) == raw


@pytest.mark.parametrize(
    ("form", "one"),
    [
        ("responses", {"type": "web_search"}),
        ("responses", {"type": "mcp", "server_label": "x", "server_url": "http://mcp"}),
        ("messages", {"type": "mcp_toolset", "mcp_server_name": "x"}),
        ("chat", {"type": "custom", "custom": {"name": "patch", "format": {"type": "grammar"}}}),
    ],
)
def test_tools_without_a_name_of_their_own_are_passed_over(form, one):
    found = offers(form, one, tool(form))
    assert [one.tool.name for one in found.tools] == ["read"]
    assert not found.deferring


@pytest.mark.parametrize(
    ("form", "one", "reason"),
    [
        ("messages", tool("messages", "ToolSearch"), "it has ToolSearch"),
        ("chat", tool("chat", "tool_search"), "it has tool_search"),
        ("responses", {"type": "tool_search", "execution": "client"}, "it has the provider's search for tools"),
        (
            "messages",
            {"type": "tool_search_tool_regex_20251119", "name": "tool_search_tool_regex"},
            "it has the provider's search for tools",
        ),
        ("messages", tool("messages", "late", defer_loading=True), "it marks tools to be loaded late"),
        ("responses", tool("responses", "late", defer_loading=True), "it marks tools to be loaded late"),
        ("chat", entry("chat", {"name": "late", "defer_loading": True}), "it marks tools to be loaded late"),
        ("messages", tool("messages", "late", defer_loading=False), ""),
        ("chat", tool("chat", "search_files"), ""),
    ],
)
def test_a_client_that_loads_tools_late_says_how(form, one, reason):
    assert offers(form, tool(form), one).deferring == reason


# Namespaces


def namespace(*tools, **more):
    return {"type": "namespace", "name": "crm", "description": "Customers.", "tools": list(tools), **more}


def test_tools_in_a_namespace_are_offered_where_they_stand():
    raw = json.dumps([tool("responses"), namespace(tool("responses", "find"), PATCH), tool("responses", "w")]).encode()
    found = listed("responses", raw).offers
    assert [(one.tool.name, one.fixed) for one in found.tools] == [
        ("read", ""), ("find", ""), ("patch", "it is of the type custom"), ("w", ""),
    ]  # fmt: skip
    assert not found.deferring
    sent = json.loads(shortened("responses", raw, {"find": short("find"), "patch": short("patch")}))
    expected = json.loads(raw)
    expected[1]["tools"][0] |= {"description": "Short. [pg_00000000]", "parameters": {"type": "object"}}
    assert sent == expected


def test_a_name_in_a_namespace_and_outside_of_it_comes_twice():
    # A call tells its name and its namespace apart, and only the name is looked at.
    assert fixed("responses", tool("responses"), namespace(tool("responses"))) == ["its name comes twice"] * 2


def test_a_namespace_with_tools_to_be_loaded_late_is_the_clients_own_deferring():
    late = tool("responses", "late", defer_loading=True)
    assert offers("responses", namespace(late)).deferring == "it marks tools to be loaded late"


@pytest.mark.parametrize("broken", [{"tools": 7}, {"tools": None}, {"tools": []}])
def test_a_namespace_without_tools_changes_nothing(broken):
    found = offers("responses", tool("responses"), {**namespace(), **broken})
    assert [one.tool.name for one in found.tools if not one.fixed] == ["read"]


def test_a_namespace_with_a_key_twice_stays_whole():
    odd = json.dumps(namespace(tool("responses", "find"))).replace('"name": "crm"', '"name": "a", "name": "b"')
    raw = b"[%b, %b]" % (odd.encode(), json.dumps(tool("responses")).encode())
    assert [one.tool.name for one in listed("responses", raw).offers.tools] == ["read"]
    assert shortened("responses", raw, {"find": short("find")}) == raw


def test_the_same_list_is_read_once():
    raw = json.dumps([tool("chat", "once")]).encode()
    assert listed("chat", raw).offers is listed("chat", raw).offers


# Recorded requests


def requests_of(path):
    """The format and the body of each recorded request with tools."""
    with gzip.open(path) as lines:
        for line in map(json.loads, lines):
            form = next((form for form in FORMATS if line["path"].startswith("/v1" + load(form).path)), None)
            if form is not None and isinstance(line["body"], dict) and line["body"].get("tools"):
                yield form, line["body"]


def names_in(tools) -> list:
    return [
        [one.get("type"), one.get("name"), one.get("function", {}).get("name"), names_in(one.get("tools", []))]
        for one in tools
    ]


def slimmed(found) -> dict:
    """The short forms of all tools that may have one."""
    shorts = {}
    for one in found.tools:
        try:
            shorts[one.tool.name] = slim(one.tool, schema_handle(one.tool.raw))
        except NotUnderstood:
            continue
    return {one.tool.name: shorts[one.tool.name] for one in found.tools if not one.fixed and one.tool.name in shorts}


@pytest.mark.recorded
@pytest.mark.skipif(not REQUESTS, reason="CTXPAGER_RECORDINGS names no folder with recordings")
@pytest.mark.parametrize("path", REQUESTS, ids=lambda path: f"{path.parent.name}/{path.name.split('.')[0]}")
def test_every_recorded_request_can_be_sent_with_short_tools(path):
    seen = set()
    for form, body in requests_of(path):
        raw = json.dumps(body["tools"], ensure_ascii=False).encode()
        if raw in seen:
            continue
        seen.add(raw)
        found, dialect = listed(form, raw).offers, load(form)
        shorts = slimmed(found)
        assert shorts.keys() == {one.tool.name for one in found.tools if not one.fixed}
        written = json.dumps(body, ensure_ascii=False).encode()
        place = dialect.offers(dialect.parse(written))
        assert place.offers.digest == found.digest
        sent = json.loads(written.replace(raw, shortened(form, raw, shorts), 1))
        assert names_in(sent["tools"]) == names_in(body["tools"])
        assert {**sent, "tools": 0} == {**body, "tools": 0}
        assert json.dumps(sent["tools"]).count("[pg_") == len(shorts)
        assert shorts or found.deferring or form == "responses"
