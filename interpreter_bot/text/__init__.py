"""Pure functions on text that every layer may use: sanitizing, terminals, screens, formats.

A leaf: the agent describes to a model what platforms show to people, and both use these functions.
`safe_text` makes foreign text safe to show, `fences` writes and finds code within Markdown,
`output_screens` computes what an execution leaves visible, `quantities` writes sizes, times and
counts in words. The look of a certain platform never belongs here.
"""
