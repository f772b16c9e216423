"""Models that think, and servers that insist on getting it back: each as the real one does.

    async with openai_server.Server(script, mind=openai_minds.Gemini()) as server: …

A mind adds to what is streamed, and refuses, with the words of the real server, what comes without
it or with something else in its place. What it refused is in `server.refusals`, and is no fault.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any


class Mind:
    """Thinks nothing, and knows none of the fields that others think in.

    Attributes:
        fields: of a message of the assistant, which this server knows.
        call_fields: of a call.
        is_forgetful: it takes nothing back that it gave before, as after a change of keys.
        refuses_in_stream: the event that says so after the stream has begun; empty where a status
            does.
    """

    fields: frozenset[str] = frozenset()
    call_fields: frozenset[str] = frozenset()

    def __init__(self) -> None:
        self.is_forgetful = False
        self.refuses_in_stream = ""

    def deltas(self, model: str, number: int) -> Iterable[dict[str, Any]]:
        """Give deltas that come before the words of the `number`th reply."""
        return ()

    def signature(self, model: str, key: str, index: int) -> dict[str, Any]:
        """Give what a call is signed with."""
        return {}

    def item(self, model: str, number: int, index: int, sealed: bool) -> dict[str, Any] | None:
        """Give an item of reasoning that comes before the `index`th call, or before the words."""
        return None

    def issued(self, model: str, items: Sequence[Mapping[str, Any]]) -> None:
        """Hear of the items of a reply, in order."""

    def refusal(self, body: Mapping[str, Any]) -> tuple[int, dict[str, Any]] | None:
        """Say why a request is refused."""
        return None


class Gemini(Mind):
    """Signs the first call of each step, and wants to see the signature for ever after."""

    call_fields = frozenset({"extra_content"})
    skip = "skip_thought_signature_validator"

    def __init__(self) -> None:
        super().__init__()
        self._issued: dict[tuple[str, str], str] = {}

    def signature(self, model: str, key: str, index: int) -> dict[str, Any]:
        if index:
            return {}
        signature = self._issued[model, key] = f"Signed+{model}/{key}=="
        return {"extra_content": {"google": {"thought_signature": signature}}}

    def refusal(self, body: Mapping[str, Any]) -> tuple[int, dict[str, Any]] | None:
        for place, message in enumerate(body["messages"]):
            for index, call in enumerate(message.get("tool_calls") or ()):
                extra = call.get("extra_content", {}).get("google", {})
                given = extra.get("thought_signature")
                wanted = self._issued.get((body["model"], call["id"]))
                if given is None and not index:
                    return self._refused(
                        "Function call is missing a thought_signature in functionCall parts. This "
                        "is required for tools to work correctly, and missing thought_signature "
                        "may lead to degraded model performance. Additional data, function call "
                        f"`default_api:run_code` , position {place}."
                    )
                if given not in (None, self.skip) and (given != wanted or self.is_forgetful):
                    return self._refused("Corrupted thought signature.")
        return None

    def _refused(self, message: str) -> tuple[int, Any]:
        return 400, [{"error": {"code": 400, "message": message, "status": "INVALID_ARGUMENT"}}]


class DeepSeek(Mind):
    """Thinks in `reasoning_content`, and wants to see it with every message it called from."""

    fields = frozenset({"reasoning_content"})

    def __init__(self, thought: str = "Let me think about it.") -> None:
        super().__init__()
        self._thought = thought

    def deltas(self, model: str, number: int) -> Iterable[dict[str, Any]]:
        thought = f"{self._thought} ({model}, {number})"
        for at in range(0, len(thought), max(len(thought) // 3, 1)):
            yield {"reasoning_content": thought[at : at + max(len(thought) // 3, 1)]}

    def refusal(self, body: Mapping[str, Any]) -> tuple[int, dict[str, Any]] | None:
        for message in body["messages"]:
            thought = message.get("reasoning_content")
            if message.get("tool_calls") and not thought:
                words = (
                    "The `reasoning_content` in the thinking mode must be passed back to the API."
                )
                return 400, {"error": {"message": words, "type": "invalid_request_error"}}
            if thought and thought != " " and body["model"] not in thought:
                return 400, {"error": {"message": "This reasoning_content is of another model."}}
        return None


class OpenRouter(Mind):
    """Thinks in `reasoning` and, signed, in `reasoning_details`, in pieces."""

    fields = frozenset({"reasoning", "reasoning_details"})

    def deltas(self, model: str, number: int) -> Iterable[dict[str, Any]]:
        named = {"type": "reasoning.text", "index": 0, "format": "anthropic-claude-v1"}
        for piece in ("I ", "see."):
            yield {"reasoning": piece, "reasoning_details": [{**named, "text": piece}]}
        yield {"reasoning_details": [{**named, "signature": f"sig-{number}"}]}
        sealed = {"type": "reasoning.encrypted", "index": 1, "data": f"sealed-{number}"}
        yield {"reasoning_details": [sealed]}

    def refusal(self, body: Mapping[str, Any]) -> tuple[int, dict[str, Any]] | None:
        for message in body["messages"]:
            if not message.get("tool_calls"):
                continue
            details = message.get("reasoning_details", [{}])
            whole = message.get("reasoning") == "I see." == details[0].get("text")
            if not whole or "signature" not in details[0] or "data" not in details[-1]:
                words = "messages.1.content.0: Invalid `signature` in `thinking` block"
                return 400, {"error": {"message": words, "code": 400}}
        return None


class OpenAI(Mind):
    """Gives sealed items where they are asked for, and wants them back in their places."""

    def __init__(self, *, seals: bool = True) -> None:
        super().__init__()
        self._seals = seals
        self._groups: dict[str, list[list[tuple[str, str]]]] = {}

    def item(self, model: str, number: int, index: int, sealed: bool) -> dict[str, Any] | None:
        name = f"{model}_{number}_{index}"
        item: dict[str, Any] = {"type": "reasoning", "id": f"rs_{name}", "summary": []}
        return {**item, "encrypted_content": f"gAAA{name}=="} if sealed and self._seals else item

    def issued(self, model: str, items: Sequence[Mapping[str, Any]]) -> None:
        self._groups.setdefault(model, []).append(list(map(self._mark, items)))

    @staticmethod
    def _mark(item: Mapping[str, Any]) -> tuple[str, str]:
        name = item.get("encrypted_content") or item.get("call_id") or ""
        return str(item.get("type", "message")), str(name)

    def refusal(self, body: Mapping[str, Any]) -> tuple[int, dict[str, Any]] | None:
        if not self._seals and "include" in body:
            words = "Encrypted content is not supported with this model."
            return 400, {"error": {"message": words, "param": "include"}}
        sent = [self._mark(item) for item in body["input"]]
        own = {mark for group in self._groups.get(body["model"], ()) for mark in group}
        for item, mark in zip(body["input"], sent, strict=True):
            if mark[0] == "reasoning" and (mark not in own or self.is_forgetful):
                words = f"The encrypted content {mark[1]} could not be verified."
                return 400, {"error": {"message": words, "code": "invalid_encrypted_content"}}
            if item.get("type") == "reasoning" and not isinstance(item.get("summary"), list):
                return 400, {"error": {"message": "Missing required parameter: 'input[1].summary'"}}
        thought = [mark for mark in sent if mark[0] == "reasoning"]
        for group in self._groups.get(body["model"], ()):
            calls = [mark for mark in group if mark in sent and mark[0] == "function_call"]
            if not calls or not thought:
                continue
            whole = [mark for mark in group if mark[0] != "reasoning" or mark in thought]
            at = sent.index(whole[0]) if whole[0] in sent else -1
            if sent[at : at + len(whole)] != whole:
                words = (
                    f"Item 'rs_1' of type 'reasoning' was provided without its required following "
                    f"item: {whole} is not in {sent}"
                )
                return 400, {"error": {"message": words}}
        return None
