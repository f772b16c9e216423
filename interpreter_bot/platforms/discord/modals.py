"""Windows in which people write more than a line."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Final, TypeAlias

import discord

Submitted: TypeAlias = Callable[
    [discord.Interaction[Any], str, tuple[discord.Attachment, ...]], Awaitable[None]
]
"""Takes what somebody sent off: their words, their files."""
Failed: TypeAlias = Callable[[discord.Interaction[Any], Exception], Awaitable[None]]

MOST_CHARACTERS: Final = 4000
"""That a window takes."""
_MOST_FILES: Final = 10
_OPEN_SECONDS: Final = 30 * 60.0


class Window(discord.ui.Modal):
    """A paragraph and, where they are wanted, files."""

    def __init__(
        self,
        title: str,
        label: str,
        submitted: Submitted,
        failed: Failed,
        *,
        placeholder: str = "",
        default: str = "",
        is_paragraph: bool = True,
        is_required: bool = True,
        takes_files: bool = False,
    ) -> None:
        super().__init__(title=title[:45], timeout=_OPEN_SECONDS)
        self._submitted = submitted
        self._failed = failed
        style = discord.TextStyle.paragraph if is_paragraph else discord.TextStyle.short
        self._text: discord.ui.TextInput[Any] = discord.ui.TextInput(
            custom_id="text",
            style=style,
            placeholder=placeholder or None,
            default=default or None,
            required=is_required,
            max_length=MOST_CHARACTERS,
        )
        self.add_item(discord.ui.Label(text=label[:45], component=self._text))
        self._files: discord.ui.FileUpload[Any] | None = None
        if takes_files:
            self._files = discord.ui.FileUpload(
                custom_id="files", required=False, min_values=0, max_values=_MOST_FILES
            )
            self.add_item(discord.ui.Label(text="Files for /mnt/data", component=self._files))

    async def on_submit(self, interaction: discord.Interaction[Any], /) -> None:
        """Hand over what was written."""
        files = tuple(self._files.values) if self._files is not None else ()
        await self._submitted(interaction, self._text.value, files)

    async def on_error(  # type: ignore[override]
        self, interaction: discord.Interaction[Any], error: Exception, /
    ) -> None:
        """Say what went wrong."""
        await self._failed(interaction, error)
