"""A small model in a child process of the bot, for whoever has no other: the extra `[local]`.

`weights` has the model's file: where it comes from, and that it is the right one. `engines` runs
the process that serves it, and `serving` is what runs in that process, which imports nothing of
ours. `opening` puts them together. What never belongs here: how a model is spoken to.
"""
