"""Models behind the `openai` SDK, one file per wire protocol; the only home of that library.

`chat` and `responses` speak to a server, `fenced` does without tool calling, `choosing` finds out
which of them a model needs, `retrying` waits and asks again, `catalogues` opens what the settings
list. Every failure leaves here as one of `agent.model_errors`, said once, and without a key in it.
"""
