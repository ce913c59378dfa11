"""The OpenAI-shaped edge: request bodies in, answer bodies out. No sockets, no time.

Tokens: one word, split at white space, is one token, in prompts and in answers; a prompt given as a list of token ids
has as many tokens as ids. No chat template is added. An answer has exactly `max_tokens` tokens (`max_completion_tokens`
wins over it): `stop`, tools and sampling change nothing, so its finish reason is always "length"; `n` must be 1.
"""

import json
from dataclasses import dataclass

SERVER = "tidegate-engine-twin"
WORD = "tide "
COMPLETION_DEFAULT_TOKENS = 16  # the API's own default for /v1/completions


class ApiError(Exception):
    """An answer other than 200; `kind` is the `type` field of the body, spelled as vLLM does."""

    def __init__(self, status: int, kind: str, message: str, param: str | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.kind = kind
        self.param = param

    def body(self) -> bytes:
        """Return the OpenAI-shaped error body."""
        error = {"message": str(self), "type": self.kind, "param": self.param, "code": self.status}
        return json.dumps({"error": error}).encode()


@dataclass(frozen=True, slots=True, kw_only=True)
class Ask:
    """One completion request, understood."""

    chat: bool
    prompt_tokens: int
    output_tokens: int
    stream: bool
    include_usage: bool


def bad_request(message: str, param: str | None = None) -> ApiError:
    """Return a 400."""
    return ApiError(400, "BadRequestError", message, param)


def unavailable(message: str) -> ApiError:
    """Return a 503."""
    return ApiError(503, "ServiceUnavailableError", message)


def read_ask(body: bytes, *, chat: bool, model: str, context_tokens: int, default_output_tokens: int) -> Ask:
    """Return the request a body asks for.

    Args:
        body: The HTTP body.
        chat: Whether it came to /v1/chat/completions.
        model: The one model served.
        context_tokens: Most prompt and output tokens together.
        default_output_tokens: Answer length of a chat that names none; cut to what the context leaves.

    Raises:
        ApiError: 400 for a body that cannot be used, 404 for another model.
    """
    try:
        given = json.loads(body)
    except (ValueError, RecursionError) as exc:
        message = f"the body is not JSON: {exc}"
        raise bad_request(message) from exc
    if not isinstance(given, dict):
        message = "the body must be a JSON object"
        raise bad_request(message)
    asked_model = given.get("model")
    if asked_model != model:
        if not isinstance(asked_model, str):
            message = "field required: model, the name of a served model"
            raise bad_request(message, "model")
        message = f"The model `{asked_model[:200]}` does not exist."
        raise ApiError(404, "NotFoundError", message, "model")
    if given.get("n") not in (None, 1):
        message = "n must be 1 on an engine twin"
        raise bad_request(message, "n")
    prompt_tokens = _chat_tokens(given.get("messages")) if chat else _prompt_tokens(given.get("prompt"))
    default = default_output_tokens if chat else COMPLETION_DEFAULT_TOKENS
    output_tokens = _output_tokens(given, min(default, max(1, context_tokens - prompt_tokens)))
    if prompt_tokens + output_tokens > context_tokens:
        message = (
            f"This model's maximum context length is {context_tokens} tokens. However, you requested "
            f"{prompt_tokens + output_tokens} tokens ({prompt_tokens} in the prompt, {output_tokens} for the answer)."
        )
        raise bad_request(message, "messages" if chat else "prompt")
    stream = given.get("stream")
    if stream not in (None, True, False):
        message = "stream must be true or false"
        raise bad_request(message, "stream")
    options = given.get("stream_options")
    return Ask(
        chat=chat,
        prompt_tokens=prompt_tokens,
        output_tokens=output_tokens,
        stream=bool(stream),
        include_usage=isinstance(options, dict) and options.get("include_usage") is True,
    )


def _output_tokens(given: dict[str, object], default: int) -> int:
    for field in ("max_completion_tokens", "max_tokens"):
        value = given.get(field)
        if value is None:
            continue
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            message = f"{field} must be a whole number >= 1"
            raise bad_request(message, field)
        return value
    return default


def _words(text: str) -> int:
    return len(text.split())


def _chat_tokens(messages: object) -> int:
    if not isinstance(messages, list) or not messages:
        message = "field required: messages, a list of at least one message"
        raise bad_request(message, "messages")
    count = 0
    for turn in messages:
        content = turn.get("content") if isinstance(turn, dict) else None
        if not isinstance(turn, dict) or not isinstance(turn.get("role"), str):
            message = "each message must be an object with role and content"
            raise bad_request(message, "messages")
        if isinstance(content, str):
            count += _words(content)
        elif isinstance(content, list):
            texts = (part.get("text") for part in content if isinstance(part, dict))
            count += sum(_words(text) for text in texts if isinstance(text, str))
        elif content is not None:
            message = "content must be a text or a list of parts"
            raise bad_request(message, "messages")
    return max(1, count)


def _prompt_tokens(prompt: object) -> int:
    if isinstance(prompt, list) and len(prompt) == 1 and isinstance(prompt[0], str | list):
        prompt = prompt[0]
    if isinstance(prompt, str):
        return max(1, _words(prompt))
    if isinstance(prompt, list) and prompt and all(type(token) is int for token in prompt):
        return len(prompt)
    message = "field required: prompt, one text or one list of token ids"
    raise bad_request(message, "prompt")


def _usage(ask: Ask) -> dict[str, int]:
    total = ask.prompt_tokens + ask.output_tokens
    return {"prompt_tokens": ask.prompt_tokens, "total_tokens": total, "completion_tokens": ask.output_tokens}


def whole_answer(ask: Ask, *, answer_id: str, model: str, created_s: int) -> bytes:
    """Return the body of an answer that is not streamed."""
    text = (WORD * ask.output_tokens).rstrip()
    choice: dict[str, object] = {"index": 0, "logprobs": None, "finish_reason": "length"}
    if ask.chat:
        choice["message"] = {"role": "assistant", "content": text}
    else:
        choice["text"] = text
    return json.dumps(
        {
            "id": answer_id,
            "object": "chat.completion" if ask.chat else "text_completion",
            "created": created_s,
            "model": model,
            "choices": [choice],
            "usage": _usage(ask),
        }
    ).encode()


class StreamPieces:
    """The server-sent events of one streamed answer, rendered once: every token but the last is the same bytes.

    `opening` goes before the first token, `token` is one token, `last` the last one with its finish reason. `closing`
    is the usage, if asked for, and the end mark. With `chunked`, each event is one HTTP/1.1 chunk and `closing` ends
    the body.
    """

    __slots__ = ("closing", "last", "opening", "token")

    def __init__(self, ask: Ask, *, answer_id: str, model: str, created_s: int, chunked: bool) -> None:
        kind = "chat.completion.chunk" if ask.chat else "text_completion"
        head = {"id": answer_id, "object": kind, "created": created_s, "model": model}

        def event(choices: list[dict[str, object]], **more: object) -> bytes:
            data = json.dumps({**head, "choices": choices, **more}, separators=(",", ":"))
            return _framed(f"data: {data}\n\n".encode(), chunked=chunked)

        def choice(text: str, reason: str | None) -> list[dict[str, object]]:
            said: dict[str, object] = {"delta": {"content": text}} if ask.chat else {"text": text}
            return [{"index": 0, **said, "logprobs": None, "finish_reason": reason}]

        role: list[dict[str, object]] = [
            {"index": 0, "delta": {"role": "assistant", "content": ""}, "logprobs": None, "finish_reason": None}
        ]
        self.opening = event(role) if ask.chat else b""
        self.token = event(choice(WORD, None))
        self.last = event(choice(WORD.rstrip(), "length"))
        usage = event([], usage=_usage(ask)) if ask.include_usage else b""
        self.closing = usage + _framed(b"data: [DONE]\n\n", chunked=chunked) + (b"0\r\n\r\n" if chunked else b"")


def _framed(event: bytes, *, chunked: bool) -> bytes:
    return b"%x\r\n%b\r\n" % (len(event), event) if chunked else event


def model_list(model: str, *, created_s: int, context_tokens: int) -> bytes:
    """Return the body of /v1/models."""
    card = {"id": model, "object": "model", "created": created_s, "owned_by": SERVER, "root": model}
    return json.dumps({"object": "list", "data": [{**card, "max_model_len": context_tokens}]}).encode()
