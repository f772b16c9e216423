"""A small model in a child process of the bot, for operators who have no other model.

`model_files` downloads the model's file and verifies it. `server_process` runs the child process,
whose program is `server_main`, which imports nothing of the bot. `on_demand_model` puts them
together. The extra `[local]` installs the engine. Protocols of models do not belong here.
"""
