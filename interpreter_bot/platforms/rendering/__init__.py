"""Rendering decisions that all platforms share; pure, and without any platform's syntax.

`output_selection` decides which `display_items` an execution's outputs become (text, table,
picture, file) and names the files; `tables` draws tables; `html_content` looks into HTML;
`message_splitting` cuts Markdown into messages. What is on the screen at all is decided by
`interpreter_bot.text`, which makes text harmless and wraps code too. Mentions and escaping are each
platform's own.
"""
