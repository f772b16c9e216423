"""What the bot says to people: constants, and functions that return sentences, by subject.

Pure functions and constants. A sentence gives the cause, then what to do: present tense, active,
"you" for the reader. The bot is "I" in Slack and Discord, and "the bot" elsewhere. Only sentences
for the operator name settings. `tests/unit/house/test_wording.py` finds sentences in other modules.

Not here: what a model reads (`agent.prompt_texts`), the `--help` of commands, descriptions of MCP
tools and of settings, the sentences of error classes (their docstrings), what runs in kernels
(`guest`), the page's own labels (`web/pages`), and the log.
"""
