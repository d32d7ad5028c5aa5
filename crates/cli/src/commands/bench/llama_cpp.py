"""Serves a model with llama.cpp for `lemon bench serve`: one JSON request a line on standard input, one reply a line on
standard output. A request has prompts (token ids) that are continued all at once, greedily."""

import concurrent.futures
import json
import sys
import time
import urllib.request


def say(value):
    print(json.dumps(value), flush=True)


def main(path, threads, slots, context):
    try:
        import xllamacpp
    except ImportError as error:
        say({"error": f"the package xllamacpp cannot be imported: {error}", "missing": True})
        return
    params = xllamacpp.CommonParams()
    params.model.path = path
    params.hostnames, params.port = ["127.0.0.1"], 0
    params.n_parallel, params.n_ctx, params.warmup = slots, slots * context, False
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = threads
    server = xllamacpp.Server(params)
    address = server.listening_address
    pool = concurrent.futures.ThreadPoolExecutor(slots)

    def complete(prompt, tokens):
        body = {"prompt": prompt, "n_predict": tokens, "temperature": 0.0, "cache_prompt": False, "return_tokens": True}
        data = json.dumps(body).encode()
        request = urllib.request.Request(address + "/completion", data, {"Content-Type": "application/json"})
        with urllib.request.urlopen(request, timeout=600) as reply:
            return json.load(reply)["tokens"]

    for line in sys.stdin:
        request = json.loads(line)
        began = time.perf_counter()
        futures = [pool.submit(complete, prompt, request["tokens"]) for prompt in request["prompts"]]
        written = [future.result() for future in futures]
        version = f"xllamacpp {xllamacpp.__version__}: {xllamacpp.get_system_info().strip(' |')}"
        say({"seconds": time.perf_counter() - began, "written": written, "program": version})


try:
    main(sys.argv[1], *map(int, sys.argv[2:5]))
except Exception as error:
    say({"error": f"{type(error).__name__}: {error}"})
