"""What can be said to the bot besides questions: by `/interpreter`, or by a mention."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import TYPE_CHECKING, Final, get_args

from interpreter_bot import errors, settings, values
from interpreter_bot.platforms.slack import (
    admitting,
    incoming,
    markdown,
    places,
    posts,
    sending,
    uploads,
)
from interpreter_bot.sessions import requests

if TYPE_CHECKING:
    from interpreter_bot.sessions import conversations

HELP: Final = """\
Mention me with a question, or send me a file in a direct message; I write Python, run it and show \
what came of it. Variables stay alive within a thread.

- `/py CODE` runs your own code in the channel's Python, without the model; `/py` alone opens an \
editor. In a thread: mention me with `py CODE`.
- `reset` begins anew (`reset files` deletes the files as well) · `stop` ends what runs
- `files` lists the files, `files NAME` sends one · `notebook` sends it all as a notebook
- `model` lists the models, `model NAME` takes another · `usage` · `limits`
- `approval never|plan|every` (admins): ask a person before the model's code runs

Say these to me in a thread, or after `/interpreter` for the channel's own Python. On a message, \
"Run this message" and "Ask about this message" do what they say. Edit your message and I answer \
anew."""

_NAMES: Final = frozenset(
    {
        *("approval", "files", "help", "limits", "model", "notebook", "py", "reset", "stop"),
        "usage",
    }
)
_WITH_ARGUMENT: Final = frozenset({"approval", "files", "model", "py", "reset"})
_NO_WORD: Final = re.compile(r"\s")
_MIB: Final = 1024 * 1024

Tell = Callable[[str], Awaitable[None]]


@dataclasses.dataclass(frozen=True, slots=True)
class Command:
    """One word and what follows it."""

    name: str
    argument: str = ""

    @property
    def is_for_mentions(self) -> bool:
        """Whether it is surely no question: "model" is, "model the data" is not."""
        if self.name == "py" or not self.argument:
            return True
        if self.name == "approval":
            return self.argument in get_args(requests.Approval)
        if self.name == "reset":
            return self.argument == "files"
        return self.name in ("files", "model") and not _NO_WORD.search(self.argument)


def parse(text: str) -> Command | None:
    """Read a command; None where a text is none."""
    name, _, argument = text.strip().partition(" ")
    first, _, rest = name.partition("\n")
    if rest:
        name, argument = first, f"{rest} {argument}"
    name = name.lower()
    if name not in _NAMES or (argument.strip() and name not in _WITH_ARGUMENT):
        return None
    if name == "py" and not argument.strip():
        return None
    return Command(name, argument.strip())


def code_of_mention(text: str, bot_user: str) -> str:
    """Give the code after `py` in a mention, as it was meant."""
    said = re.sub(rf"<@{re.escape(bot_user)}(?:\|[^>]*)?>[:,]?", "", text).strip()
    return incoming.code(said[2:].lstrip(" "))


class Commands:
    """Carries them out."""

    def __init__(
        self,
        held: conversations.Conversations,
        sender: sending.Sender,
        slack: settings.Slack,
    ) -> None:
        self._conversations = held
        self._sender = sender
        self._options = slack

    async def run(
        self,
        command: Command,
        key: values.SessionKey,
        place: places.Place,
        profile: admitting.Profile,
        *,
        tell: Tell | None = None,
    ) -> None:
        """Carry out a command and say what came of it.

        Args:
            tell: says it; in the place itself where there is none.
        """
        person = requests.Person(profile.user, profile.name)
        tell = tell or self._teller(place)
        try:
            said = await self._said(command, key, place, person, profile)
        except errors.BotError as error:
            said = markdown.defused(str(error))
        if said:
            await tell(said)

    def _teller(self, place: places.Place) -> Tell:
        async def tell(text: str) -> None:
            content = {"text": text[:300], "blocks": [{"type": "markdown", "text": text[:11_000]}]}
            await posts.post(self._sender, place, content, place.thread)

        return tell

    async def _said(
        self,
        command: Command,
        key: values.SessionKey,
        place: places.Place,
        person: requests.Person,
        profile: admitting.Profile,
    ) -> str:
        held = self._conversations
        match command.name:
            case "reset":
                await held.reset(key, files=command.argument == "files")
                kept = "deleted" if command.argument == "files" else "kept"
                return f"Started anew: variables are gone, files are {kept}."
            case "stop":
                return "Stopping." if await held.stop(key) else "Nothing is running here."
            case "files" if command.argument:
                return await self._send_file(key, place, command.argument)
            case "files":
                return files_told(await held.files(key))
            case "limits":
                return limits_told(held.limits)
            case "model" if command.argument:
                await held.choose_model(key, command.argument)
                return f"From now on I ask {markdown.defused(command.argument)}."
            case "model":
                return await self._models(key)
            case "notebook":
                return await self._send_notebook(key, place)
            case "usage":
                return await self._usage(key, person)
            case "approval":
                return await self._approval(command.argument, key, profile)
            case _:
                notice = held.model_notice
                return f"{HELP}\n\n_{markdown.defused(notice)}_" if notice else HELP

    async def _models(self, key: values.SessionKey) -> str:
        held = self._conversations
        current = await held.model(key)
        if not held.models:
            return held.model_notice or "No model is set up; `/py` runs your own code."
        lines = [
            f"- {'**' if title == current else ''}{markdown.defused(title)}"
            f"{'** (in use)' if title == current else ''}"
            for title in held.models
        ]
        return "\n".join(["Models:", *lines])

    async def _usage(self, key: values.SessionKey, person: requests.Person) -> str:
        usage = await self._conversations.usage(key, person)
        here, today = usage.session, usage.today
        money = "" if usage.allowed_money is None else f" of {usage.allowed_money:.2f}"
        tokens = "" if usage.allowed_tokens is None else f" of {usage.allowed_tokens:,}"
        return (
            f"This conversation: {here.input_tokens + here.output_tokens:,} tokens, "
            f"{here.money:.4f} of money, {usage.cpu_seconds:.1f} s of processor time.\n"
            f"You today: {today.input_tokens + today.output_tokens:,}{tokens} tokens, "
            f"{today.money:.4f}{money} of money."
        )

    async def _approval(
        self, argument: str, key: values.SessionKey, profile: admitting.Profile
    ) -> str:
        scope = values.Scope("slack", key.workspace, key.channel)
        if not argument:
            chosen = (await self._conversations.choices(scope)).get("approval")
            return f"Approval here: {chosen or self._options.approval}."
        if argument not in get_args(requests.Approval):
            raise errors.BotError("Approval is one of: never, plan, every.")
        if not profile.is_admin and not key.channel.startswith("D"):
            raise errors.BotError("Only admins may change that for a channel.")
        await self._conversations.choose(scope, "approval", argument)
        return f"Approval here: {argument}."

    async def _send_notebook(self, key: values.SessionKey, place: places.Place) -> str:
        data = await self._conversations.notebook(key)
        file = uploads.of_bytes("session.ipynb", data, "", is_image=False)
        return await self._send(place, file)

    async def _send_file(self, key: values.SessionKey, place: places.Place, name: str) -> str:
        spool = uploads.Spool()
        try:
            async with self._conversations.reading(key, name) as (_, chunks):
                await _copy(chunks, spool)
            spool.complete()
        finally:
            spool.close()
        return await self._send(place, uploads.Outgoing(name, spool.file))

    async def _send(self, place: places.Place, file: uploads.Outgoing) -> str:
        complaints = await uploads.Uploads(self._sender).send(place, place.thread, [file])
        return "\n".join(markdown.defused(complaint) for complaint in complaints)


async def _copy(chunks: AsyncIterator[bytes], spool: uploads.Spool) -> None:
    async for chunk in chunks:
        spool.write(chunk)


def files_told(files: tuple[values.FileInfo, ...]) -> str:
    """List files."""
    if not files:
        return "There are no files here."
    lines = [f"- `{info.name.replace('`', '')}` ({size(info.size_bytes)})" for info in files[:100]]
    more = [f"… and {len(files) - 100:,} more"] if len(files) > 100 else []
    return markdown.defused("\n".join([*lines, *more]))


def size(size_bytes: int) -> str:
    """Say a size for people."""
    if size_bytes < 1024:
        return f"{size_bytes} bytes"
    kib = size_bytes / 1024
    return f"{kib:,.1f} KiB" if kib < 1024 else f"{kib / 1024:,.1f} MiB"


def limits_told(limits: settings.Limits) -> str:
    """Say what code may use."""
    return (
        f"- {limits.execution_seconds:,.0f} s for one run, {limits.input_seconds:,.0f} s to answer "
        f"`input()`\n"
        f"- {limits.memory_bytes / _MIB:,.0f} MiB of memory, {limits.cpu_cores:g} cores, "
        f"{limits.processes} processes\n"
        f"- {limits.workspace_bytes / _MIB:,.0f} MiB and {limits.workspace_files:,} files in "
        f"`/mnt/data`\n"
        f"- {limits.upload_bytes / _MIB:,.0f} MiB for a file that you send\n"
        f"- {limits.displays} images and tables, {limits.output_bytes:,} bytes of print-out a run"
    )
