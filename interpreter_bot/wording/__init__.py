"""What the bot says to people: constants, and functions that return sentences, by subject.

Pure, and beneath whatever says it. A sentence gives the cause, then what to do: present
tense, active, "you" for the reader; "I" is the bot in Slack and Discord, elsewhere it is "the bot".
Only sentences for the operator name settings. `tests/unit/house/test_wording.py` finds sentences
elsewhere. Not here: what a model reads (`agent.prompt_texts`), the `--help` of commands, the
descriptions of MCP tools, and descriptions and checks of settings, which stand at their
declaration, the sentences of error classes (their docstrings), what runs in kernels (`guest`), the
page's own labels (`web/pages`), and the log.
"""
