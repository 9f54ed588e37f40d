"""The benchmark of all policies: its sessions, its pictures, and what it writes where."""

import json
from itertools import pairwise
from math import isclose
from xml.etree import ElementTree as ET

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks import lifetimes, warmth
from benchmarks.policies import __main__ as policies
from benchmarks.policies.generated_sessions import session, write_sessions
from benchmarks.policies.play import GRACES, Graces, PolicyFigures, spread
from benchmarks.policies.plots import Axis, PlotLine, plot, thinned, ticks
from benchmarks.policies.publish import cost_picture, grace_picture, replaced
from instrumentation.accounting.billing import Charged
from instrumentation.replay import recording_files
from instrumentation.replay.compare import Comparison, PlayedSession
from instrumentation.replay.player import PolicyOutcome
from instrumentation.replay.prepared_recording import Prepared
from pager.paging.policy_loader import policy_names
from pager.wire.dialects import load

SVG = "{http://www.w3.org/2000/svg}"
MARKED = "# Title\n\n<!-- policies -->\nold\n<!-- /policies -->\n\nThe rest.\n"
# Seeds of short sessions.
SHORT = (1_015, 1_019)


# ---------------------------------------------------------------- sessions of our own making


@pytest.fixture(scope="module")
def generated(tmp_path_factory):
    return [recording_files.load(path) for path in write_sessions(tmp_path_factory.mktemp("sessions"), 8)]


def test_the_same_seed_gives_the_same_bytes(tmp_path):
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
    first, second = (write_sessions(tmp_path / name, 2) for name in ("one", "two"))
    assert [path.read_bytes() for path in first] == [path.read_bytes() for path in second]
    assert first[0].read_bytes() != first[1].read_bytes()


def test_generated_sessions_are_recordings_of_one_growing_branch(generated):
    assert [recording.name for recording in generated] == [f"generated-{at:02}" for at in range(8)]
    for recording in generated:
        assert len(recording.steps) >= 8
        assert {step.branch for step in recording.steps} == {0}
        assert all(one.at < other.at for one, other in pairwise(recording.steps))
        assert recording.steps[0].tools == {"read", "edit", "run", "search", "write"}


@pytest.mark.parametrize("seed", SHORT)
def test_every_call_has_its_result_and_every_turn_an_answer(seed):
    _, *messages = session("s", seed)
    asked = [call["id"] for one in messages for call in one.get("tool_calls", ())]
    assert asked == [one["tool_call_id"] for one in messages if one["role"] == "tool"]
    assert len(set(asked)) == len(asked) > 0
    assert messages[0]["role"] == "user"
    assert messages[-1]["role"] == "assistant"
    assert messages[-1]["content"]


def test_generated_agents_quote_what_they_read_and_are_left_alone_at_times(generated):
    prepared = [Prepared(recording, load("chat")) for recording in generated]
    needing = sum(bool(needs) for one in prepared for needs in one.needs)
    calls = sum(len(recording.steps) for recording in generated)
    assert 0.05 < needing / calls < 0.5
    pauses = sum(other.at - one.at > 300 for recording in generated for one, other in pairwise(recording.steps))
    assert 0 < pauses < calls / 10


# ---------------------------------------------------------------- pictures


def drawn(*lines, x=None):
    return plot("Cost & <saving>", x or Axis("calls", [0, 5, 10]), Axis("cost", [0, 50, 100], " %"), lines)


def elements(text, name):
    return ET.fromstring(text).findall(f"{SVG}{name}")


def test_a_picture_is_xml_and_the_same_every_time():
    lines = [PlotLine("a <b>", [(0, 0), (10, 100)]), PlotLine("c", [(0, 0), (5, 50)], 1, dashed=True)]
    text = drawn(*lines)
    assert text == drawn(*lines)
    words = [one.text for one in elements(text, "text")]
    assert words == ["Cost & <saving>", "0 %", "50 %", "100 %", "0", "5", "10", "calls", "cost", "a <b>", "c"]


def test_lines_go_from_the_first_tick_to_the_last():
    line = elements(drawn(PlotLine("a", [(0, 0), (10, 100)])), "polyline")[-2]
    (left, bottom), (right, top) = (map(float, point.split(",")) for point in line.get("points").split())
    assert (left, bottom, right, top) == (64, 348, 610, 40)


def test_a_line_of_one_point_is_a_dot_and_one_of_none_is_only_named():
    dots = elements(drawn(PlotLine("a", [(10, 50)])), "circle")
    assert (dots[0].get("cx"), dots[0].get("cy")) == ("610.0", "194.0")
    assert len(dots) == 2  # and the legend's
    assert len(elements(drawn(PlotLine("a", [])), "polyline")) == len(elements(drawn(), "polyline")) + 1


def test_on_a_logarithmic_axis_each_doubling_is_as_wide():
    axis = Axis("grace", [1, 2, 4, 8], is_log=True)
    assert [axis.place(value) for value in axis.ticks] == pytest.approx([0, 1 / 3, 2 / 3, 1])


@given(st.floats(-1e4, 1e4), st.just(0) | st.floats(1e-2, 1e6))
def test_ticks_are_even_and_reach_around_all_values(low, width):
    found = ticks(low, low + width)
    steps = [other - one for one, other in pairwise(found)]
    assert 1 <= len(steps) <= 9
    assert all(isclose(step, steps[0], rel_tol=1e-3) for step in steps)
    assert found[0] <= low + 1e-6 * max(1, abs(low))
    assert found[-1] >= low + width - 1e-6 * max(1, abs(low + width))


@given(st.lists(st.tuples(st.floats(0, 1), st.floats(0, 1))), st.integers(1, 50))
def test_a_thinned_line_keeps_its_ends(points, most):
    kept = thinned(points, most)
    assert kept[:1] == points[:1]
    assert kept[-1:] == points[-1:]
    assert len(kept) <= most + 1


def paid(cost):
    return Charged(cost, 100, 80, 1, 1, 60)


def outcome(name, *so_far):
    return PolicyOutcome(name, paid(so_far[-1]), so_far=so_far)


TWO = PolicyFigures(
    "set",
    Comparison(
        [
            PlayedSession(
                "one",
                2,
                paid(20.0),
                (outcome("keep_all", 10.0, 20.0), outcome("lru", 10.0, 30.0), PolicyOutcome("optimum", Charged(12.0))),
            ),
            PlayedSession(
                "two",
                1,
                paid(20.0),
                (outcome("keep_all", 20.0), outcome("lru", 5.0), PolicyOutcome("optimum", Charged(8.0))),
            ),
        ]
    ),
    0.0,
)


def test_costs_go_on_from_session_to_session():
    assert TWO.curves() == {
        "keep_all": [(0, 0), (1, 0.25), (2, 0.5), (3, 1.0)],
        "lru": [(0, 0), (1, 0.25), (2, 0.75), (3, 0.875)],
        "optimum": [(3, 0.5)],
    }


def test_the_legend_has_the_dearest_first():
    names = [one.text for one in elements(cost_picture(TWO), "text")][-3:]
    assert names == ["keep_all", "lru", "optimum"]
    assert [row.policy for row in TWO.rows] == ["keep_all", "lru", "optimum"]


def test_savings_are_drawn_upwards():
    graces = Graces(7, {"lru": [(1.0, 0.1), (32.0, 0.2)], "cost_aware": [(1.0, -0.3), (32.0, -0.2)]})
    text = grace_picture("set", graces)
    words = [one.text for one in elements(text, "text")]
    assert words[0] == "Saving against grace (7 sessions of set)"
    assert [int(word) for word in words if word.isdigit()] == list(GRACES)
    assert words[-2:] == ["cost_aware", "lru"]


# ---------------------------------------------------------------- what is written where


@given(st.text(), st.text(), st.text(alphabet="abc\n"))
def test_only_what_stands_between_the_marks_is_replaced(before, after, block):
    first, last = "<!-- policies -->\n", "<!-- /policies -->"
    text = f"{before}{first}old{last}{after}"
    assert replaced(text, block) == f"{before}{first}\n{block}\n{last}{after}"
    assert replaced(replaced(text, "something else"), block) == replaced(text, block)


@pytest.mark.parametrize(
    "text",
    [
        "no marks",
        "<!-- policies -->\n only one",
        "<!-- /policies --> the wrong <!-- policies -->\n way round",
        MARKED + "<!-- policies -->\n",
        MARKED + "<!-- /policies -->",
    ],
)
def test_marks_that_are_not_there_once_are_told(text):
    with pytest.raises(ValueError, match="there must be one <!-- policies -->"):
        replaced(text, "block")


@given(st.integers(0, 40), st.integers(0, 50))
def test_chosen_files_are_evenly_spread(files, most):
    chosen = spread(range(files), most)
    assert len(chosen) == (min(files, most) if most else files)
    assert chosen == sorted(set(chosen))
    gaps = {other - one for one, other in pairwise(chosen)}
    assert not gaps or max(gaps) - min(gaps) <= 1


# ---------------------------------------------------------------- from end to end


@pytest.fixture
def recorded(tmp_path):
    """Two sets of short sessions, and a project whose files have marks."""
    for name, seed in zip(("small", "large"), SHORT, strict=True):
        folder = tmp_path / "traces" / name
        folder.mkdir(parents=True)
        for number in range(2 if name == "large" else 1):
            lines = map(json.dumps, session(f"{name} {number}", seed + number))
            (folder / f"{number}.jsonl").write_text("\n".join(lines))
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs/benchmarks.md").write_text(MARKED)
    return tmp_path


def test_a_table_by_lifetime_is_written_into_the_readme(recorded, capsys):
    readme = recorded / "README.md"
    readme.write_text("# Title\n<!-- lifetimes -->\nold\n<!-- /lifetimes -->\nThe rest.\n")
    arguments = ["--recordings", str(recorded), "--set", "large", "--jobs", "1", "--write"]
    assert lifetimes.main(arguments, recorded) == 0
    text = readme.read_text()
    rows = [line.split(" | ") for line in text.splitlines() if line.startswith("| ") and "`--prices" in line]
    assert [(row[0], row[-1].split()[1]) for row in rows] == [
        *(("| 5 minutes, by marks", name) for name in ("anthropic", "claude-5.5", "claude-fable-5.1")),
        *(("| 1 hour, by marks", name) for name in ("anthropic", "claude-5.5", "claude-fable-5.1")),
        ("| 30 minutes, any prefix", "gpt-5.6"),
    ]
    assert all(row[2].endswith(" %") and row[4].endswith(" of 2") for row in rows)
    assert text.endswith("<!-- /lifetimes -->\nThe rest.\n")
    assert "\nold\n" not in text
    assert capsys.readouterr().out in text + "\n"


def test_what_keeping_warm_brings_is_written_into_the_docs(recorded, capsys):
    pages = [recorded / "docs/benchmarks.md", recorded / "docs/keep_warm.md"]
    for page in pages:
        page.write_text("# Title\n<!-- warmth -->\nold\n<!-- /warmth -->\nThe rest.\n")
    arguments = ["--recordings", str(recorded), "--set", "large", "--jobs", "1", "--write"]
    assert warmth.main(arguments, recorded) == 0
    for page in pages:
        text = page.read_text()
        rows = [line.split("|")[1:-1] for line in text.splitlines() if line.startswith(("| 5 min", "| 1 h"))]
        bills = [[cell.strip() for cell in row] for row in rows if len(row) == 5]
        assert [row[1] for row in bills] == 2 * [one.label for one in warmth.CONTENDERS]
        assert all(cell.count(" / ") == 2 and cell.endswith(" %") for row in bills for cell in row[2:])
        assert "(1 that the chances of" in " ".join(text.split())
        assert "\nold\n" not in text
    assert capsys.readouterr().out in pages[0].read_text() + "\n"


def test_sessions_that_chances_were_counted_on_stay_apart_when_some_are_left_out(tmp_path):
    files = write_sessions(tmp_path, 9)
    fitted, others = files[::2], files[1::2]
    assert warmth.halved(files, 0) == (fitted, others)
    for most in (4, 5, 6):
        some, rest = warmth.halved(files, most)
        assert len(some) + len(rest) == most
        assert (set(some) <= set(fitted), set(rest) <= set(others)) == (True, True)


def test_all_sets_are_told_and_written(recorded, capsys):
    arguments = ["--recordings", str(recorded), "--jobs", "1", "--write", "--json", str(recorded / "figures.json")]
    assert policies.main(arguments, recorded) == 0
    told = capsys.readouterr().out
    assert [name in told for name in ("small: 1 session,", "large: 2 sessions", "own making")] == [True, True, False]
    docs = (recorded / "docs/benchmarks.md").read_text()
    assert docs.startswith("# Title\n")
    assert docs.endswith("\nThe rest.\n")
    assert "\nold\n" not in docs
    assert docs.index("### large") < docs.index("### small") < docs.index("(images/grace.svg)")
    for name in (*policy_names(), "knowing", "foresight", "optimum", "bound"):
        assert f"| {name} " in docs
    for picture in ("cost.svg", "grace.svg"):
        ET.parse(recorded / "docs" / "images" / picture)
    values = json.loads((recorded / "figures.json").read_text())
    assert set(values["sets"]) == {"small", "large"}
    assert list(values["graces"]["cost_aware"]) == [f"{grace}.0" for grace in GRACES]


def test_without_recordings_sessions_of_our_own_making_are_played(capsys, monkeypatch):
    monkeypatch.delenv("CTXPAGER_RECORDINGS", raising=False)
    assert policies.main(["--sessions", "1", "--jobs", "1", "--prices", "openai"]) == 0
    told = capsys.readouterr().out
    assert "these are sessions of our own making" in told
    assert "generated: 1 session," in told
    with pytest.raises(SystemExit):
        policies.main(["--write"])
    assert "--write needs --recordings" in capsys.readouterr().err


def test_a_folder_without_recordings_is_told(tmp_path):
    with pytest.raises(SystemExit, match="there are no recordings below its folder traces"):
        policies.main(["--recordings", str(tmp_path)])
