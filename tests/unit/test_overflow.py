"""Providers say in many ways that a prompt is too long; all must be known, and nothing else taken for it."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pager.paging.context_length import LONGEST, Overflow, overflow


def openai(message, code=None, kind="invalid_request_error"):
    return {"error": {"message": message, "type": kind, "param": "messages", "code": code}}


def anthropic(message, kind="invalid_request_error"):
    return {"type": "error", "error": {"type": kind, "message": message}, "request_id": "req_1"}


# The provider or server, where its message is told (an issue or pull request on GitHub), status, body, what it says.
SAID = [
    (
        "OpenAI, crewAIInc/crewAI-examples#121",
        400,
        openai(
            "This model's maximum context length is 128000 tokens. However, your messages resulted in 130042 tokens. "
            "Please reduce the length of the messages.",
            "context_length_exceeded",
        ),
        Overflow(128_000, 130_042),
    ),
    (
        "Azure, Azure/azure-sdk-for-net#41892",
        400,
        openai(
            "This model's maximum context length is 32768 tokens. However, you requested 35969 tokens (9969 in the "
            "messages, 26000 in the completion). Please reduce the length of the messages or completion.",
            "context_length_exceeded",
        ),
        Overflow(32_768, 35_969, 26_000),
    ),
    (
        "OpenAI completions, acheong08/ChatGPT#501",
        400,
        openai(
            "This model's maximum context length is 4097 tokens, however you requested 4116 tokens (1044 in your "
            "prompt; 3072 for the completion). Please reduce your prompt; or completion length."
        ),
        Overflow(4_097, 4_116, 3_072),
    ),
    (
        "OpenAI, cline/cline#5474",
        400,
        openai(
            "Input tokens exceed the configured limit of 272000 tokens. Your messages resulted in 289650 tokens. "
            "Please reduce the length of the messages."
        ),
        Overflow(272_000, 289_650),
    ),
    (
        "OpenAI responses, in a stream, openai/codex#3177",
        200,
        {
            "type": "response.failed",
            "response": {
                "error": {
                    "code": "context_length_exceeded",
                    "message": "Your input exceeds the context window of this model. Please adjust your input.",
                },
                "instructions": "Say when 5 > 3.",
            },
        },
        Overflow(),
    ),
    (
        "Anthropic, anthropics/claude-code#12186",
        400,
        anthropic("prompt is too long: 208310 tokens > 200000 maximum"),
        Overflow(200_000, 208_310),
    ),
    (
        "Anthropic, continuedev/continue#6080",
        400,
        anthropic(
            "input length and `max_tokens` exceed context limit: 199759 + 8192 > 200000, decrease input length or "
            "`max_tokens` and try again"
        ),
        Overflow(200_000, 207_951, 8_192),
    ),
    (
        "Anthropic, anthropics/claude-code#6358",
        413,
        anthropic("Request size exceeds model context window"),
        Overflow(),
    ),
    (
        "Anthropic by bytes, anthropics/anthropic-sdk-python#938",
        413,
        {"error": {"type": "request_too_large", "message": "Request exceeds the maximum size"}},
        Overflow(),
    ),
    (
        "Bedrock, aws-samples/assessment-generator#2",
        400,
        {"errorType": "ValidationException", "errorMessage": "Input is too long for requested model."},
        Overflow(),
    ),
    (
        "Bedrock, aaif-goose/goose#7504",
        400,
        {"message": "The model returned the following errors: prompt is too long: 227255 tokens > 200000 maximum"},
        Overflow(200_000, 227_255),
    ),
    (
        "Gemini, google-gemini/gemini-cli#6678",
        400,
        [
            {
                "error": {
                    "code": 400,
                    "message": "The input token count (1200293) exceeds the maximum number of tokens allowed "
                    "(1048576).",
                    "status": "INVALID_ARGUMENT",
                }
            }
        ],
        Overflow(1_048_576, 1_200_293),
    ),
    (
        "Gemini without its count, warpdotdev/warp#15662",
        400,
        openai("The input token count exceeds the maximum number of tokens allowed 1048576."),
        Overflow(1_048_576),
    ),
    (
        "Gemini, an error inside an error, google-gemini/gemini-cli#4231",
        400,
        {
            "error": {
                "message": json.dumps(
                    {
                        "error": {
                            "code": 400,
                            "message": "The input token count (3475108) exceeds the maximum number of tokens allowed "
                            "(1048576).",
                        }
                    }
                ),
                "code": 400,
            }
        },
        Overflow(1_048_576, 3_475_108),
    ),
    (
        "Vertex, google-gemini/gemini-cli#19727",
        400,
        openai(
            "Unable to submit request because the input token count is 1251952 but model only supports up to 1048576. "
            "Reduce the input token count and try again. You can also use the CountTokens API to calculate prompt "
            "token count and billable characters."
        ),
        Overflow(1_048_576, 1_251_952),
    ),
    (
        "vLLM, vllm-project/vllm#20409",
        400,
        {
            "object": "error",
            "message": "This model's maximum context length is 16384 tokens. However, you requested 122946 tokens "
            "(112946 in the messages, 10000 in the completion). Please reduce the length of the messages. None",
            "type": "BadRequestError",
            "code": 400,
        },
        Overflow(16_384, 122_946, 10_000),
    ),
    (
        "vLLM, earendil-works/pi#5929",
        400,
        openai(
            "This model's maximum context length is 262144 tokens. However, you requested 128000 output tokens and "
            "your prompt contains at least 134145 input tokens, for a total of at least 262145 tokens. Please reduce "
            "the length of the input prompt or the number of requested output tokens."
        ),
        Overflow(262_144, 262_145, 128_000),
    ),
    (
        "vLLM, vllm-project/vllm#33425",
        400,
        openai(
            "This model's maximum context length is 2048 tokens. However, your request has 8 input tokens plus 2045 "
            "'max_tokens'. Please reduce one or the other."
        ),
        Overflow(2_048, 2_053, 2_045),
    ),
    (
        "vLLM, claude-code-best/claude-code#272",
        400,
        openai(
            "'max_tokens' or 'max_completion_tokens' is too large: 64000. This model's maximum context length is 64001 "
            "tokens and your request has 24235 input tokens (64000 > 64001 - 24235). None"
        ),
        Overflow(64_001, 88_235, 64_000),
    ),
    (
        "vLLM, vllm-project/vllm#12165",
        500,
        openai("The prompt (total length 25938) is too long to fit into the model (context length 4096)."),
        Overflow(4_096, 25_938),
    ),
    (
        "SGLang, QwenLM/Qwen3#1321",
        400,
        {
            "object": "error",
            "message": "The input (61709 tokens) is longer than the model's context length (40960 tokens).",
            "type": "BadRequestError",
        },
        Overflow(40_960, 61_709),
    ),
    (
        "SGLang, anomalyco/opencode#25230",
        400,
        openai(
            "Requested token count exceeds the model's maximum context length of 202752 tokens. You requested a total "
            "of 202941 tokens: 170941 tokens from the input messages and 32000 tokens for the completion."
        ),
        Overflow(202_752, 202_941, 32_000),
    ),
    (
        "SGLang, sgl-project/sglang#4048",
        400,
        openai("Input length (160062 tokens) exceeds the maximum allowed length (59862 tokens)."),
        Overflow(59_862, 160_062),
    ),
    (
        "OpenAI-compatible, earendil-works/pi#5677",
        400,
        openai("Input length (265330) exceeds model's maximum context length (262144)."),
        Overflow(262_144, 265_330),
    ),
    (
        "Poolside, earendil-works/pi#4943",
        400,
        openai("Input length 131393 exceeds the maximum allowed input length of 131040 tokens."),
        Overflow(131_040, 131_393),
    ),
    (
        "llama.cpp, ggml-org/llama.cpp#15780",
        500,
        {
            "error": {
                "code": 500,
                "message": "the request exceeds the available context size. try increasing the context size",
                "type": "exceed_context_size_error",
                "n_prompt_tokens": 1407,
                "n_ctx": 256,
            }
        },
        Overflow(256, 1_407),
    ),
    (
        "llama.cpp, with numbers in its message",
        400,
        openai("request (14429 tokens) exceeds the available context size (8192 tokens), try increasing it"),
        Overflow(8_192, 14_429),
    ),
    (
        "llama-cpp-python, fedora-copr/logdetective-website#193",
        500,
        openai("Requested tokens (2285) exceed context window of 2048"),
        Overflow(2_048, 2_285),
    ),
    (
        "Mistral",
        400,
        {
            "object": "error",
            "message": "Prompt contains 140021 tokens, too large for model with 131072 maximum context",
        },
        Overflow(131_072, 140_021),
    ),
    (
        "DeepSeek, evalstate/fast-agent#621",
        400,
        openai(
            "This model's maximum context length is 131072 tokens. However, you requested 131134 tokens (122942 in the "
            "messages, 8192 in the completion). Please reduce the length of the messages or completion.",
            "invalid_request_error",
        ),
        Overflow(131_072, 131_134, 8_192),
    ),
    (
        "Groq, OpenHands/OpenHands#1902",
        400,
        openai("Please reduce the length of the messages or completion.", "context_length_exceeded"),
        Overflow(),
    ),
    (
        "Cerebras, cline/cline#5140",
        400,
        {
            "message": "Please reduce the length of the messages or completion. Current length is 42328 while limit "
            "is 40000"
        },
        Overflow(40_000, 42_328),
    ),
    (
        "OpenRouter, refly-ai/refly#1177",
        400,
        openai(
            "This endpoint's maximum context length is 32768 tokens. However, you requested about 42832 tokens (42832 "
            'of text input). Please reduce the length of either one, or use the "middle-out" transform.'
        ),
        Overflow(32_768, 42_832),
    ),
    (
        "OpenRouter, a provider's error passed on",
        400,
        {
            "error": {
                "message": "Provider returned error",
                "code": 400,
                "metadata": {"raw": json.dumps(anthropic("prompt is too long: 208310 tokens > 200000 maximum"))},
            }
        },
        Overflow(200_000, 208_310),
    ),
    (
        "xAI, cline/cline#3120",
        400,
        {
            "code": "400",
            "error": "This model's maximum prompt length is 131072 but the request contains 136973 tokens.",
        },
        Overflow(131_072, 136_973),
    ),
    (
        "Kimi, openclaw/openclaw#9562",
        400,
        openai("Invalid request: Your request exceeded model token limit: 262144 (requested: 291351)"),
        Overflow(262_144, 291_351),
    ),
    (
        "GitHub Copilot, microsoft/copilot-intellij-feedback#94",
        400,
        openai("prompt token count of 138898 exceeds the limit of 64000", "model_max_prompt_tokens_exceeded"),
        Overflow(64_000, 138_898),
    ),
    (
        "Fireworks, can1357/oh-my-pi#1618",
        400,
        openai("The prompt is too long: 267657, model maximum context length: 262143"),
        Overflow(262_143, 267_657),
    ),
    (
        "oMLX, ValueCell-ai/ClawX#658",
        400,
        openai("Prompt too long: 41911 tokens exceeds max context window of 32768 tokens"),
        Overflow(32_768, 41_911),
    ),
    (
        "DashScope, QwenLM/qwen-code#98",
        400,
        openai("<400> InternalError.Algo.InvalidParameter: Range of input length should be [1, 204800]"),
        Overflow(204_800),
    ),
    (
        "DashScope by bytes, QwenLM/qwen-code#1082",
        400,
        openai("String value length (20054016) exceeds the maximum allowed (20000000, from `StreamReadConstraints`)"),
        Overflow(),
    ),
    (
        "LM Studio, cline/cline#3664",
        400,
        {
            "error": "Trying to keep the first 10136 tokens when context the overflows. However, the model is loaded "
            "with context length of only 7866 tokens, which is not enough."
        },
        Overflow(7_866, 10_136),
    ),
    (
        "LM Studio, lmstudio-ai/lmstudio-bug-tracker#2256",
        400,
        {
            "error": "The number of tokens to keep from the initial prompt is greater than the context length "
            "(n_keep: 9034>= n_ctx: 8192)"
        },
        Overflow(8_192, 9_034),
    ),
    (
        "text-generation-inference, huggingface/llm-vscode#94",
        422,
        {
            "error": "Input validation error: `inputs` tokens + `max_new_tokens` must be <= 2048. Given: 3474 `inputs` "
            "tokens and 60 `max_new_tokens`",
            "error_type": "validation",
        },
        Overflow(2_048, 3_534, 60),
    ),
    (
        "Cohere, cohere-ai/sandbox-topically#4",
        400,
        {
            "message": "too many tokens: total number of tokens (prompt and prediction) cannot exceed 2,048 - received "
            "6,354. Try using a shorter prompt or a smaller max_tokens value."
        },
        Overflow(2_048, 6_354),
    ),
    (
        "MiniMax, whose number is a code, MiniMax-AI/MiniMax-M2#119",
        400,
        anthropic("invalid params, context window exceeds limit (2013)"),
        Overflow(),
    ),
    ("GLM", 400, {"error": {"code": "1261", "message": "Prompt exceeds max length"}}, Overflow()),
    ("Ollama", 400, {"error": "prompt too long; exceeded max context length by 120 tokens"}, Overflow()),
    ("Ollama's embedded runner", 500, {"error": "input length exceeds the context length"}, Overflow()),
    ("mlx-serve, ddalcu/mlx-serve#66", 400, anthropic("Prompt exceeds maximum context length"), Overflow()),
]

OTHERS = [
    (
        "OpenAI's tokens per minute, vanna-ai/vanna-flask#11",
        429,
        openai("Request too large for gpt-4o on tokens per min (TPM): Limit 30000, Requested 342389.", kind="tokens"),
    ),
    (
        "Groq's tokens per minute, assafelovic/gpt-researcher#985",
        413,
        openai(
            "Request too large for model `llama-3.1-70b-versatile` on tokens per minute (TPM): Limit 6000, Requested "
            "14368, please reduce your message size and try again.",
            "rate_limit_exceeded",
            "tokens",
        ),
    ),
    (
        "a rate limit that advises a shorter prompt, FoundationAgents/OpenManus#746",
        400,
        openai(
            "This request would exceed the rate limit for your organization of 20,000 input tokens per minute. Please "
            "reduce the length of the prompt or the maximum tokens requested, or try again later.",
            "rate_limit_error",
        ),
    ),
    (
        "a plan without long prompts, anthropics/claude-code#41054",
        429,
        anthropic("Extra usage is required for long context requests.", "rate_limit_error"),
    ),
    ("Bedrock's throttling, jin-bo/agentao#88", 400, {"__type": "ThrottlingException", "message": "Too many tokens"}),
    (
        "a limit on the answer alone, ChatGPTNextWeb/NextChat#3195",
        400,
        openai(
            "max_tokens is too large: 8192. This model supports at most 4096 completion tokens, whereas you provided "
            "8192."
        ),
    ),
    (
        "a limit on the answer alone, Gitlawb/openclaude#331",
        400,
        openai("The parameter `max_completion_tokens` is not valid: expected a value <= 12288, but got 32000 instead."),
    ),
    ("a bill", 400, anthropic("Your credit balance is too low to access the Anthropic API.")),
    ("a wrong pairing", 400, anthropic("messages.2: `tool_use` ids were found without `tool_result` blocks")),
    ("an overloaded server", 500, anthropic("Overloaded", "overloaded_error")),
    (
        "a check that repeats the request",
        422,
        {
            "detail": [
                {"type": "missing", "loc": ["body", "model"], "msg": "Field required", "input": "prompt is too long"}
            ]
        },
    ),
    ("a wrong key", 401, openai("This model's maximum context length is 128000 tokens.", "context_length_exceeded")),
    ("an answer", 200, {"choices": [{"message": {"content": "The prompt is too long: 10 tokens > 5 maximum"}}]}),
]


@pytest.mark.parametrize(("status", "body", "told"), [case[1:] for case in SAID], ids=[case[0] for case in SAID])
def test_an_overflow_is_known_with_what_it_tells(status, body, told):
    assert overflow(status, json.dumps(body).encode()) == told


@pytest.mark.parametrize(("status", "body", "told"), [case[1:] for case in SAID], ids=[case[0] for case in SAID])
def test_an_overflow_is_known_as_an_event_of_a_stream(status, body, told):
    assert overflow(200, b"event: error\ndata: " + json.dumps(body).encode() + b"\n\n") == told


@pytest.mark.parametrize(("status", "body"), [case[1:] for case in OTHERS], ids=[case[0] for case in OTHERS])
def test_an_error_about_anything_else_is_no_overflow(status, body):
    assert overflow(status, json.dumps(body).encode()) is None


def test_more_is_told_to_be_taken_than_there_is_room_for():
    for _, _, _, told in SAID:
        assert not (told.limit and told.tokens) or told.tokens > told.limit
        assert told.reserved < told.tokens or not told.reserved


def test_a_body_too_large_for_a_server_on_the_way_is_an_overflow():
    page = b"<html><head><title>413 Request Entity Too Large</title></head><body>nginx</body></html>"
    assert overflow(413, page) == Overflow()
    assert overflow(413, b"") == Overflow()
    assert overflow(400, page) is None


@pytest.mark.parametrize("told", ["exceeds the limit of 10 MB", "32 MB > 30 MB", "limit is 31457280 bytes", "> 5 MiB"])
def test_bytes_are_no_tokens(told):
    assert overflow(413, json.dumps({"error": {"message": f"Request body {told}"}}).encode()) == Overflow()


def test_an_error_in_plain_text_is_known():
    assert overflow(400, b"prompt is too long: 208310 tokens > 200000 maximum") == Overflow(200_000, 208_310)
    assert overflow(400, b'{"error": "prompt is too long: 7 tok') == Overflow(0, 7)


def test_only_the_beginning_of_a_long_error_is_looked_at():
    padding = "x" * LONGEST
    assert overflow(400, f"prompt is too long {padding}".encode()) == Overflow()
    assert overflow(400, f"{padding} prompt is too long".encode()) is None


def test_numbers_in_the_middle_of_json_do_not_matter():
    assert overflow(400, b'{"error": {"message": "prompt is too long", "code": null, "type": 5}}') == Overflow()
    assert overflow(400, b'[7, null, {"error": "prompt is too long"}]') == Overflow()


@given(st.sampled_from([200, 400, 404, 413, 422, 429, 500, 503]), st.binary() | st.text().map(str.encode))
def test_no_body_is_too_strange(status, body):
    told = overflow(status, body)
    assert told is None or status in (200, 400, 413, 422, 500)
