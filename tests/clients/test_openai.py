"""The official `openai` client works unchanged."""

import json
import math
import threading

import openai
import pytest

QUESTION = [{"role": "user", "content": "Name three colours."}]
WEATHER = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "The weather of a city.",
        "parameters": {
            "type": "object",
            "properties": {"city": {"type": "string", "maxLength": 20}},
            "required": ["city"],
            "additionalProperties": False,
        },
    },
}


def ask(client, model, **more):
    more.setdefault("messages", QUESTION)
    more.setdefault("max_tokens", 24)
    more.setdefault("temperature", 0)
    return client.chat.completions.create(model=model, **more)


def joined(stream):
    """The text, the reasons and the usage of a streamed chat of one choice."""
    text, reasons, usage = "", [], None
    for chunk in stream:
        usage = chunk.usage or usage
        for choice in chunk.choices:
            text += choice.delta.content or ""
            reasons += [choice.finish_reason] if choice.finish_reason else []
    return text, reasons, usage


def test_the_model_is_listed_and_found(client, model):
    assert client.models.retrieve(model).id == model
    with pytest.raises(openai.NotFoundError):
        client.models.retrieve("no-such-model")


def test_a_chat_counts_what_it_delivers(client, model):
    answer = ask(client, model)
    choice = answer.choices[0]
    assert choice.message.role == "assistant"
    assert choice.message.content
    assert choice.finish_reason in ("stop", "length")
    usage = answer.usage
    assert 0 < usage.completion_tokens <= 24
    assert usage.total_tokens == usage.prompt_tokens + usage.completion_tokens


def test_a_streamed_chat_says_the_same(client, model):
    whole = ask(client, model)
    options = {"include_usage": True}
    text, reasons, usage = joined(ask(client, model, stream=True, stream_options=options))
    assert text == whole.choices[0].message.content
    assert reasons == [whole.choices[0].finish_reason]
    assert usage.completion_tokens == whole.usage.completion_tokens


def test_speculation_never_changes_the_text_and_can_be_switched_off(client, model):
    plain = ask(client, model, extra_body={"speculative": {"enabled": False}})
    fixed = {"speculative.n_min": 4, "speculative.n_max": 4}
    drafted = ask(client, model, extra_body=fixed)
    assert plain.choices[0].message.content == drafted.choices[0].message.content
    assert plain.metrics["speculative_decoding"]["num_draft_tokens"] == 0
    assert drafted.metrics["speculative_decoding"]["num_draft_tokens"] > 0
    assert drafted.timings["predicted_n"] == drafted.usage.completion_tokens


def test_a_seed_gives_its_text_again_and_choices_differ(client, model):
    def texts():
        answer = ask(client, model, n=3, seed=7, temperature=1.5)
        assert [choice.index for choice in answer.choices] == [0, 1, 2]
        return [choice.message.content for choice in answer.choices]

    first = texts()
    assert first == texts()
    assert len(set(first)) > 1


def test_logprobs_are_of_every_token(client, model):
    answer = ask(client, model, logprobs=True, top_logprobs=3, max_tokens=8)
    entries = answer.choices[0].logprobs.content
    assert len(entries) == answer.usage.completion_tokens
    for entry in entries:
        assert entry.logprob <= 0
        assert len(entry.top_logprobs) == 3
        # Greedy: the chosen token is the likeliest.
        assert math.isclose(entry.logprob, entry.top_logprobs[0].logprob, abs_tol=1e-5)
    text = b"".join(bytes(entry.bytes) for entry in entries).decode()
    assert text.startswith(answer.choices[0].message.content)


def test_a_stop_string_ends_the_text_and_is_left_out(client, model):
    text = ask(client, model).choices[0].message.content
    stop = text[len(text) // 2 :][:4]
    answer = ask(client, model, stop=[stop])
    assert answer.choices[0].message.content == text[: text.index(stop)]
    assert answer.choices[0].finish_reason == "stop"


def test_the_answer_matches_a_json_schema(client, model):
    schema = {
        "type": "object",
        "properties": {"colour": {"type": "string", "maxLength": 12}, "count": {"type": "integer"}},
        "required": ["colour", "count"],
        "additionalProperties": False,
    }
    form = {"type": "json_schema", "json_schema": {"name": "colour", "schema": schema, "strict": True}}
    answer = ask(client, model, response_format=form, max_tokens=64)
    assert set(json.loads(answer.choices[0].message.content)) == {"colour", "count"}


def test_a_required_tool_is_called_whole_and_streamed(client, model):
    def call(**more):
        return ask(client, model, tools=[WEATHER], tool_choice="required", max_tokens=64, **more)

    answer = call()
    choice = answer.choices[0]
    assert choice.finish_reason == "tool_calls"
    (called,) = choice.message.tool_calls
    assert called.function.name == "get_weather"
    assert isinstance(json.loads(called.function.arguments)["city"], str)

    arguments, reasons = "", []
    for chunk in call(stream=True):
        for choice in chunk.choices:
            reasons += [choice.finish_reason] if choice.finish_reason else []
            for piece in choice.delta.tool_calls or []:
                arguments += piece.function.arguments or ""
    assert reasons == ["tool_calls"]
    assert arguments == called.function.arguments

    # And the tool's answer goes back.
    turn = [
        *QUESTION,
        {"role": "assistant", "content": None, "tool_calls": [called.model_dump()]},
        {"role": "tool", "tool_call_id": called.id, "content": "rain"},
    ]
    assert ask(client, model, messages=turn, tools=[WEATHER], tool_choice="none").choices[0]


def test_completions_take_several_prompts_and_echo(client, model):
    prompts = ["def add(a, b):", "Once upon a time"]
    answer = client.completions.create(
        model=model, prompt=prompts, max_tokens=6, temperature=0, n=2, echo=True, seed=1
    )
    assert [choice.index for choice in answer.choices] == [0, 1, 2, 3]
    for choice in answer.choices:
        assert choice.text.startswith(prompts[choice.index // 2])
    assert answer.usage.completion_tokens <= 4 * 6


def test_completions_stream_and_report_logprobs(client, model):
    arguments = {"model": model, "prompt": "1, 2, 3,", "max_tokens": 8, "temperature": 0}
    whole = client.completions.create(logprobs=2, **arguments)
    logprobs = whole.choices[0].logprobs
    assert len(logprobs.tokens) == len(logprobs.token_logprobs) == whole.usage.completion_tokens
    pieces = client.completions.create(stream=True, **arguments)
    text = "".join(choice.text for piece in pieces for choice in piece.choices)
    assert text == whole.choices[0].text


def test_a_stream_that_is_closed_frees_its_place(client, model, fetch):
    stream = ask(client, model, stream=True, max_tokens=400, extra_body={"ignore_eos": True})
    next(iter(stream))
    stream.close()

    free = threading.Event()
    for _ in range(600):
        if gauge(fetch("/metrics"), "specdec_requests_running") == 0:
            return
        free.wait(0.1)
    raise AssertionError("the request still runs")


def gauge(text, name):
    values = [line.split()[-1] for line in text.splitlines() if line.startswith(name) and " " in line]
    return sum(float(value) for value in values)


@pytest.mark.parametrize(
    ("error", "named", "arguments"),
    [
        (openai.NotFoundError, "no-such", {"model": "no-such"}),
        (openai.BadRequestError, "temperature", {"temperature": -1}),
        (openai.BadRequestError, "top_p", {"top_p": 0}),
        (openai.BadRequestError, "messages", {"messages": []}),
        (openai.BadRequestError, "role", {"messages": [{"role": "wizard", "content": "Hi"}]}),
        (openai.BadRequestError, "max_tokens", {"max_tokens": 0}),
        (openai.BadRequestError, "no_such_field", {"extra_body": {"no_such_field": 1}}),
    ],
)
def test_a_wrong_request_is_refused_and_names_what_is_wrong(client, model, error, named, arguments):
    with pytest.raises(error) as caught:
        ask(client, **{"model": model, **arguments})
    assert named in str(caught.value)
    assert caught.value.body["type"]


def test_a_prompt_over_the_context_is_refused_also_when_streamed(client, model):
    long = [{"role": "user", "content": "word " * 200_000}]
    for stream in (False, True):
        with pytest.raises(openai.BadRequestError) as caught:
            ask(client, model, messages=long, stream=stream)
        assert "tokens" in str(caught.value)
