"""Slack as a platform: events become requests, replies become messages.

`startup` opens and closes it; `app` has bolt's listeners, one for each event, button and form.
`message_events` handles messages, `button_actions`, `command_views` and `home_tab` the rest;
`permissions` says who may use the bot; `requests_in_flight` runs requests. `replies` keeps the log
of a turn, which `turn_drawing` draws; `live_answers` shows that: `drafts` makes messages of it, and
`transport` posts, edits or, by `streams`, streams them; `message_posting` posts all others.
`unfinished_answers` finds what a bot that is gone left of an answer, and `missed_messages` what
people wrote meanwhile; `questions_to_people` asks people, `file_uploads` sends files, and `web_api`
alone calls Slack. `message_parsing`, `answer_contents`, `execution_results`, `turn_drawing`,
`drafts`, `markdown`, `blocks`, `home_and_modal_views` and `admin_views` are pure. What is shown at
all is decided in `rendering`.
"""
