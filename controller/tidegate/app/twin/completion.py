"""One completion between the engine and its client's connection."""

from tidegate.app.twin.connection import Connection
from tidegate.app.twin.openai import Ask, StreamPieces, whole_answer


class WholeCompletion:
    """Answered in one body when the last token is made."""

    __slots__ = ("_ask", "_connection", "_created_s", "_id", "_model")

    def __init__(self, ask: Ask, connection: Connection, *, answer_id: str, model: str, created_s: int) -> None:
        self._ask = ask
        self._connection = connection
        self._id = answer_id
        self._model = model
        self._created_s = created_s

    def on_token(self, count: int) -> None:
        """Take one token."""
        if count == self._ask.output_tokens:
            body = whole_answer(self._ask, answer_id=self._id, model=self._model, created_s=self._created_s)
            self._connection.answer(200, body)


class StreamedCompletion:
    """Answered token by token as server-sent events."""

    __slots__ = ("_connection", "_head", "_pieces", "_tokens", "_write")

    def __init__(
        self,
        ask: Ask,
        connection: Connection,
        *,
        answer_id: str,
        model: str,
        created_s: int,
        chunked: bool,
        early: bool,
    ) -> None:
        self._pieces = StreamPieces(ask, answer_id=answer_id, model=model, created_s=created_s, chunked=chunked)
        self._tokens = ask.output_tokens
        self._connection = connection
        self._write = connection.write
        self._head = connection.stream_head()
        if early:
            connection.write(self._head)
            self._head = b""

    def on_token(self, count: int) -> None:
        """Take one token."""
        pieces = self._pieces
        if 1 < count < self._tokens:
            self._write(pieces.token)
            return
        data = self._head + pieces.opening if count == 1 else b""
        if count < self._tokens:
            self._write(data + pieces.token)
            return
        self._write(data + pieces.last + pieces.closing)
        self._connection.end(200)
