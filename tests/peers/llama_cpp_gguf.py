"""llama.cpp, by llama-cpp-python, on a GGUF file."""

import argparse
import ctypes
import sys
import time
from importlib.metadata import version

import peer

args = argparse.ArgumentParser(description=__doc__)
args.add_argument("--model", required=True, help="GGUF file")
args.add_argument("--threads", type=int, default=2)
args = args.parse_args()

np, llama = peer.need("numpy", "llama_cpp")

CONTEXT = 8192
# Tokens of the prompt after which logits are compared.
COMPARED = 16


@llama.llama_log_callback
def quiet(level, text, data):
    pass


llama.llama_log_set(quiet, ctypes.c_void_p(0))
llama.llama_backend_init()
parameters = llama.llama_model_default_params()
parameters.n_gpu_layers = 0
model = llama.llama_model_load_from_file(args.model.encode(), parameters)
if not model:
    peer.say({"missing": f"llama.cpp does not load {args.model}"})
    sys.exit(0)
parameters = llama.llama_context_default_params()
parameters.n_ctx = CONTEXT
parameters.n_batch = parameters.n_ubatch = 512
parameters.n_threads = parameters.n_threads_batch = args.threads
context = llama.llama_init_from_model(model, parameters)
memory = llama.llama_get_memory(context)
vocabulary = llama.llama_vocab_n_tokens(llama.llama_model_get_vocab(model))
one = (llama.llama_token * 1)()


def feed(ids):
    for start in range(0, len(ids), 512):
        part = ids[start : start + 512]
        tokens = (llama.llama_token * len(part))(*part)
        if llama.llama_decode(context, llama.llama_batch_get_one(tokens, len(part))) != 0:
            raise RuntimeError("llama_decode failed")


def logits():
    return np.ctypeslib.as_array(llama.llama_get_logits_ith(context, -1), shape=(vocabulary,))


def reset():
    llama.llama_memory_clear(memory, False)


def generate(ids, answer):
    """Seconds until the first token, or of those after it if there are more."""
    reset()
    start = time.perf_counter()
    feed(ids)
    token = int(logits().argmax())
    first = time.perf_counter()
    for _ in range(answer - 1):
        one[0] = token
        if llama.llama_decode(context, llama.llama_batch_get_one(one, 1)) != 0:
            raise RuntimeError("llama_decode failed")
        token = int(logits().argmax())
    return first - start if answer == 1 else time.perf_counter() - first


peer.say({"name": "llama.cpp", "version": f"(llama-cpp-python {version('llama-cpp-python')})", "mode": "cpu"})
for request in peer.requests():
    ids = peer.batch(1, request["tokens"])[0]
    reset()
    feed(ids[:COMPARED])
    vector = [float(v) for v in logits()]
    seconds = [generate(ids, request["answer"]) for _ in range(request["runs"])]
    peer.say({"seconds": seconds, "vector": vector})
