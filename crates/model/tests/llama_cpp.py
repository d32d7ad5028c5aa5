"""Writes what llama.cpp makes of a model, for the tests that compare with it.

    python3 llama_cpp.py http://127.0.0.1:8080 MODEL.gguf [FILE ...]

The server has to serve MODEL.gguf. `MODEL.reference.json` is put beside the model: token ids of texts (the lines of FILES and
generated ones, a hundred to a text) and greedy continuations. Nothing but the standard library is needed.
"""

import json
import random
import sys
import unicodedata
import urllib.request

LINES_PER_TEXT = 100
PROMPTS = ["def fibonacci(n):\n", "The capital of France is", "1 + 1 = 2\n2 + 2 = 4\n3 + 3 ="]


def lines_of(path):
    with open(path, encoding="utf-8", errors="replace") as file:
        return file.read().split("\n")


def generated(count, seed=1):
    """Lines of characters of all kinds, with spaces, digits and special tokens in between."""
    draw = random.Random(seed)
    scripts = [(0x20, 0x7F), (0xA0, 0x250), (0x370, 0x530), (0x590, 0x700), (0x900, 0xE00), (0x1F00, 0x2300)]
    scripts += [(0x2500, 0x2800), (0x3040, 0x3100), (0x4E00, 0x9FFF), (0xAC00, 0xD7A0), (0x1F300, 0x1FAFF), (0x300, 0x370)]
    odd = ["\t", "  ", "   ", "\r", "\u200d", "\ufeff", "\u00a0", "\u3000", "\x00", "'s", "'LL", "'re", "1234567", "3.14"]
    odd += ["<|im_start|>", "<|im_end|>", "<|endoftext|>", "<|im_", "<tool_call>", "👩‍🔬", "e\u0301", "½", "٣", "Ⅷ", "²"]
    for _ in range(count):
        parts = []
        for _ in range(draw.randint(1, 12)):
            if draw.random() < 0.4:
                parts.append(draw.choice(odd))
                continue
            low, high = draw.choice(scripts)
            letters = [chr(draw.randrange(low, high)) for _ in range(draw.randint(1, 8))]
            parts.append("".join(letter for letter in letters if unicodedata.category(letter) not in ("Cn", "Cs")))
            parts.append(draw.choice(["", " ", " ", "  ", "\n"]))
        yield "".join(parts)


def ask(server, path, body):
    request = urllib.request.Request(server + path, json.dumps(body).encode(), {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=600) as reply:
        return json.load(reply)


def main(server, model, files):
    lines = [line for file in files for line in lines_of(file)] + list(generated(1500))
    texts = ["\n".join(lines[at : at + LINES_PER_TEXT]) for at in range(0, len(lines), LINES_PER_TEXT)]
    texts = [{"text": text, "tokens": ask(server, "/tokenize", {"content": text})["tokens"]} for text in texts]
    greedy = []
    for prompt in PROMPTS:
        tokens = ask(server, "/tokenize", {"content": prompt})["tokens"]
        body = {"prompt": tokens, "n_predict": 24, "temperature": 0.0, "n_probs": 5, "cache_prompt": False, "return_tokens": True}
        reply = ask(server, "/completion", body)
        written = [{"id": it["id"], "top": [[top["id"], top["logprob"]] for top in it["top_logprobs"]]}
                   for it in reply["completion_probabilities"]]
        greedy.append({"prompt": tokens, "written": written})
    messages = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Who <|im_end|> are you?"}]
    plain = [{"role": "user", "content": "Hello"}]
    chats = [{"messages": it, "prompt": ask(server, "/apply-template", {"messages": it})["prompt"]} for it in (messages, plain)]
    with open(model.removesuffix(".gguf") + ".reference.json", "w", encoding="utf-8") as out:
        json.dump({"texts": texts, "greedy": greedy, "chats": chats}, out)
    print(len(lines), "lines in", len(texts), "texts,", sum(len(it["tokens"]) for it in texts), "tokens")


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], sys.argv[3:])
