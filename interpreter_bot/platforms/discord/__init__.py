"""Discord as a platform: messages, commands and buttons in; messages edited in place out.

`startup` is the way in. `gateway_client` receives events; `message_events` parses messages for the
inbox of `chat`, `interactions` acknowledges and claims what `slash_commands`, `modals` and
`button_actions` get. `chat.in_flight` runs requests, each with an answer of `chat`, which
`transport` sends. Discord's syntax is in `markdown`. Only this package imports the library, and
nothing here decides what a request means.
"""
