"""The commands of the shell: what they print to the operator, ask, and refuse."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from interpreter_bot import errors
from interpreter_bot.text import quantities

# `run`.
NOTHING_TO_RUN: Final = (
    "Nothing is set up to run. Set SLACK_BOT_TOKEN with SLACK_APP_TOKEN or SLACK_SIGNING_SECRET, "
    "or DISCORD_TOKEN, or leave the web page on."
)
BOT_STANDS_BY: Final = (
    "Another bot uses this database. This one stands by, and takes over when that one ends."
)
LOCK_LOST: Final = (
    "The database was out of reach, so another bot may have taken over. This one starts again."
)
UNEXPECTED: Final = "Unexpected error. The details are in the log."
PAGE_NAME: Final = "The web page"
LOGIN_PAGES_NAME: Final = "Logins at tools"

# `exec`.
NO_CODE: Final = "There is no code to run. See `interpreter-bot exec --help`."
STDIN_IS_CODE: Final = "Standard input is the code, so it cannot be a file too."

# `setup`.
NO_TERMINAL: Final = (
    "`interpreter-bot setup` asks questions, so it needs a terminal. Set OPENAI_API_KEY, "
    "SLACK_BOT_TOKEN, SLACK_APP_TOKEN or DISCORD_TOKEN in the environment instead."
)
MODEL_SET: Final = "The model is set by the environment or the configuration file.\n"
SLACK_SET: Final = "\nSlack is set by the environment or the configuration file.\n"
DISCORD_SET: Final = "\nDiscord is set by the environment or the configuration file.\n"
ASK_FOR_MODEL: Final = (
    "A model. Paste a key from OpenAI or Anthropic, or enter the address of a server.\n"
)
ASK_FOR_DISCORD: Final = (
    "\nDiscord. Open https://discord.com/developers/applications, choose New Application, Bot, "
    "Reset Token,\nand switch Message Content Intent on.\n"
)
HOW_TO_SKIP: Final = "To skip this, press Enter; what is already stored stays.\n"
TRYING: Final = "Trying it…\n"
KEY_PROMPT: Final = "Key (not shown): "
ADDRESS_PROMPT: Final = "Address (empty for the usual one): "
SLACK_BOT_TOKEN_PROMPT: Final = "Bot User OAuth Token, xoxb-… (not shown): "
SLACK_APP_TOKEN_PROMPT: Final = "App-level token with connections:write, xapp-… (not shown): "
DISCORD_TOKEN_PROMPT: Final = "Bot token (not shown): "
SLACK_PERSON_PROMPT: Final = (
    "Your member ID (in Slack: your picture, Profile, ⋮, Copy member ID), and the bot writes to "
    "you.\nOr press Enter: "
)
NO_CONTENT_INTENT: Final = (
    "Message Content Intent is off, so the bot reads only messages that mention it or reply to it. "
    "Switch it\non, on the Bot page of discord.com/developers.\n"
)
HELLO_SENT: Final = "It wrote to you.\n"

# `sessions`.
PYTHON_ENDED: Final = "An operator ended the Python of this conversation."
FILES_DELETED: Final = (
    "An operator deleted the files of this conversation in /mnt/data, its variables and its "
    "pictures. Messages stay."
)
NO_HOST_ANSWERS: Final = (
    "No Python host answers here, so only sessions on the disk are listed. Python that runs inside "
    "a bot's own process cannot be reached."
)
USED_BY_BOT: Final = "A bot is using it in its own process. Stop that bot first."
NOBODY_CONFIRMS: Final = "Nobody can confirm this here. If you are sure, add --yes."
NOT_FORGOTTEN: Final = "Nothing was deleted."
NO_PYTHON_TO_SAVE: Final = "It has no Python running. What was saved before is kept."
NOT_SAVED: Final = "It was not saved: it is in use, or nothing in it can be saved."
NO_PYTHON: Final = "It has no Python running."
SESSION_FORGOTTEN: Final = "Its Python, variables and files are deleted."
NOT_IN_FLEET: Final = "It is not on a machine of the fleet yet."
ALREADY_THERE: Final = "It is already there."
MOVED_ELSEWHERE: Final = "It was moved to another machine in the meantime."

# `skills` and `tools`.
NO_SKILLS: Final = "There are no skills: skills.directories is empty, or its directories are.\n"
NO_TOOL_SERVERS: Final = "There are no tool servers: mcp_servers is empty.\n"
OFFERED_BEFORE: Final = "This is what it offered last."
INSTRUCTIONS_CHANGED: Final = "  instructions  changed"

# `mcp`.
NO_MCP_SDK: Final = errors.missing_extra("MCP", "mcp")
NO_MCP_SDK_FOR_SERVERS: Final = errors.missing_extra("mcp_servers", "mcp")


def bad_setting(name: str, fault: str) -> str:
    return f"The setting {name} is wrong: {fault}."


def unreadable_settings_file(error: object) -> str:
    return f"The settings file cannot be read: {error}."


def unreadable_settings(error: object) -> str:
    return f"The settings cannot be read: {error}."


def platform_failed(platform: str, sentence: object) -> str:
    return f"{platform} failed: {sentence}"


def platform_failed_for_now(platform: str, sentence: object, wait_seconds: float) -> str:
    wait = quantities.duration(wait_seconds)
    return f"{platform} failed: {sentence} The bot tries again in {wait}."


def not_a_file(path: object) -> str:
    return f"{path} is not a file."


def unreadable(path: object) -> str:
    return f"{path} cannot be read."


def ask_for_slack(link: str, manifest: object) -> str:
    return (
        "\nSlack. Open this link, choose a workspace, and choose Create. (It carries the text of"
        f"\n{manifest}.)\n\n{link}\n\n"
        "Then choose Install to Workspace. The bot token is under OAuth & Permissions. The app "
        "token is\nunder Basic Information, App-Level Tokens: generate one with the scope "
        "connections:write.\n"
    )


def setup_done(*, has_changes: bool) -> str:
    summary = "Done." if has_changes else "Nothing was entered, so nothing has changed."
    return (
        f"\n{summary} Start the bot with `interpreter-bot run`, or check everything with "
        "`interpreter-bot doctor`.\n"
    )


def other_token(prefix: str) -> str:
    return f"That is a different token: this one has to begin with {prefix}."


def invitation(address: str) -> str:
    return f"To add the bot to a server, open {address}\n"


def discord_owner_prompt(name: str) -> str:
    return f"Once the bot is on a server, enter y, and it writes to you ({name}). Or press Enter: "


def found_server(name: str, address: str, models: Sequence[str]) -> str:
    return f"Found on this machine: {name} at {address} ({', '.join(models)}).\n"


def credentials_stored(item: str) -> str:
    return f"It works ({item}). Stored, encrypted.\n"


def try_again(reason: object) -> str:
    return f"{reason}\nTry again.\n"


def missing_scopes(scopes: Sequence[str], fix: str) -> str:
    return f"These scopes are missing: {', '.join(scopes)}. {fix}\n"


def bad_token(fault: str) -> str:
    return f"The token {fault}."


def several_sessions(beginning: str, names: str) -> str:
    return f"Several sessions begin with {beginning}: {names}."


def no_session(name: str) -> str:
    return f"There is no session {name}."


def confirm_forgetting(sessions: int) -> str:
    return (
        "Delete Python, variables and files in /mnt/data of "
        f"{quantities.count(sessions, 'session')}? [y/N] "
    )


def variables_saved(saved: int, lost: int) -> str:
    losses = f" {lost:,} cannot be saved." if lost else ""
    return f"{quantities.count(saved, 'variable')} saved.{losses}"


def python_ended(*, is_saved: bool) -> str:
    saved = "Variables that can be saved are saved." if is_saved else "No variables are saved."
    return f"Its Python is stopped. {saved}"


def session_moved(address: object) -> str:
    return f"It continues at {address}, with its files and variables."


def no_host(address: str, addresses: str) -> str:
    return f"There is no host at {address}. These answer: {addresses}."


def session_totals(sessions: int, memory_bytes: int, saved_bytes: int) -> str:
    return (
        f"{quantities.count(sessions, 'session')}, {quantities.size(memory_bytes)} of memory, "
        f"{quantities.size(saved_bytes)} saved.\n"
    )


def keys_rotated(installations: int, accounts: int, keys: int, key_location: str) -> str:
    return (
        f"Encrypted with the new key: {quantities.count(installations, 'Slack workspace')}, "
        f"{quantities.count(accounts, 'login')} of people and {quantities.count(keys, 'key')} that "
        "people entered. After the bot's next start, only backups need the older keys of "
        f"{key_location}.\n"
    )


def no_user(name: str) -> str:
    return f"There is no user {name}."


def name_skills(verb: str) -> str:
    argument_form = "NAME@DIGEST, as listed" if verb == "accept" else "NAME"
    return f"Name the skills: interpreter-bot skills {verb} {argument_form}."


def name_digest(name: str) -> str:
    return f"Name the version of {name} too: {name}@DIGEST, as listed."


def other_version(name: str, digest: str) -> str:
    return (
        f"{name} has changed since it was listed as {digest}. List it again, and read what has "
        "changed."
    )


def skill_accepted(name: str, digest: str) -> str:
    return f"{name} is on, as {digest}.\n"


def skill_refused(name: str) -> str:
    return f"{name} is off.\n"


def skill_author(author: str) -> str:
    return f"  by {author}"


def skill_modules(names: Iterable[str]) -> str:
    return f"    can be imported: {', '.join(names)}"


def changed_files(files: Sequence[str]) -> str:
    return f"    changed since it was accepted: {', '.join(files)}"


def name_server(verb: str) -> str:
    digest = "@DIGEST" if verb == "accept" else ""
    return (
        f"Name the server: interpreter-bot tools {verb} NAME{digest}. The list of its tools ends "
        "with the whole command."
    )


def no_tool_server(name: str) -> str:
    return f"There is no server {name!r} in mcp_servers."


def tools_accepted(count: int, server: str) -> str:
    return f"On: {quantities.count(count, 'tool')} of {server}.\n"


def tools_refused(server: str) -> str:
    return f"The tools of {server} are off.\n"


def accept_all(server: str, digest: str) -> str:
    return f"To use all of these: interpreter-bot tools accept {server}@{digest}"


def definition_left_out(sentence: str) -> str:
    return f"  left out: {sentence}"


def tool_warning(warning: str) -> str:
    return f"      beware: {warning}"


def name_client(command: str, verb: str) -> str:
    return f"Name the client: interpreter-bot {command} {verb} NAME."


def no_clients(command: str) -> str:
    return f"There are no clients. To add one: interpreter-bot {command} add NAME\n"


def client_token(name: str, token: str) -> str:
    return f"The token of {name}, which is shown only once:\n{token}\n"
