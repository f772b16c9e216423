"""The model loop, its tools, transcript and budget, independent of platforms and storage.

`loops` takes one request to its final answer. `ports` declares what the loop needs: an environment
that runs code, and a model. The wire protocols of models are in `llms`. Running code is the job of
`kernels`; queues and storage that of `sessions`; a network's syntax that of `platforms`.
"""
