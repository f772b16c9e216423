"""What a model is asked and what becomes of its answers: the loop, the tools, memory and purse.

`loops` takes one request to its final answer; `ports` says what it needs from above (a workbench
that runs code, a watcher that shows what happens) and of a model. The wire to real models is in
`llms`. What never belongs here: where code runs (`kernels`), who is served when and what is
remembered (`sessions`), a network's syntax (`platforms`).
"""
