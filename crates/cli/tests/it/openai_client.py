"""Talks to `lemon serve` with the official Python client and with LangChain, and prints what it saw as JSON."""

import json
import sys

import openai
from langchain_openai import ChatOpenAI

base, key, question, slow = sys.argv[1:]
seen = {}
client = openai.OpenAI(base_url=base, api_key=key)

seen["models"] = [model.id for model in client.models.list()]
messages = [{"role": "user", "content": question}]
extra = {"lemon": {"budget_tokens": 20000}}
whole = client.chat.completions.create(model="lemon", messages=messages, seed=1, user="ann", extra_body=extra)
seen["answer"] = whole.choices[0].message.content
seen["total"] = whole.usage.total_tokens
seen["run"] = whole.lemon["run_id"]
raw = client.chat.completions.with_raw_response.create(model="lemon", messages=messages, seed=1)
seen["header"] = raw.headers["x-lemon-stop-reason"]

stream = client.chat.completions.create(
    model="lemon", messages=messages, seed=2, stream=True, stream_options={"include_usage": True}
)
pieces, usage = [], None
for chunk in stream:
    usage = chunk.usage or usage
    pieces += [choice.delta.content for choice in chunk.choices if choice.delta.content]
seen["streamed"], seen["pieces"], seen["stream_total"] = "".join(pieces), len(pieces), usage.total_tokens

response = client.responses.create(model="lemon", input=question)
seen["response"] = response.output_text
with client.responses.stream(model="lemon", input=question) as events:
    for event in events:
        pass
    seen["response_streamed"] = events.get_final_response().output_text

errors = {}
for name, ask in {
    "unknown model": dict(model="gpt-4", messages=messages),
    "bad value": dict(model="lemon", messages=messages, temperature=3),
    "no messages": dict(model="lemon", messages=[]),
}.items():
    try:
        client.chat.completions.create(**ask)
        errors[name] = None
    except openai.APIStatusError as error:
        errors[name] = [type(error).__name__, error.code]
try:
    client.with_options(timeout=0.3, max_retries=1).chat.completions.create(
        model="lemon", messages=[{"role": "user", "content": slow}]
    )
    errors["timeout"] = None
except openai.APITimeoutError as error:
    errors["timeout"] = [type(error).__name__, None]
seen["errors"] = errors

chain = ChatOpenAI(base_url=base, api_key=key, model="lemon")
seen["langchain"] = chain.invoke(question).content
seen["langchain_streamed"] = "".join(chunk.content for chunk in chain.stream(question))
seen["langchain_total"] = chain.invoke(question, seed=3).usage_metadata["total_tokens"]
print(json.dumps(seen))
