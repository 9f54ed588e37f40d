"""Arguments checked against their tool's schema: what is told, what passes, and that no check takes long."""

import json
import os
import warnings
from pathlib import Path

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st
from jsonschema import Draft202012Validator
from work import steps

from pager.tools.check_arguments import (
    LARGEST_SCHEMA,
    LONGEST_ERROR,
    check,
    is_json,
    repair_text,
)

DRAFT_7 = "http://json-schema.org/draft-07/schema#"


def wrong(arguments, schema):
    return check(json.dumps(arguments), schema)


# What is told


def test_arguments_that_fit_have_no_errors():
    schema = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
    assert wrong({"city": "Bern"}, schema) == []


def test_an_error_says_where_and_what():
    schema = {"properties": {"days": {"items": {"properties": {"n": {"type": "integer"}}, "required": ["n"]}}}}
    assert wrong({"days": [{"n": 1}, {"n": None}, {}]}, schema) == [
        "$.days[1].n: null is not of type 'integer'",
        "$.days[2]: 'n' is a required property",
    ]


@pytest.mark.parametrize("text", ['{"a":', "{'a': 1}", '{"a": NaN}', "no", '{"a": 1} x'])
def test_what_is_no_json_is_an_error_that_says_so(text):
    (error,) = check(text, {"type": "object"})
    assert error.startswith("the arguments are not valid JSON: ")


@pytest.mark.parametrize("text", ["", "  \n"])
def test_blank_arguments_are_those_of_a_call_without_any(text):
    assert check(text, {"type": "object"}) == []
    assert check(text, {"required": ["a"]}) == ["$: 'a' is a required property"]


@pytest.mark.parametrize("text", ["", " \n", "{}", '{"a": [1]}', "null", " null ", "[]", "0", '""', r'{"a": "\ud83d"}'])
def test_what_can_be_read_is_json(text):
    assert is_json(text)


@pytest.mark.parametrize("text", ['{"a":', '{"path": "src/par', "{'a': 1}", '{"a": NaN}', "no", "{} x", "[" * 100_000])
def test_what_was_cut_off_or_can_not_be_read_is_no_json(text):
    assert not is_json(text)


def test_half_an_emoji_is_json_and_never_stands_in_an_error():
    schema = {"properties": {"a": {"type": "string", "maxLength": 3, "pattern": "^x"}}}
    assert check(r'{"a": "x\ud83d"}', schema) == []
    errors = check(r'{"a": "\ud83dabcdef"}', schema)
    assert len(errors) == 2
    assert all(error.isprintable() and error.encode() for error in errors)


def test_of_alternatives_the_likeliest_is_told():
    paragraph = {"type": "object", "properties": {"kind": {"const": "p"}, "text": {"type": "string"}}}
    schema = {"properties": {"block": {"anyOf": [{"type": "string"}, paragraph]}}}
    assert wrong({"block": {"kind": "p", "text": 1}}, schema) == ["$.block.text: 1 is not of type 'string'"]


def test_errors_are_few_short_and_in_one_line():
    long = "line\n" * 1_000
    schema = {"additionalProperties": {"type": "integer"}, "properties": {long: {"enum": [long]}}}
    errors = wrong(dict.fromkeys((*"abcdefgh", long), long), schema)
    assert len(errors) == 5
    assert all(len(error) <= LONGEST_ERROR and "\n" not in error for error in errors)
    assert errors[0].startswith('$.a: "line')
    assert errors[0].endswith("is not of type 'integer'")


@given(st.permutations(["a", "b", "c", "d"]), st.permutations(["a", "b", "c", "d"]))
def test_the_order_of_errors_is_not_that_of_the_arguments_or_the_schema(sent, known):
    schema = {"properties": {name: {"type": "string"} for name in known}, "additionalProperties": False}
    errors = wrong({**dict.fromkeys(sent, 1), "x": 1}, schema)
    assert errors == [*(f"$.{name}: 1 is not of type 'string'" for name in "abcd"), "$: does not allow 'x'"]


def test_the_answer_in_a_tools_place_has_the_errors_and_the_whole_schema():
    text = repair_text("weather", ["$: 'city' is a required property", "$.days: is wrong"], '{"type":"object"}')
    assert "weather was not run" in text
    assert "\n- $: 'city' is a required property\n- $.days: is wrong\n" in text
    assert '\n{"type":"object"}\n' in text
    assert text.endswith("Call weather again with arguments that fit.")


# Drafts and keywords

JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-3, 3)
    | st.sampled_from([0.5, 1.0])
    | st.sampled_from(["", "a", "ab", "b1"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["a", "ab", "b1"]), inner, max_size=3),
    max_leaves=8,
)
SCHEMAS = st.recursive(
    st.fixed_dictionaries({}, optional={
        "type": st.sampled_from(["object", "array", "string", "integer", ["number", "null"]]),
        "enum": st.lists(JSON, min_size=1, max_size=3), "const": JSON, "minLength": st.just(1), "maximum": st.just(1),
        "pattern": st.sampled_from(["^a", "b$", r"^\w\d$", "a|b"]), "uniqueItems": st.booleans(),
        "required": st.lists(st.sampled_from(["a", "ab"]), unique=True), "format": st.just("date"),
    }) | st.booleans(),
    lambda inner: st.fixed_dictionaries({}, optional={
        "properties": st.dictionaries(st.sampled_from(["a", "ab"]), inner, max_size=2),
        "patternProperties": st.dictionaries(st.sampled_from(["^a", "b"]), inner, max_size=2),
        "additionalProperties": inner, "items": inner, "propertyNames": inner, "not": inner, "contains": inner,
        "anyOf": st.lists(inner, min_size=1, max_size=2), "allOf": st.lists(inner, min_size=1, max_size=2),
        "uniqueItems": st.booleans(),
    }),
    max_leaves=6,
)  # fmt: skip


@given(SCHEMAS, JSON)
def test_the_verdict_is_that_of_the_package_itself(schema, value):
    assert (wrong(value, schema) == []) == Draft202012Validator(schema).is_valid(value)


def test_the_schemas_own_draft_is_respected():
    tuple_of_draft_7 = {"properties": {"a": {"items": [{"type": "string"}]}}}
    assert wrong({"a": [1]}, tuple_of_draft_7) == []  # no schema of the latest draft, so it can't be checked
    assert wrong({"a": [1]}, {"$schema": DRAFT_7, **tuple_of_draft_7}) == ["$.a[0]: 1 is not of type 'string'"]


def test_formats_and_unevaluated_properties_are_not_asserted():
    schema = {"properties": {"day": {"format": "date"}}, "unevaluatedProperties": False}
    assert wrong({"day": "tomorrow", "more": 1}, schema) == []


def test_one_and_one_point_nothing_are_the_same_item_and_true_is_not():
    schema = {"items": {"uniqueItems": True}}
    assert wrong([[1, True, "1", {"a": 2}, [3]]], schema) == []
    assert wrong([[{"a": [1]}, {"a": [1.0]}]], schema) == ["$[0]: has items that are not unique"]


# What can't be checked passes


@pytest.mark.parametrize(
    "schema",
    [
        None,
        "object",
        {"type": "text"},
        {"required": "city"},
        {"properties": {"a": 1}},
        {"enum": ["\ud800"]},
        {"maximum": 1 << 80},
        {"$ref": "http://localhost:9/remote.json"},
        {"$ref": "other.json#/x"},
        {"$ref": "#/nowhere"},
        {"$ref": "#anchor"},
        {"$ref": "#"},
        {"$ref": "#/x-own", "x-own": {"minProperties": "many"}},
        {"$ref": "#/x-own", "x-own": "text"},
        {"$ref": "#/x-own", "x-own": {"type": "text"}},
        {"$ref": "#/x-own", "x-own": {"$ref": "#/x-own/y", "y": {"type": "text"}}},
        {"$ref": "#/minimum/x", "minimum": 1},
        {"$ref": "#/allOf/first", "allOf": [{}]},
        {"$ref": "http://[no address"},
        {"$schema": DRAFT_7, "$ref": "#/dependencies/a", "dependencies": {"$id": ["id"]}},
        {"$schema": "http://json-schema.org/draft-04/schema#", "$ref": 1},
        {"$schema": "http://json-schema.org/draft-03/schema#", "extends": {"type": "string"}},
        {"$schema": "http://[no address", "type": "array"},
        {"$schema": 7, "type": "array"},
        {"type": "array", "description": "x" * LARGEST_SCHEMA},
    ],
)
def test_a_schema_that_is_broken_or_leads_elsewhere_refuses_nothing(schema):
    assert wrong({"a": 1}, schema) == []


def test_a_remote_reference_that_is_not_reached_hinders_nothing():
    schema = {"properties": {"a": {"type": "string"}, "b": {"$ref": "http://localhost:9/remote.json"}}}
    assert wrong({"a": 1}, schema) == ["$.a: 1 is not of type 'string'"]
    assert wrong({"a": 1, "b": 1}, schema) == []


def test_a_schema_in_an_unknown_place_is_checked_against_where_a_reference_leads_to_it():
    schema = {"$schema": DRAFT_7, "properties": {"a": {"$ref": "#/$defs/a"}}, "$defs": {"a": {"type": "string"}}}
    assert [wrong({"a": 1}, schema) for _ in range(2)] == [["$.a: 1 is not of type 'string'"]] * 2


def test_a_number_that_no_float_holds_refuses_nothing():
    assert wrong({"a": 10**400}, {"properties": {"a": {"multipleOf": 0.01}}}) == []


def test_nothing_is_fetched(tmp_path):
    remote = tmp_path / "remote.json"
    remote.write_text('{"type": "string"}')
    with warnings.catch_warnings(action="ignore"):  # of the package, when it fetches
        assert wrong({"a": 1}, {"properties": {"a": {"$ref": remote.as_uri()}}}) == []


def test_arguments_that_are_too_deep_pass():
    assert check("[" * 100_000, {"type": "object"}) == []
    assert check('{"a":' * 1_000 + "1" + "}" * 1_000, {"properties": {"a": {"$ref": "#"}}, "required": ["b"]}) == []


def test_a_pattern_that_re2_does_not_know_refuses_nothing():
    assert wrong({"a": "x"}, {"properties": {"a": {"pattern": "^(?=y)"}}}) == []
    lookahead = {"patternProperties": {"^(?=y)": False}, "additionalProperties": False}
    assert wrong({"x": 1}, lookahead) == []
    assert wrong({"a": "\u00a0"}, {"properties": {"a": {"pattern": r"^\s$"}}}) == []  # a space, but not to RE2
    assert wrong({"a": "xy"}, {"properties": {"a": {"pattern": "^x{1000}{1000}$"}}}) == []
    assert wrong({"a": "xy"}, {"properties": {"a": {"pattern": r"(\pL{100}\pN{100}){4}"}}}) == []


def test_patterns_are_searched_for_in_any_script():
    schema = {"properties": {"a": {"pattern": r"^\p{L}+$"}}}
    assert wrong({"a": "Zürich"}, schema) == []
    assert len(wrong({"a": "8001"}, schema)) == 1


# No check takes long

CATASTROPHE = "^(a+)+$"
MANY = "a" * 60 + "!"


@pytest.mark.parametrize("dialect", [{}, {"$schema": DRAFT_7}], ids=["latest", "draft-07"])
@pytest.mark.parametrize("part", [{}, {"$schema": DRAFT_7}], ids=["plain", "names a draft"])
def test_a_catastrophic_pattern_is_quick(dialect, part):
    schema = {**dialect, "properties": {"a": {"pattern": CATASTROPHE, **part}}}
    assert len(wrong({"a": MANY}, schema)) == 1


def test_catastrophic_names_of_properties_are_quick():
    schema = {"patternProperties": {CATASTROPHE: False}, "additionalProperties": False}
    assert len(wrong({MANY: 1}, schema)) == 1
    assert wrong({MANY: 1}, {**schema, "additionalProperties": True, "unevaluatedProperties": False}) == []
    assert len(wrong({MANY: 1}, {"propertyNames": {"pattern": CATASTROPHE}})) == 1


def test_references_that_double_at_each_step_are_given_up():
    steps = {f"d{n}": {"anyOf": [{"$ref": f"#/$defs/d{n + 1}"}] * 2} for n in range(60)}
    assert wrong({}, {"$ref": "#/$defs/d0", "$defs": {**steps, "d60": {"type": "string"}}}) == []


@pytest.mark.parametrize("keyword", ["not", "if", "allOf"])
def test_references_that_lead_nowhere_are_given_up(keyword):
    again = {"$ref": "#"}
    schema = {keyword: [again] if keyword == "allOf" else again}

    def deeper(frames):  # so that, without a bound, Python's own limit would be met in each of the package's parts
        return deeper(frames - 1) if frames else wrong({}, schema)

    assert [deeper(frames) for frames in range(30)] == [[]] * 30


def test_schemas_may_be_nested_as_deep_as_real_ones_are():
    schema, value = {"type": "string"}, 1
    for _ in range(25):
        schema, value = {"properties": {"a": schema}}, {"a": value}
    (error,) = wrong(value, schema)
    assert error.endswith("1 is not of type 'string'")


def test_a_long_value_that_fails_many_times_is_given_up():
    kinds = [{"type": "object"}, {"type": "array"}, {"type": "null"}]
    assert wrong({"a": "x" * 1_000_000}, {"properties": {"a": {"anyOf": kinds * 500}}}) == []


def test_items_are_compared_in_one_pass():
    rows = [{"n": number} for number in range(20_000)]
    assert wrong({"rows": rows}, {"properties": {"rows": {"uniqueItems": True}}}) == []
    assert len(wrong({"rows": [*rows, {"n": 7}]}, {"properties": {"rows": {"uniqueItems": True}}})) == 1
    assert wrong({"rows": rows}, {"properties": {"rows": {"allOf": [{"uniqueItems": True}] * 1_000}}}) == []


def test_a_pattern_that_would_read_too_much_refuses_nothing():
    wild = {"pattern": "(x|y)*x" + "[xy]" * 100 + "z"}
    assert wrong({"a": "xy" * 500_000}, {"properties": {"a": wild}}) == []
    assert len(wrong({"a": "xy"}, {"properties": {"a": wild}})) == 1


def test_many_patterns_are_given_up():
    patterns = [{"pattern": f"[a-z]{{900}}{number}|x"} for number in range(3_000)]
    assert wrong({"a": "xx"}, {"properties": {"a": {"allOf": patterns}}}) == []


def test_a_schema_with_too_many_parts_is_given_up_and_the_next_call_is_quick():
    schema = {"properties": {f"p{number}": {"type": "string"} for number in range(8_000)}}
    first, found = steps(wrong, {"p1": 1}, schema)
    later, found_again = steps(wrong, {"p1": 1}, schema)
    assert found == found_again == []
    assert later < first / 100


# Real tools

FOLDER = Path(os.environ.get("CTXPAGER_RECORDINGS", "")) / "schemas"
FILES = sorted(FOLDER.glob("tools_*.json")) if os.environ.get("CTXPAGER_RECORDINGS") else []


@pytest.mark.recorded
@pytest.mark.skipif(not FILES, reason="CTXPAGER_RECORDINGS names no folder with schemas/tools_*.json")
def test_every_real_schema_can_be_checked():
    schemas = [each["inputSchema"] for path in FILES for each in orjson.loads(path.read_bytes())["tools"]]
    for schema in schemas:
        assert check("[]", schema) == ["$: [] is not of type 'object'"]
        assert len(check("{}", schema)) == min(len(schema.get("required", [])), 5)
