"""Slack as a platform: events become requests, answers become messages.

`startup` opens and closes it; `app` has bolt's listeners, one for each event, button and form.
`message_events` handles messages, `button_actions`, `command_views` and `home_tab` the rest;
`permissions` says who may use the bot; `chat.in_flight` runs requests, each with an answer of
`chat`, whose messages `transport` posts, edits or, by `streams`, streams; `message_posting` posts
all others. `missed_messages` finds what people wrote while no bot ran; `file_uploads` sends files,
and `web_api` alone calls Slack. `message_parsing`, `markdown`, `blocks`, `home_and_modal_views` and
`admin_views` are pure. `rendering` decides which outputs are shown.
"""
