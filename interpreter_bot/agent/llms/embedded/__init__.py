"""A small model in a child process of the bot, for operators without another: the extra `[local]`.

`model_files` has the model's file: where it comes from, and that it is the right one.
`server_process` runs the process that serves it, and `server_main` is what runs in that process,
which imports nothing of ours. `on_demand_model` puts them together. What never belongs here: how a
model is spoken to.
"""
