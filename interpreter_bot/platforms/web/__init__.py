"""The web page as a platform: one small page, a websocket beneath it, and streams of files.

`server` opens and closes it; `access` decides which requests are allowed; `websocket_actions` turns
messages of a tab, which `tab_messages` describes, into requests; `live_turns` sends a turn's events
to the tabs that watch; `tab_hub` remembers what runs, so that tabs may come and go. What a browser
gets lies in `pages`: static files as they were written, and nothing from other hosts; only
`codemirror.js` and `markdown_it.js` are built, by `make assets`. Nothing here knows of models or
kernels, and no foreign text is ever made into HTML.
"""
