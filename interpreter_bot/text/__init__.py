"""Pure functions on text that every layer may use: sanitizing, terminals, screens, formats.

A leaf: the agent tells a model what a person saw, platforms show it, and both mean the same.
`safe_text` makes foreign text safe to show, `fences` writes and finds code within Markdown,
`output_screens` is about printed text and all outputs of one execution, `quantities` about sizes,
times and counts in words. How things look on a certain platform never belongs here.
"""
