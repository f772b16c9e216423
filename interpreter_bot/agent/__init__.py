"""The model loop, its tools, transcript and budget, independent of platforms and storage.

`loops` takes one request to its final answer; `ports` says what it needs from above (an
environment that runs code, a receiver of its events) and of a model. The wire to real
models is in `llms`. What never belongs here: where code runs (`kernels`), who is served when and
what is remembered (`sessions`), a network's syntax (`platforms`).
"""
