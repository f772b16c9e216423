"""The web page as a platform: one small page, a websocket beneath it, and streams of files.

`serving` opens and closes it; `gates` decides who may ask at all; `listening` turns what a tab says
into requests, `replying` turns what a turn does into events, whose JSON is written in `events`
alone; `hubs` remembers what runs, so that tabs may come and go. What a browser gets lies in
`pages`: files as they are, with no build step and nothing from other hosts. Nothing here knows of
models or kernels, and no text of anybody's is ever made into HTML.
"""
