"""Models behind the `openai` SDK, one file per wire protocol; the only home of that library.

`chat_completions` and `responses_api` speak to a server, `fenced_llm` does without tool calling,
`tool_support` finds out which of them a model needs, `retries` waits and asks again, `catalogues`
opens what the settings list. Every failure leaves here as one of `agent.model_errors`, translated
once, and without a key in it.
"""
