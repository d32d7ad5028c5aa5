"""Writes what llama.cpp makes of a model, for the tests that compare with it.

    python3 llama_cpp.py MODEL.gguf [--server http://127.0.0.1:8080]

`MODEL.reference.json` is put beside the model: the tokens of 10,000 generated lines, greedy continuations with the likeliest
tokens at each place, and conversations. Without `--server` the package `xllamacpp` (prebuilt, from the Python package index)
serves the model on a free port meanwhile; a server that is named has to serve MODEL.gguf. Nothing else but the standard
library is needed. Without `--server` the model is then served again, with attention computed in another way, and asked for the
probabilities along the same text: how far llama.cpp is from itself. `--again` adds only this to a reference that exists.
"""

import argparse
import json
import random
import unicodedata
import urllib.request

LINES = 10_000
# Together 200 tokens and a few.
WRITTEN = 52
# Tokens whose log-probability is kept at each place; the rest counts as one.
LIKELIEST = 100
PROMPTS = [
    "def fibonacci(n):\n",
    "The capital of France is",
    "1 + 1 = 2\n2 + 2 = 4\n3 + 3 =",
    "Once upon a time there was a tailor who",
]
SCRIPTS = [(0x20, 0x7F), (0xA0, 0x250), (0x370, 0x530), (0x590, 0x700), (0x900, 0xE00), (0x1F00, 0x2300), (0x2500, 0x2800)]
SCRIPTS += [(0x3040, 0x3100), (0x4E00, 0x9FFF), (0xAC00, 0xD7A0), (0x1F300, 0x1FAFF), (0x300, 0x370)]
ODD = ["\t", "  ", "   ", "\r", "\u200d", "\ufeff", "\u00a0", "\u3000", "\x00", "'s", "'LL", "'re", "1234567", "3.14", "½"]
ODD += ["👩‍🔬", "🏳️‍🌈", "e\u0301", "٣", "Ⅷ", "²", "\n", "\r\n", "\n\n", "\u2028"]
SPECIAL = ["<|im_start|>", "<|im_end|>", "<|endoftext|>", "<|im_", "<tool_call>", "</tool_call>", "<|fim_prefix|>", "<s>", "|>"]
NAMES = ["x", "count", "maxValue", "snake_case", "HTTPServer2", "self", "_private", "α", "naïve", "i"]
WORDS = ["the", "quick", "Fox", "jumps", "OVER", "don't", "we'll", "café", "straße", "co-op", "e.g.", "U.S.", "well—known"]


def letters(draw):
    """Some letters of one script."""
    low, high = draw.choice(SCRIPTS)
    drawn = [chr(draw.randrange(low, high)) for _ in range(draw.randint(1, 8))]
    return "".join(letter for letter in drawn if unicodedata.category(letter) not in ("Cn", "Cs"))


def number(draw):
    """A number as people and programs write it."""
    digits = str(draw.randrange(10 ** draw.randint(1, 15)))
    forms = [digits, f"-{digits}", f"{int(digits):,}", f"{digits}.{draw.randrange(1000)}", f"0x{int(digits):X}", f"{digits}e-7", f"${digits}%"]
    return draw.choice(forms)


def line_of_code(draw):
    """Something like a line of a program."""
    name, other = draw.choice(NAMES), draw.choice(NAMES)
    forms = [f"{name} = {other}[{number(draw)}]  # {draw.choice(WORDS)}", f"if ({name} != {other}) {{ return \"{draw.choice(WORDS)}\\n\"; }}"]
    forms += [f"for {name} in range({number(draw)}): print(f'{{{other}!r}}')", f"#include <{name}/{other}.h>", f"let {name}: Vec<&'a {other}> = vec![];"]
    return " " * draw.choice([0, 0, 1, 2, 4, 7, 8]) + draw.choice(forms) + draw.choice(["", " ", "\t"])


def generated(count, seed=1):
    """Lines of all kinds: scripts, prose, code, numbers, emoji, and special tokens as text."""
    draw = random.Random(seed)
    for at in range(count):
        if at % 4 == 1:
            yield line_of_code(draw)
            continue
        parts = []
        for _ in range(draw.randint(1, 12)):
            kind = draw.random()
            if kind < 0.25:
                parts.append(draw.choice(ODD))
            elif kind < 0.35:
                parts.append(draw.choice(SPECIAL))
            elif kind < 0.5:
                parts.append(number(draw))
            elif kind < 0.7:
                parts.append(draw.choice(WORDS))
            else:
                parts.append(letters(draw))
            parts.append(draw.choice(["", "", " ", " ", "  "]))
        yield "".join(parts)


def ask(server, path, body):
    request = urllib.request.Request(server + path, json.dumps(body).encode(), {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=3600) as reply:
        return json.load(reply)


def tokens_of(server, text, parse_special=True):
    return ask(server, "/tokenize", {"content": text, "parse_special": parse_special})["tokens"]


def text_of(server, line):
    text = {"text": line, "tokens": tokens_of(server, line)}
    if "<" in line:
        text["plain"] = tokens_of(server, line, parse_special=False)
    return text


def greedy_of(server, prompt):
    tokens = tokens_of(server, prompt)
    body = {"prompt": tokens, "n_predict": WRITTEN, "temperature": 0.0, "n_probs": LIKELIEST, "cache_prompt": False, "ignore_eos": True}
    reply = ask(server, "/completion", body)
    top = [[[top["id"], top["logprob"]] for top in it["top_logprobs"]] for it in reply["completion_probabilities"]]
    written = [{"id": it["id"], "top": top} for it, top in zip(reply["completion_probabilities"], top)]
    return {"prompt": tokens, "written": written}


def again_of(server, greedy):
    """Adds the log-probabilities of the same tokens along the same text, from another server."""
    for text in greedy:
        tokens = list(text["prompt"])
        for place in text["written"]:
            body = {"prompt": tokens, "n_predict": 1, "temperature": 0.0, "n_probs": 10 * LIKELIEST}
            top = ask(server, "/completion", body)["completion_probabilities"][0]["top_logprobs"]
            found = {it["id"]: it["logprob"] for it in top}
            place["again"] = [[id, found[id]] for id, _ in place["top"] if id in found]
            tokens.append(place["id"])


def serve(model, flash_attention=True):
    """Serves the model in this process, as long as the result lives."""
    import xllamacpp

    params = xllamacpp.CommonParams()
    if not flash_attention:
        params.flash_attn_type = xllamacpp.llama_flash_attn_type.LLAMA_FLASH_ATTN_TYPE_DISABLED
    params.model.path, params.hostnames, params.port, params.n_parallel, params.n_ctx = model, ["127.0.0.1"], 0, 1, 4096
    server = xllamacpp.Server(params)
    return server, server.listening_address


def main():
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("model")
    arguments.add_argument("--server")
    arguments.add_argument("--again", action="store_true")
    arguments = arguments.parse_args()
    path = arguments.model.removesuffix(".gguf") + ".reference.json"
    if arguments.again:
        with open(path, encoding="utf-8") as file:
            reference = json.load(file)
    else:
        # Kept: the server ends with it.
        served, address = (None, arguments.server) if arguments.server else serve(arguments.model)
        reference = reference_of(address)
        del served
    if not arguments.server:
        served, address = serve(arguments.model, flash_attention=False)
        again_of(address, reference["greedy"])
        del served
    with open(path, "w", encoding="utf-8") as out:
        json.dump(reference, out)


def reference_of(address):
    texts = [text_of(address, line) for line in generated(LINES)]
    greedy = [greedy_of(address, prompt) for prompt in PROMPTS]
    messages = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Who <|im_end|> are you?"}]
    plain = [{"role": "user", "content": "Hello"}]
    chats = [{"messages": it, "prompt": ask(address, "/apply-template", {"messages": it})["prompt"]} for it in (messages, plain)]
    written = sum(len(it["written"]) for it in greedy)
    print(len(texts), "lines,", sum(len(it["tokens"]) for it in texts), "tokens;", written, "tokens written")
    return {"texts": texts, "greedy": greedy, "chats": chats}


if __name__ == "__main__":
    main()
