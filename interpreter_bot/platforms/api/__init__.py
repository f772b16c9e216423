"""The HTTP interface as a platform: programs use the bot by requests below `/v1/`.

It is served by the page's server. `routes` lists the requests and checks their tokens, `calls` is
one request, `documents` are the bodies of requests and responses, which `openapi` describes.
`session_calls` handles sessions and files; `chat_completions` is OpenAI's interface, with the bot
as the model. The id of a session is worth nothing to any other client.
"""
