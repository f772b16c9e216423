"""What happens when: conversations, each bound to one kernel at a time, and who is told what.

Here belong the order of things, waiting, stopping, letting go. Never: a network's syntax (that is
`platforms`), how code is run (`kernels`), what a model is asked (`agent`). `ports` says what this
room expects of the one above; `cells` is the shortest way through it.
"""
