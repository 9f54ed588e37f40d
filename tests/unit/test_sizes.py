"""What counts of an item: text by its bytes, pictures by their width and height, what no model reads not at all."""

import base64
import json
import random
import statistics
import struct
from pathlib import Path

import pytest
from chat_items import item
from recordings import FOLDER

from instrumentation.accounting.billing import tokens_in
from instrumentation.accounting.item_sizes import PICTURE, counted_size, item_tokens
from instrumentation.analyze.analysis import analyze, prepare
from instrumentation.replay import log_files
from instrumentation.replay.compare import Contender, ReplayConditions
from instrumentation.replay.log_files import Problems
from instrumentation.replay.prepared_recording import Prepared
from instrumentation.replay.recording_files import files
from pager.pricing.tokens import BYTES_A_TOKEN
from pager.wire.dialects import load

NOISE = random.Random(7)


def png(width, height, size=9_000):
    """The base64 of a picture of these edges, with so many bytes of noise behind its head."""
    head = b"\x89PNG\r\n\x1a\n" + struct.pack(">I4sIIBBBBB", 13, b"IHDR", width, height, 8, 2, 0, 0, 0)
    return base64.b64encode(head + NOISE.randbytes(size)).decode()


def jpeg(width, height):
    exif = b"\xff\xe1" + struct.pack(">H", 302) + b"e" * 300
    frame = b"\xff\xc0" + struct.pack(">HBHHB", 17, 8, height, width, 3) + b"\0" * 9
    return base64.b64encode(b"\xff\xd8" + exif + frame + NOISE.randbytes(900)).decode()


def gif(width, height):
    return base64.b64encode(b"GIF89a" + struct.pack("<HH", width, height) + b"\0" * 900).decode()


def webp(kind, rest):
    return base64.b64encode(b"RIFF\0\0\0\0WEBP" + kind + b"\0\0\0\0" + rest + b"\0" * 900).decode()


def shown(data):
    source = {"type": "base64", "media_type": "image/png", "data": data}
    return item(role="user", content=[{"type": "image", "source": source}])


def around(raw, *hidden):
    """The tokens of an item without these strings."""
    return tokens_in(len(raw) - sum(map(len, hidden)))


def test_plain_text_counts_by_all_its_bytes():
    raw = item(role="user", content="an image of a signature, encrypted, in base64")
    assert counted_size(raw, "messages") == len(raw)
    assert counted_size(b"no json: base64", "chat") == 15


def test_an_item_that_is_nested_too_deep_counts_by_all_its_bytes():
    raw = b'{"content":' + b"[" * 1_000 + b'"base64"' + b"]" * 1_000 + b"}"
    assert counted_size(raw, "chat") == len(raw)


def test_a_screenshot_counts_by_its_edges_and_not_by_its_bytes():
    data = png(1280, 726, 555_000)
    raw = shown(data)
    assert tokens_in(len(raw)) > 270_000
    assert item_tokens(raw, "messages") == pytest.approx(1_239 + around(raw, data), abs=2)


@pytest.mark.parametrize(
    ("data", "tokens"),
    [
        (png(200, 200), 54),
        (png(1000, 1000), 1_334),
        (png(4000, 3000), 1_600),
        (png(3136, 300), 314),
        (jpeg(800, 600), 640),
        (gif(75, 100), 10),
        (webp(b"VP8X", b"\0\0\0\0" + (749).to_bytes(3, "little") + (99).to_bytes(3, "little")), 100),
        (webp(b"VP8L", b"\x2f" + (749 | 99 << 14).to_bytes(4, "little")), 100),
        (webp(b"VP8 ", b"\0\0\0\x9d\x01\x2a" + struct.pack("<HH", 750, 100)), 100),
        ("A" * 999, PICTURE),
        ("???", PICTURE),
        (png(0, 9), PICTURE),
    ],
)
def test_the_edges_of_every_kind_of_picture_are_found(data, tokens):
    raw = shown(data)
    assert item_tokens(raw, "messages") == pytest.approx(tokens + around(raw, data), abs=2)


@pytest.mark.parametrize(
    "part",
    [
        {"type": "image_url", "image_url": {"url": "data:image/png;base64," + png(1024, 1024)}},
        {"type": "input_image", "image_url": "data:image/png;base64," + png(2048, 2048)},
    ],
)
def test_tiles_are_counted_where_the_provider_counts_tiles(part):
    url = part["image_url"] if isinstance(part["image_url"], str) else part["image_url"]["url"]
    raw = item(role="user", content=[part])
    assert item_tokens(raw, "chat") == pytest.approx(85 + 4 * 170 + around(raw, url), abs=2)


def test_a_picture_of_low_detail_has_the_price_of_one():
    url = "data:image/png;base64," + png(1024, 1024)
    raw = item(role="user", content=[{"type": "image_url", "image_url": {"url": url, "detail": "low"}}])
    assert item_tokens(raw, "chat") == pytest.approx(85 + around(raw, url), abs=2)


def test_a_picture_that_is_only_named_has_a_fixed_size():
    raw = item(role="user", content=[{"type": "image_url", "image_url": {"url": "https://example.org/a.png"}}])
    assert item_tokens(raw, "chat") == pytest.approx(PICTURE + tokens_in(len(raw)), abs=2)


LONG = "q" * 6_000


@pytest.mark.parametrize(
    "fields",
    [
        {"role": "assistant", "content": [{"type": "thinking", "thinking": "hm", "signature": LONG}]},
        {"role": "assistant", "content": [{"type": "redacted_thinking", "data": LONG}]},
        {"type": "reasoning", "summary": [], "encrypted_content": LONG},
        {"role": "assistant", "reasoning_details": [{"type": "reasoning.encrypted", "data": LONG}]},
        {"role": "assistant", "tool_calls": [{"id": "1", "extra_content": {"google": {"thought_signature": LONG}}}]},
        {"role": "user", "content": [{"type": "document", "source": {"type": "base64", "data": LONG}}]},
        {"role": "user", "content": [{"type": "file", "file": {"filename": "a.pdf", "file_data": LONG}}]},
        {"role": "user", "content": [{"type": "input_file", "filename": "a.pdf", "file_data": LONG}]},
        {"role": "user", "content": [{"type": "input_audio", "input_audio": {"data": LONG, "format": "wav"}}]},
        {"role": "user", "content": [{"type": "web_search_tool_result", "content": [{"encrypted_content": LONG}]}]},
    ],
)
def test_what_no_model_reads_is_left_out(fields):
    raw = item(**fields)
    assert counted_size(raw, "messages") == len(raw) - len(LONG)


@pytest.mark.parametrize(
    "fields",
    [
        {"role": "assistant", "content": [{"type": "tool_use", "id": "1", "name": "f", "input": {"signature": LONG}}]},
        {"role": "user", "content": [{"type": "document", "source": {"type": "text", "data": LONG}}]},
        {"role": "user", "content": [{"type": "text", "text": LONG}, {"type": "thinking", "thinking": "base64"}]},
        {"role": "tool", "tool_call_id": "1", "content": '{"encrypted_content": "' + LONG + '"}'},
    ],
)
def test_text_counts_whatever_it_is_called(fields):
    raw = item(**fields)
    assert counted_size(raw, "messages") == len(raw)


# ---- whole sessions


def transcript(path, calls):
    """A made-up log of Claude Code: thoughts with signatures, and screenshots that are charged by their edges."""
    prompt, rows, before = 20_000, [], None

    def add(kind, message):
        nonlocal before
        row = {"parentUuid": before, "sessionId": "s", "type": kind, "uuid": f"u{len(rows)}", "message": message}
        rows.append(row | {"timestamp": f"2026-01-01T00:{len(rows) // 60:02}:{len(rows) % 60:02}.000Z"})
        before = row["uuid"]

    def charged(text):
        return round(len(text) / BYTES_A_TOKEN)

    add("user", {"role": "user", "content": "Make it look good."})
    for at in range(calls):
        thought = f"The button of step {at} is {NOISE.random()} too far left. " * 12
        signature = base64.b64encode(NOISE.randbytes(1_500)).decode()
        said = [
            {"type": "thinking", "thinking": thought, "signature": signature},
            {"type": "tool_use", "id": f"t{at}", "name": "screenshot", "input": {"page": f"/{at}"}},
        ]
        usage = {"input_tokens": 3, "cache_read_input_tokens": prompt, "output_tokens": 200}
        add("assistant", {"id": f"m{at}", "model": "claude-opus-4-5", "content": said, "usage": usage})
        picture = {
            "type": "image",
            "source": {"type": "base64", "media_type": "image/png", "data": png(1280, 726, 90_000)},
        }
        log = {"type": "text", "text": f"console of step {at}: {NOISE.random()} " * 30}
        result = {"type": "tool_result", "tool_use_id": f"t{at}", "content": [log, picture]}
        add("user", {"role": "user", "content": [result]})
        bare = json.dumps([{**said[0], "signature": ""}, said[1]]) + json.dumps({**result, "content": [log]})
        prompt += charged(bare) + 1_239
    path.write_text("\n".join(map(json.dumps, rows)) + "\n")
    return path


def ratio(recording):
    """Our own count of a session's prompts for each token that was reported of them, before any scaling."""
    prepared = Prepared(recording, load(recording.dialect))
    told = [(call.prompt.tokens, call.step.usage.input) for call in prepared.calls if call.step.usage]
    return sum(ours for ours, _ in told) / sum(theirs for _, theirs in told)


def test_a_session_of_screenshots_and_signatures_is_counted_within_five_percent(tmp_path):
    [one] = log_files.read(transcript(tmp_path / "s.jsonl", 40), Problems())
    assert len(one.recording.steps) == 40
    assert ratio(one.recording) == pytest.approx(1.0, abs=0.05)


@pytest.mark.recorded
@pytest.mark.skipif(not FOLDER, reason="CTXPAGER_RECORDINGS names the folder of recorded sessions")
def test_the_median_recorded_session_is_counted_within_fifteen_percent():
    found = [one for path in files(Path(FOLDER) / "traces" / "entire-cli") for one in log_files.read(path, Problems())]
    off = [ratio(one.recording) for one in found if any(step.usage for step in one.recording.steps)]
    assert len(off) > 100
    assert statistics.median(off) == pytest.approx(1.0, abs=0.15)
    assert statistics.median(abs(one - 1.0) for one in off) <= 0.15


@pytest.mark.recorded
@pytest.mark.skipif(not FOLDER, reason="CTXPAGER_RECORDINGS names the folder of recorded sessions")
def test_the_prompts_of_recorded_sessions_add_up_to_the_tokens_that_were_reported():
    how = prepare((Contender("keep_all"),), ReplayConditions("anthropic"))
    found = analyze([Path(FOLDER) / "traces" / "entire-cli"], how, jobs=2)
    assert found.paid.reported == found.totals.calls > 10_000
    assert found.totals.client.total == found.paid.input
