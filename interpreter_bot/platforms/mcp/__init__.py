"""The Model Context Protocol as a platform: agents of others run code in our sandbox by its tools.

`startup` serves it, over standard input and output or HTTP; `tool_definitions` says which tools
there are, `tool_calls` does what they say, `replies` gathers what a run shows, and `tool_results`
writes that for the client. `client_tokens` knows who may. A session is known by a handle, which is
worth nothing to any other client. The SDK is the extra `[mcp]`, imported when it is wanted.
"""
