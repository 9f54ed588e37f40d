"""Slim and deferred tools: what is dropped, what never is, and which tools stay whole."""

import json
import os
import random
from pathlib import Path

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st
from jsonschema.validators import Draft202012Validator, validator_for
from laws import examples

from pager.errors import NotUnderstood
from pager.paging.pages.stub import HANDLE, handle_of
from pager.pricing.tokens import O200K, Counter
from pager.tools.check_arguments import check
from pager.tools.shorten import (
    DEEPEST,
    LEAST_SHARE,
    LEAST_TOKENS,
    PROSE,
    Tool,
    deferred,
    dumped,
    first_sentence,
    forms,
    slim,
    without_prose,
)

COUNTER = Counter()
WEATHER = {
    "type": "object",
    "description": "All that is needed to look up the weather at a place, now or on one of the next ten days.",
    "properties": {
        "city": {"type": "string", "title": "City", "description": "The city, as people who live there call it."},
        "units": {"enum": ["C", "F"], "default": "C", "description": "In which unit temperatures shall be told."},
    },
    "required": ["city"],
    "additionalProperties": False,
}
BARE_WEATHER = {
    "type": "object",
    "properties": {"city": {"type": "string"}, "units": {"enum": ["C", "F"]}},
    "required": ["city"],
    "additionalProperties": False,
}


def count(text):
    return COUNTER.count(text, O200K)


def tool(parameters=WEATHER, description="Tells the weather. It is always right.", *, strict=False, name="weather"):
    function = {"name": name, "description": description, "parameters": parameters, "strict": strict}
    try:
        raw = orjson.dumps({"type": "function", "function": function})
    except TypeError:
        raw = json.dumps({"type": "function", "function": function}).encode()
    return Tool(name, description, parameters, strict, raw)


def handle(of):
    return handle_of(of.raw)


def forms_of(one):
    return forms(one, handle(one), count)


# What a slim tool is


def test_a_slim_tool_has_its_first_sentence_its_handle_and_its_bare_parameters():
    weather = tool()
    made = slim(weather, handle(weather))
    assert made.name == "weather"
    assert made.description == f"Tells the weather. [{handle(weather)}]"
    assert made.parameters == orjson.dumps(BARE_WEATHER)


def test_a_deferred_tool_has_one_line_its_handle_and_takes_any_object():
    weather = tool(description="Tells the weather of " + "very " * 40 + "many places.")
    made = deferred(weather, handle(weather))
    line, _, note = made.description.partition(" [")
    assert line.endswith("very...")
    assert len(line) <= 80
    assert note == f"{handle(weather)}]"
    assert orjson.loads(made.parameters) == {"type": "object"}


def test_a_tool_without_a_description_has_its_handle_alone():
    silent = tool(description="")
    assert slim(silent, "pg_00").description == "[pg_00]"
    assert deferred(silent, "pg_00").description == "[pg_00]"


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("Reads a file. Slowly.", "Reads a file."),
        ("Reads a file, e.g. README.md. Slowly.", "Reads a file, e.g. README.md."),
        ("Reads v1.2 files. Slowly.", "Reads v1.2 files."),
        ("Reads files\nthat were wrapped. Slowly.", "Reads files that were wrapped."),
        ("Reads a file\nArguments: path", "Reads a file"),
        ("\n\n  Reads a file!\n\nMore.", "Reads a file!"),
        ("Is it there? Ask.", "Is it there?"),
        ("读取文件。然后返回。", "读取文件。"),
        ('Says "no\\yes" to pg_0123456789abcdef.', "Says 'no/yes' to (page)."),
        ("Close the page", "Close the page"),
        ("  ", ""),
    ],
)
def test_the_first_sentence_of_a_description(text, sentence):
    assert first_sentence(text, 200) == sentence


@given(st.text(alphabet=st.sampled_from('aB. e.g!?\n\\"[]:()pg_0123456789'), max_size=400) | st.text())
def test_a_slim_description_is_short_has_one_handle_and_slimming_it_again_changes_nothing(text):
    made = slim(tool(description=text), "pg_0123456789abcdef")
    assert HANDLE.findall(made.description) == ["pg_0123456789abcdef"]
    assert len(made.description) <= 200 + len(" [pg_0123456789abcdef]")
    again = slim(tool(description=made.description), "pg_0123456789abcdef")
    assert again.description == made.description


# What is dropped of a schema, and what never is

NAMES = ["a", "b", "description", "title", "default", "examples", "enum", "const", "properties", "$schema", "$defs"]
VALUES = [None, True, 0, 1, -2.5, "", "x", "description", [1, "x"], {"title": "t"}, {"description": "d", "default": 1}]
SCALARS = ["string", "integer", "number", "boolean", "null"]


def explained(rng, bare):
    """The schema with prose put between its keywords, anywhere."""
    prose = {
        "description": "What it is.", "title": "T", "default": rng.choice(VALUES), "examples": [rng.choice(VALUES)],
        "$comment": "hm", "$schema": "https://json-schema.org/draft/2020-12/schema",
    }  # fmt: skip
    items = list(bare.items())
    for name in rng.sample(sorted(prose), rng.randrange(4)):
        items.insert(rng.randrange(len(items) + 1), (name, prose[name]))
    return dict(items)


def grown(rng, depth, names=()):
    """A schema without prose, and the same one explained."""
    if depth == 0 or rng.random() < 0.2:
        return leaf(rng, names)
    make = rng.choice([grown_object, grown_object, grown_array, grown_choice])
    parts = make(rng, lambda: grown(rng, depth - 1, names))
    bare = {keyword: value[0] for keyword, value in parts.items()}
    return bare, explained(rng, {keyword: value[1] for keyword, value in parts.items()})


def grown_object(rng, below):
    chosen = rng.sample(NAMES, rng.randrange(4))
    parts = {"type": ("object", "object"), "properties": named({name: below() for name in chosen})}
    if rng.random() < 0.5:
        required = rng.sample(chosen, rng.randrange(len(chosen) + 1))
        parts |= {"required": (required, required), "additionalProperties": rng.choice([(False, False), below()])}
    if rng.random() < 0.3:
        parts["patternProperties"] = named({"^de": below(), "title": below()})
    return parts


def grown_array(rng, below):
    parts = {"type": ("array", "array"), "items": below()}
    return parts | {"prefixItems": listed([below()])} if rng.random() < 0.3 else parts


def grown_choice(rng, below):
    keyword = rng.choice(["anyOf", "oneOf", "allOf", "not"])
    return {keyword: below() if keyword == "not" else listed([below() for _ in range(rng.randrange(1, 4))])}


def named(pairs):
    return tuple({name: pair[i] for name, pair in pairs.items()} for i in (0, 1))


def listed(pairs):
    return tuple([pair[i] for pair in pairs] for i in (0, 1))


def leaf(rng, names):
    bare = rng.choice([
        {"type": rng.choice(SCALARS)}, {"type": rng.sample(SCALARS, 2)}, {"const": rng.choice(VALUES)},
        {"enum": rng.sample(VALUES, 3)}, {"type": "integer", "minimum": 0, "x-note": {"description": "kept"}},
        {"type": "string", "maxLength": 3, "format": "uri"}, {}, True, False,
        *({"$ref": f"#/$defs/{name}"} for name in names),
    ])  # fmt: skip
    return (bare, explained(rng, bare)) if isinstance(bare, dict) else (bare, bare)


def grown_whole(rng):
    """One with two definitions, both of which are referred to, and refer to each other."""
    names = first, second = rng.sample(NAMES, 2)
    bare, dressed = grown(rng, 3, names)
    if not isinstance(bare, dict):
        bare, dressed = {}, {}
    items = {"type": "array", "items": {"$ref": f"#/$defs/{first}"}}
    definitions = {first: grown(rng, 2, [second]), second: (items, explained(rng, items))}
    for i, root in enumerate((bare, dressed)):
        used = root.setdefault("allOf", [])
        used.extend({"anyOf": [True, {"$ref": f"#/$defs/{name}"}]} for name in names)
        root["$defs"] = {name: pair[i] for name, pair in definitions.items()}
    return bare, dressed


def fitting(rng, schema, root, depth=0):
    """A value that the schema probably allows."""
    if not isinstance(schema, dict) or depth > 12 or rng.random() < 0.03:
        return rng.choice(VALUES)
    if "$ref" in schema:
        kind, name = schema["$ref"].split("/")[-2:]
        return fitting(rng, root[kind][name], root, depth + 1)
    if "const" in schema or "enum" in schema:
        return schema.get("const", rng.choice(schema.get("enum", VALUES)))
    for keyword in ("anyOf", "oneOf", "allOf"):
        if schema.get(keyword) and "properties" not in schema:
            return fitting(rng, rng.choice(schema[keyword]), root, depth + 1)
    kind = schema.get("type", "object" if "properties" in schema else None)
    kind = rng.choice(kind) if isinstance(kind, list) else kind
    if kind == "object":
        known, required = schema.get("properties", {}), schema.get("required", [])
        names = [name for name in known if name in required or rng.random() < 0.6 / (depth + 1)]
        more = rng.sample(NAMES, 1) if rng.random() < 0.1 else []
        return {name: fitting(rng, known.get(name), root, depth + 1) for name in names + more}
    if kind == "array":
        size = max(rng.randrange(3), schema.get("minItems", 0))
        return [fitting(rng, schema.get("items"), root, depth + 1) for _ in range(size)]
    low = schema.get("minimum", schema.get("exclusiveMinimum", 0) + 1)
    made = {"string": "x" * schema.get("minLength", 1), "integer": low, "number": low, "boolean": True, "null": None}
    return made.get(kind, rng.choice(VALUES))


WRONG = {
    "string": [1, None, ["x"]], "integer": ["1", 1.5, None], "number": ["1", None], "boolean": ["true", 1, None],
    "null": [0, ""], "array": [{}, "[]", None], "object": [[], "{}", None],
}  # fmt: skip
"""Values of another type than the one named."""


def broken(value, schema, root):
    """The value with one parameter renamed or of a wrong type, anywhere in it, in all ways that surely are wrong."""
    while isinstance(schema, dict) and "$ref" in schema:
        kind, name = schema["$ref"].split("/")[-2:]
        schema = root[kind][name]
    if not isinstance(schema, dict):
        return
    yield from WRONG.get(schema["type"], []) if isinstance(schema.get("type"), str) else []
    if isinstance(value, dict):
        yield from broken_object(value, schema, root)
    for at, each in enumerate(value) if isinstance(value, list) and "prefixItems" not in schema else ():
        yield from ([*value[:at], bad, *value[at + 1 :]] for bad in broken(each, schema.get("items"), root))


def broken_object(value, schema, root):
    known = schema.get("properties", {})
    if schema.get("additionalProperties") is False:
        yield {**value, "no such parameter": 1}
        for name in value if "patternProperties" not in schema else ():
            yield {f"{key}_" if key == name else key: each for key, each in value.items()}
    for name in schema.get("required", []):
        yield {key: each for key, each in value.items() if key != name}
    for name in value:
        yield from ({**value, name: bad} for bad in broken(value[name], known.get(name), root))


def expect_checked_alike(whole, bare, rng, tries):
    """That what fits a tool fits its slim form, and what breaks a name or a type fits neither; how many were tried."""
    valid = [value for value in (fitting(rng, whole, whole) for _ in range(tries)) if allows(whole, value)]
    wrong = [bad for value in valid for bad in broken(value, whole, whole)]
    wrong = rng.sample(wrong, min(len(wrong), 4 * tries))
    assert all(allows(bare, value) and not check(json.dumps(value), whole) for value in valid)
    for bad in wrong:
        assert not allows(whole, bad)
        assert not allows(bare, bad)
        assert check(json.dumps(bad), whole)
    return len(valid), len(wrong)


def allows(schema, value):
    return validator_for(schema, default=Draft202012Validator)(schema).is_valid(value)


@examples(150)
@given(st.randoms(use_true_random=False))
def test_exactly_the_prose_is_dropped_and_the_order_is_kept(rng):
    bare, dressed = grown_whole(rng)
    stripped = without_prose(dressed)
    assert orjson.dumps(stripped) == orjson.dumps(bare)
    assert orjson.dumps(without_prose(stripped)) == orjson.dumps(bare)


@examples(150)
@given(st.randoms(use_true_random=False))
def test_a_slim_schema_allows_exactly_what_the_whole_one_does(rng):
    _, dressed = grown_whole(rng)
    stripped = without_prose(dressed)
    for value in [fitting(rng, dressed, dressed) for _ in range(3)]:
        assert allows(dressed, value) == allows(stripped, value)


def parameters_of(rng):
    """The parameters of a tool: named ones of any kind, explained."""
    names = rng.sample(NAMES, 3)
    known = {name: grown(rng, 2)[1] if rng.random() < 0.4 else plainly(rng, 2) for name in names}
    required = rng.sample(names, rng.randrange(4))
    made = {"type": "object", "properties": known, "required": required, "additionalProperties": False}
    return explained(rng, made)


def plainly(rng, depth):
    """A parameter of one type, as most tools have them."""
    kind = rng.choice([*SCALARS, "array", "object"] if depth else SCALARS)
    made = {"type": kind}
    if kind == "array":
        made["items"] = plainly(rng, depth - 1)
    if kind == "object":
        made |= {"properties": {name: plainly(rng, depth - 1) for name in rng.sample(NAMES, 2)}}
        made |= {"additionalProperties": False} if rng.random() < 0.5 else {}
    return explained(rng, made)


@examples(150)
@given(st.randoms(use_true_random=False))
def test_what_fits_a_tool_fits_its_slim_form_and_a_wrong_name_or_type_fits_neither(rng):
    whole = parameters_of(rng)
    expect_checked_alike(whole, without_prose(whole), rng, 4)


def test_wrong_names_and_types_are_really_tried():
    rng = random.Random(5)
    schemas = [parameters_of(rng) for _ in range(60)]
    tried = [expect_checked_alike(whole, without_prose(whole), rng, 4) for whole in schemas]
    assert sum(valid > 0 for valid, _ in tried) > 40
    assert sum(wrong > 8 for _, wrong in tried) > 40


@given(st.randoms(use_true_random=False))
def test_the_same_tool_has_the_same_slim_form_whenever_it_is_made(rng):
    _, dressed = grown_whole(rng)
    one, other = tool(dressed), tool(orjson.loads(orjson.dumps(dressed)))
    assert slim(one, handle(one)) == slim(other, handle(other))


def test_a_prose_keyword_that_holds_something_else_is_kept():
    odd = {"type": "object", "description": {"type": "string"}, "examples": "x", "title": ["t"]}
    assert without_prose(odd) == odd


def test_definitions_that_nothing_refers_to_are_dropped():
    schema = {
        "$defs": {
            "used": {"$ref": "#/$defs/next%20one"},
            "next one": {"items": {"$ref": "#/definitions/a~1b"}},
            "alone": {"$ref": "#/$defs/alone"},
        },
        "definitions": {"a/b": {"type": "string"}, "used": {}},
        "properties": {"x": {"$ref": "#/$defs/used"}, "y": {"$ref": "#"}, "z": {"$ref": "#/properties/x"}},
    }
    stripped = without_prose(schema)
    assert list(stripped["$defs"]) == ["used", "next one"]
    assert list(stripped["definitions"]) == ["a/b"]
    assert without_prose({"$defs": schema["$defs"], "type": "object"}) == {"type": "object"}


def test_definitions_that_may_be_referred_to_by_another_name_are_kept():
    schema = {"$defs": {"a": {"$anchor": "here"}, "b": {}}, "properties": {"x": {"$ref": "#here"}}}
    assert without_prose(schema) == schema


def test_a_draft_is_named_where_it_matters():
    draft_7 = "http://json-schema.org/draft-07/schema#"
    plain = {"$schema": draft_7, "properties": {"id": {"type": "string"}, "if": {"$ref": "#/properties/id"}}}
    assert "$schema" not in without_prose(plain)
    for own in (
        {"items": [{"type": "string"}]},
        {"if": {"type": "string"}},
        {"$ref": "#/definitions/a", "minLength": 1, "definitions": {"a": {}}},
        {"dependencies": {"a": ["b"], "b": {"title": "B", "type": "object"}}},
    ):
        assert without_prose({"$schema": draft_7, "properties": {"x": own}})["$schema"] == draft_7
    assert "$schema" in without_prose({"$schema": "http://json-schema.org/draft-04/schema#"})
    assert "$schema" in without_prose({"$schema": 4})


def test_dependencies_keep_their_names_and_lose_their_prose():
    schema = {"dependencies": {"a": ["title"], "title": {"title": "T", "required": ["a"]}}}
    assert without_prose(schema) == {"dependencies": {"a": ["title"], "title": {"required": ["a"]}}}


# What stays whole


def nested(levels):
    schema = {"type": "string", "description": "deep"}
    for _ in range(levels):
        schema = {"items": schema}
    return schema


@pytest.mark.parametrize(
    ("parameters", "reason"),
    [
        (None, "no object"),
        (True, "no object"),
        ([], "no object"),
        (nested(DEEPEST), "deeper than 64 levels"),
        ({"properties": ["a"]}, "properties is no object"),
        ({"properties": {"a": "string"}}, "neither an object nor true or false"),
        ({"anyOf": [None]}, "neither an object nor true or false"),
        ({"maximum": 2.0**70}, "may have been rounded"),
        ({"maximum": float("nan")}, "a number is none"),
        ({"maximum": 1 << 80}, "64-bit"),
        ({"enum": ["\ud800"]}, "surrogates"),
        ({"items": {"$ref": "#/properties/a/default"}}, "a reference leads into prose"),
        ({"items": {"$ref": "#/anyOf/0/examples/1"}}, "a reference leads into prose"),
    ],
)
def test_a_schema_that_is_not_understood_stays_whole(parameters, reason):
    found = forms_of(tool(parameters))
    assert found.slim is found.deferred is None
    assert reason in found.not_slim
    assert found.tokens > 0


def test_the_deepest_schema_that_is_allowed_is_understood():
    assert without_prose(nested(DEEPEST - 1)) != nested(DEEPEST - 1)


@pytest.mark.parametrize("reference", ["#", "#/properties/default", "#/$defs/title", "#/x-own/default", "other.json#a"])
def test_a_reference_that_only_looks_like_prose_is_no_reason(reference):
    assert without_prose({"items": {"$ref": reference}}) == {"items": {"$ref": reference}}


def test_a_cycle_of_references_is_understood():
    schema = {"$ref": "#/$defs/a", "$defs": {"a": {"items": {"$ref": "#/$defs/a"}, "title": "A"}}}
    assert without_prose(schema) == {"$ref": "#/$defs/a", "$defs": {"a": {"items": {"$ref": "#/$defs/a"}}}}


def test_a_tool_that_has_little_prose_stays_whole():
    short = tool({"type": "object", "properties": {"city": {"type": "string"}}}, "Tells the weather.")
    found = forms_of(short)
    assert found.slim is None
    assert found.deferred is None
    assert found.not_slim == f"it would save 0 of {found.tokens} tokens"


def test_a_form_must_save_a_tenth():
    many = {f"p{number}": {"type": "string"} for number in range(200)}
    large = tool({"type": "object", "properties": many}, "Does it. " + "It is good at that. " * 10)
    found = forms_of(large)
    assert found.tokens - found.slim_tokens > 3 * LEAST_TOKENS
    assert found.slim is None
    assert found.deferred is not None
    assert found.deferred_tokens < found.tokens * LEAST_SHARE


@pytest.mark.parametrize("more", range(12))
def test_a_form_must_save_what_its_handle_costs(more):
    found = forms_of(tool({"type": "object", "properties": {"a": {"type": "string"}}}, "It does it. " + "Yes. " * more))
    saved = found.tokens - found.slim_tokens
    assert (found.slim is not None) == (saved >= LEAST_TOKENS)
    assert found.slim or found.not_slim == f"it would save {max(saved, 0)} of {found.tokens} tokens"


def test_what_can_not_be_written_again_exactly_is_not_understood():
    assert dumped({"b": 1, "a": "\u2602"}) == b'{"b":1,"a":"\xe2\x98\x82"}'
    with pytest.raises(NotUnderstood):
        dumped({"a": "\ud83d"})


def test_the_sizes_are_those_of_what_the_model_reads():
    weather = tool()
    found = forms_of(weather)
    entry = {"name": "weather", "description": found.slim.description, "parameters": BARE_WEATHER}
    assert found.slim_tokens == count(orjson.dumps(entry).decode())
    whole = {**entry, "description": weather.description, "parameters": WEATHER}
    assert found.tokens == count(orjson.dumps(whole).decode())
    assert found.deferred_tokens < found.slim_tokens < found.tokens


# Strict tools


def is_strict(schema):
    """OpenAI's rules for strict schemas, as far as they concern what slimming could break."""
    if "properties" in schema and (
        schema.get("type") != "object"
        or schema.get("additionalProperties") is not False
        or sorted(schema.get("required", [])) != sorted(schema["properties"])
    ):
        return False
    parts = [*schema.get("properties", {}).values(), *schema.get("anyOf", []), *schema.get("$defs", {}).values()]
    parts += [schema["items"]] if "items" in schema else []
    typed = {"type", "anyOf", "$ref", "enum", "const"} & set(schema)
    return bool(typed) and "default" not in schema and all(map(is_strict, parts))


def strictly(rng, depth):
    if depth == 0:
        return explained_strictly(rng, {"type": rng.choice([*SCALARS, ["string", "null"]])})
    match rng.randrange(3):
        case 0:
            chosen = rng.sample(NAMES, rng.randrange(1, 4))
            made = {"type": "object", "properties": {name: strictly(rng, depth - 1) for name in chosen}}
            made |= {"required": chosen, "additionalProperties": False}
        case 1:
            made = {"type": "array", "items": strictly(rng, depth - 1)}
        case _:
            made = {"anyOf": [strictly(rng, depth - 1), {"type": "null"}]}
    return explained_strictly(rng, made)


def explained_strictly(rng, schema):
    return rng.choice([schema, {"description": "What it is.", **schema}, {**schema, "title": "T"}])


@given(st.randoms(use_true_random=False))
def test_a_strict_schema_stays_one_when_it_is_slim(rng):
    schema = strictly(rng, 3)
    assert is_strict(schema)
    stripped = without_prose(schema, strict=True)
    assert is_strict(stripped)
    assert orjson.dumps(stripped) == orjson.dumps(without_prose(schema))


def test_what_decides_how_a_strict_schema_is_taken_is_kept():
    kept = {
        "type": "object",
        "properties": {"a": {"type": "string", "default": "x", "examples": ["y"]}},
        "$defs": {"b": {}},
    }
    assert without_prose({**kept, "title": "T", "description": "d", "$comment": "c"}, strict=True) == kept


def test_a_strict_tool_is_slimmed_but_never_deferred():
    found = forms_of(tool(strict=True))
    assert found.slim is not None
    assert found.deferred is None


# Real tools

FOLDER = Path(os.environ.get("CTXPAGER_RECORDINGS", "")) / "schemas"
FILES = sorted(FOLDER.glob("tools_*.json")) if os.environ.get("CTXPAGER_RECORDINGS") else []
needs_schemas = pytest.mark.skipif(not FILES, reason="CTXPAGER_RECORDINGS names no folder with schemas/tools_*.json")
MAPS = ("properties", "patternProperties", "$defs", "definitions")


def real_tools(path):
    offered = orjson.loads(path.read_bytes())["tools"]
    return [tool(each["inputSchema"], each["description"], name=each["name"]) for each in offered]


def bones(schema, *, a_name=False):
    """All of a schema but prose, told with the paths to it; definitions aside."""
    if isinstance(schema, list):
        return [bones(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    dropped = () if a_name else (*PROSE, "$defs")
    return [
        (name, bones(each, a_name=name in MAPS and not a_name)) for name, each in schema.items() if name not in dropped
    ]


@pytest.mark.recorded
@needs_schemas
@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_a_real_tools_bones_are_kept_and_slimming_is_idempotent(path):
    for one in real_tools(path):
        made = slim(one, handle(one))
        stripped = orjson.loads(made.parameters)
        assert bones(stripped) == bones(one.parameters)
        for name, definition in stripped.get("$defs", {}).items():
            assert bones(definition) == bones(one.parameters["$defs"][name])
        again = Tool(one.name, made.description, stripped, strict=False, raw=one.raw)
        assert slim(again, handle(one)) == made


@pytest.mark.recorded
@needs_schemas
@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_a_slim_real_tool_allows_exactly_what_the_whole_one_does(path):
    rng, verdicts = random.Random(path.stem), []
    for one in real_tools(path):
        stripped = orjson.loads(slim(one, handle(one)).parameters)
        values = [fitting(rng, one.parameters, one.parameters) for _ in range(12)]
        whole = validator_for(one.parameters, default=Draft202012Validator)(one.parameters)
        bare = Draft202012Validator(stripped)  # also where the whole one names another draft
        verdicts += [whole.is_valid(value) for value in values]
        assert verdicts[-12:] == [bare.is_valid(value) for value in values]
    assert verdicts.count(True) > len(verdicts) / 2
    assert verdicts.count(False) > len(verdicts) / 50


@pytest.mark.recorded
@needs_schemas
@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_what_fits_a_real_tool_fits_its_slim_form_and_a_wrong_name_or_type_fits_neither(path):
    rng = random.Random(path.stem)
    for one in real_tools(path):
        stripped = orjson.loads(slim(one, handle(one)).parameters)
        valid, wrong = expect_checked_alike(one.parameters, stripped, rng, 12)
        assert valid > 0, one.name
        assert wrong > 0, one.name


@pytest.mark.recorded
@needs_schemas
def test_real_tools_become_much_smaller():
    found = [forms_of(each) for path in FILES for each in real_tools(path)]
    assert not [each.not_slim for each in found if "not understood" in each.not_slim]
    whole = sum(each.tokens for each in found)
    slimmed = sum(each.slim_tokens if each.slim else each.tokens for each in found)
    put_off = sum(each.deferred_tokens if each.deferred else each.tokens for each in found)
    assert slimmed < 0.5 * whole
    assert put_off < 0.2 * whole
