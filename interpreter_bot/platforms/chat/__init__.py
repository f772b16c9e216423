"""Code that chat networks share: an answer is the log of a turn, drawn as messages.

`transport` defines what a network does, and `markup` how it writes. `answer` applies events to a
log, `drafts` draws the log as parts, `layout` puts these on messages, and `sync` sends what differs
from the messages that stand. `formulas` shows formulas as code. `uploads` fits files to the
network, `buttons` has the looks of buttons, and reads what was edited. `policies` decides who may
use the bot. `inbox` takes messages and edits, in order and once (`claims`), `in_flight` runs
requests, and `commands` carries out commands. Nothing here knows a network.
"""
