"""Rendering decisions that all platforms share; pure, and without any platform's syntax.

`output_selection` decides which `display_items` an execution's outputs become (text, table,
picture, file) and names the files; `tables` draws tables; `html_content` looks into HTML;
`message_splitting` cuts Markdown into messages. `interpreter_bot.text` computes the screen that
code printed to, sanitizes text and wraps code. Each platform handles its own mentions and escapes.
"""
