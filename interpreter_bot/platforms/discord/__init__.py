"""Discord as a platform: messages, commands and buttons in; messages edited in place out.

`startup` is the way in. `gateway_client` receives events; `message_events` makes requests of
messages, `edits_and_deletions` of their changes, `slash_commands` and `modals` of interactions
(`interrupted_answers` mends what an earlier run left); `requests_in_flight` runs them, each with an
answer of `chat`, which `transport` sends. Discord's syntax is in `markdown`. Only this package
imports the library, and nothing here decides what a request means.
"""
