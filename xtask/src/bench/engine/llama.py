"""Prints llama.cpp's tokens per second of greedy decoding: MODEL THREADS TOKENS PROMPT."""

import sys
import time

from llama_cpp import Llama

model, threads, tokens, prompt = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), sys.argv[4]
llama = Llama(model_path=model, n_ctx=1024, n_threads=threads, n_threads_batch=threads, verbose=False)


def decode(count):
    stream = llama.create_chat_completion(
        messages=[{"role": "user", "content": prompt}], temperature=0, max_tokens=count, stream=True
    )
    times = [time.perf_counter() for chunk in stream if chunk["choices"][0]["delta"].get("content")]
    return (len(times) - 1) / (times[-1] - times[0])


decode(8)
print(decode(tokens))
