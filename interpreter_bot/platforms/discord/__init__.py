"""Discord as a platform: messages, commands and buttons in; messages edited in place out.

`running` is the way in. `clients` hears the gateway; `listening` makes requests of messages,
`editing` of their changes, `commands`, `menus` and `modals` of interactions (`lost_windows`
and `stale_answers` of what an earlier run left); `requesting` takes
them to their end. `replying` hears a turn and lets `stories` tell it as `sheets`, which `posting`
keeps on Discord through `desks`. Only what is Discord's own is here: its syntax is in `escaping`.
Nobody but this package imports the library, and nothing here decides what a request means.
"""
