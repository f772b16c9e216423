"""Models behind SDKs, one file per wire protocol; the only home of `openai` and `anthropic`.

`chat_completions`, `responses_api` and `anthropic_messages` speak to a server, `code_block_llm`
does without tool calling. `server_quirks` declares what servers refuse, `fallbacks` asks with less
if one refuses a request, and `retries` waits and asks again. `catalogues` opens the models of the
settings or of `model_discovery`, by `openai_clients`. Every failure leaves here as one of
`agent.model_errors`, translated once, and without a key in it.
"""
