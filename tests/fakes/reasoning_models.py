"""How models send their reasoning, and how their servers want it back: each as the real one does.

    async with openai_server.Server(script, reasoning=reasoning_models.Gemini()) as server: …

A model adds its reasoning to the stream. A request without that reasoning, or with another one, is
refused with the message of the real server; refusals are in `server.refusals`, and are no fault.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any


class ReasoningModel:
    """A model without reasoning, whose server knows no fields for it.

    Attributes:
        fields: fields of reasoning that the server accepts in a message of the assistant.
        call_fields: the same, in a call.
        is_forgetful: the server refuses all earlier reasoning, as after a change of its keys.
        refuses_in_stream: the event by which the server refuses after the stream has begun; empty
            if it refuses by a status.
    """

    fields: frozenset[str] = frozenset()
    call_fields: frozenset[str] = frozenset()

    def __init__(self) -> None:
        self.is_forgetful = False
        self.refuses_in_stream = ""

    def deltas(self, model: str, number: int) -> Iterable[dict[str, Any]]:
        """Return deltas that come before the text of the `number`th reply."""
        return ()

    def signature(self, model: str, key: str, index: int) -> dict[str, Any]:
        """Return the fields by which a call is signed."""
        return {}

    def item(self, model: str, number: int, index: int, is_sealed: bool) -> dict[str, Any] | None:
        """Return a reasoning item that comes before the `index`th call, or before the text (0)."""
        return None

    def record_reply(self, model: str, items: Sequence[Mapping[str, Any]]) -> None:
        """Remember the items of a reply, in order."""

    def refusal(self, body: Mapping[str, Any]) -> tuple[int, dict[str, Any]] | None:
        """Return the status and body by which a request is refused, or None."""
        return None


class Gemini(ReasoningModel):
    """Signs the first call of each step; every later request needs the signature."""

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
        for position, message in enumerate(body["messages"]):
            for index, call in enumerate(message.get("tool_calls") or ()):
                extra = call.get("extra_content", {}).get("google", {})
                signature = extra.get("thought_signature")
                expected = self._issued.get((body["model"], call["id"]))
                if signature is None and not index:
                    return self._error(
                        "Function call is missing a thought_signature in functionCall parts. This "
                        "is required for tools to work correctly, and missing thought_signature "
                        "may lead to degraded model performance. Additional data, function call "
                        f"`default_api:run_code` , position {position}."
                    )
                if signature not in (None, self.skip) and (
                    signature != expected or self.is_forgetful
                ):
                    return self._error("Corrupted thought signature.")
        return None

    def _error(self, message: str) -> tuple[int, Any]:
        return 400, [{"error": {"code": 400, "message": message, "status": "INVALID_ARGUMENT"}}]


class DeepSeek(ReasoningModel):
    """Sends `reasoning_content`, and needs it back in every message with calls."""

    fields = frozenset({"reasoning_content"})

    def __init__(self, thought: str = "Let me think about it.") -> None:
        super().__init__()
        self._thought = thought

    def deltas(self, model: str, number: int) -> Iterable[dict[str, Any]]:
        thought = f"{self._thought} ({model}, {number})"
        for start in range(0, len(thought), max(len(thought) // 3, 1)):
            yield {"reasoning_content": thought[start : start + max(len(thought) // 3, 1)]}

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


class OpenRouter(ReasoningModel):
    """Sends `reasoning` and, signed, `reasoning_details`, in pieces."""

    fields = frozenset({"reasoning", "reasoning_details"})

    def deltas(self, model: str, number: int) -> Iterable[dict[str, Any]]:
        detail = {"type": "reasoning.text", "index": 0, "format": "anthropic-claude-v1"}
        for piece in ("I ", "see."):
            yield {"reasoning": piece, "reasoning_details": [{**detail, "text": piece}]}
        yield {"reasoning_details": [{**detail, "signature": f"sig-{number}"}]}
        sealed = {"type": "reasoning.encrypted", "index": 1, "data": f"sealed-{number}"}
        yield {"reasoning_details": [sealed]}

    def refusal(self, body: Mapping[str, Any]) -> tuple[int, dict[str, Any]] | None:
        for message in body["messages"]:
            if not message.get("tool_calls"):
                continue
            details = message.get("reasoning_details", [{}])
            is_complete = message.get("reasoning") == "I see." == details[0].get("text")
            if not is_complete or "signature" not in details[0] or "data" not in details[-1]:
                words = "messages.1.content.0: Invalid `signature` in `thinking` block"
                return 400, {"error": {"message": words, "code": 400}}
        return None


class OpenAI(ReasoningModel):
    """Sends encrypted items if a request includes them, and needs them back in their places."""

    def __init__(self, *, seals: bool = True) -> None:
        super().__init__()
        self._seals = seals
        self._groups: dict[str, list[list[tuple[str, str]]]] = {}

    def item(self, model: str, number: int, index: int, is_sealed: bool) -> dict[str, Any] | None:
        name = f"{model}_{number}_{index}"
        item: dict[str, Any] = {"type": "reasoning", "id": f"rs_{name}", "summary": []}
        return {**item, "encrypted_content": f"gAAA{name}=="} if is_sealed and self._seals else item

    def record_reply(self, model: str, items: Sequence[Mapping[str, Any]]) -> None:
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
        known_marks = {mark for group in self._groups.get(body["model"], ()) for mark in group}
        for item, mark in zip(body["input"], sent, strict=True):
            if mark[0] == "reasoning" and (mark not in known_marks or self.is_forgetful):
                words = f"The encrypted content {mark[1]} could not be verified."
                return 400, {"error": {"message": words, "code": "invalid_encrypted_content"}}
            if item.get("type") == "reasoning" and not isinstance(item.get("summary"), list):
                return 400, {"error": {"message": "Missing required parameter: 'input[1].summary'"}}
        reasoning_marks = [mark for mark in sent if mark[0] == "reasoning"]
        for group in self._groups.get(body["model"], ()):
            calls = [mark for mark in group if mark in sent and mark[0] == "function_call"]
            if not calls or not reasoning_marks:
                continue
            expected = [mark for mark in group if mark[0] != "reasoning" or mark in reasoning_marks]
            start = sent.index(expected[0]) if expected[0] in sent else -1
            if sent[start : start + len(expected)] != expected:
                words = (
                    f"Item 'rs_1' of type 'reasoning' was provided without its required following "
                    f"item: {expected} is not in {sent}"
                )
                return 400, {"error": {"message": words}}
        return None
