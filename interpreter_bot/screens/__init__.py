"""What stands on a screen after all that was printed, shown, cleared and updated. Pure.

A leaf: the agent tells a model what a person saw, platforms show it, and both mean the same.
`terminals` is about printed text, `showing` about all outputs of one execution,
`hidden_characters` about code that people are to judge. How things look on a certain platform
never belongs here.
"""
