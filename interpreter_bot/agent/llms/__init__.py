"""Models behind SDKs, one file per wire protocol; the only home of `openai` and `anthropic`.

`chat_completions`, `responses_api` and `anthropic_messages` speak to a server, `code_block_llm`
does without tool calling, `tool_support` finds out which of them a model needs, `retries` waits and
asks again, `catalogues` opens what the settings list or `model_discovery` finds, by
`openai_clients`; `tls_contexts` has what servers are verified by. Every failure leaves here as one
of `agent.model_errors`, translated once, and without a key in it.
"""
