"""The protocol that all peers share; see README.md."""

import importlib
import json
import sys
import time


def need(*modules):
    """Imports modules, or says what is missing and ends."""
    found = []
    for name in modules:
        try:
            found.append(importlib.import_module(name))
        except ImportError as error:
            say({"missing": f"{error}; to measure it: pip install {' '.join(modules)}"})
            sys.exit(0)
    return found


def say(message):
    print(json.dumps(message), flush=True)


def batch(texts, tokens):
    """Token ids, one list a text."""
    return [
        [1000 + ((text * tokens + at) * 7919) % 20000 for at in range(tokens)]
        for text in range(texts)
    ]


def requests():
    """What is asked for, until stdin ends."""
    return map(json.loads, sys.stdin)


def serve(name, version, mode, encode):
    """Answers requests until stdin ends. `encode` takes lists of ids and returns one vector a text."""
    say({"name": name, "version": version, "mode": mode})
    for request in requests():
        ids = batch(request["texts"], request["tokens"])
        seconds = []
        for _ in range(request["runs"]):
            start = time.perf_counter()
            vectors = encode(ids)
            seconds.append(time.perf_counter() - start)
        say({"seconds": seconds, "vector": [float(v) for v in vectors[0]]})
