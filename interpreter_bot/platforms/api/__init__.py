"""The HTTP interface as a platform: programs use the bot by requests below `/v1/`.

It is served by the page's server. `routes` says which requests there are and whose they are,
`calls` is one of them, `documents` what clients send and get, which `openapi` describes.
`session_calls` does what concerns sessions and files; `chat_completions` is OpenAI's interface,
with the bot as the model. A session is known by an id, which is worth nothing to any other client.
"""
