"""What all platforms decide alike about showing things; pure, and without any platform's syntax.

`choosing` says which `items` an execution's outputs become: text, table, picture, file; `tables`
draws them; `pages` looks into HTML; `fences` wraps foreign text; `splitting` cuts Markdown into
messages, never within one of the `graphemes`; `names` are what files are called; `endings` are
words for how things ended. What stands on the screen at all is said by `interpreter_bot.text`,
which makes text harmless too. Mentions and escaping are each platform's own.
"""
