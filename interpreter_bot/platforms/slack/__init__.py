"""Slack: what people say there becomes requests, what sessions reply becomes messages.

`running` opens and closes it all; `apps` and `pressing` are what bolt calls. `listening` hears
messages, `interacting`, `commands`, `forms` and `homes` the rest; `admitting` says who may;
`orders` keeps what people say in its order, and `turning` takes a request to its answer.
`replying` is the way back: `showing` shows an answer, through `streams`, or `sections` of `posts`
and `pictures`; `approving` asks people, `uploads` sends files, and `sending` alone calls Slack.
`incoming`, `answers`, `results`, `tasks`, `markdown`, `blocks`, `views`, `governing`, `listings`
and `preferences` are pure. What is shown at all is decided in `rendering`.
"""
