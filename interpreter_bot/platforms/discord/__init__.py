"""Discord as a platform: messages, commands and buttons in; messages edited in place out.

`startup` is the way in. `gateway_client` receives events; `message_events` makes requests of
messages, `edits_and_deletions` of their changes, `slash_commands` and `modals` of interactions
(`interrupted_answers` mends what an earlier run left); `requests_in_flight` runs them. `replies`
receives the events of a turn into `answer_contents`, which `turn_rendering` renders and
`message_layout` lays out on messages; `message_sync` keeps these on Discord through
`message_targets`. Discord's syntax is in `markdown`. Only this package imports the library, and
nothing here decides what a request means.
"""
