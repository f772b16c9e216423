"""The Model Context Protocol as a platform: other agents call tools to run code in our sandbox.

`startup` serves it, over standard input and output, whose lines `client_lines` reads, or HTTP;
`tool_definitions` describes the tools, `tool_calls` carries out their calls, `replies` collects the
output of a run, and `tool_results` writes results for the client. `client_tokens` has the tokens of
clients. A session is identified by a handle, which is worth nothing to any other client. The SDK is
the extra `[mcp]`, imported only if MCP is served.
"""
