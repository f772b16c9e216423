"""What all platforms decide alike about showing things; pure, and without any platform's syntax.

`choosing` says which `items` an execution's outputs become: text, table, picture, file; `tables`
draws them; `pages` looks into HTML; `fences` wraps foreign
text; `splitting` cuts Markdown into messages, never within one of the `graphemes`; `measures` are
the units in which platforms count; `names` are what files are called; `endings` are words for how
things ended. What stands on the screen at all is said by `interpreter_bot.text.screens`, whose
`terminals` also make text harmless. Mentions and escaping are each platform's own.
"""
