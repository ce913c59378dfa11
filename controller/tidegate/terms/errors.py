"""The errors every room may raise, one class per recovery."""


class TidegateError(Exception):
    """Base of every error Tidegate raises on purpose; its text is one sentence an operator can act on."""


class BadInputError(TidegateError):
    """Input the user must change; the command line answers exit code 2."""


class NotBuiltYetError(BadInputError):
    """A field or verb whose meaning is fixed but whose behaviour does not exist yet."""


class ServerUnreachableError(TidegateError):
    """A needed server cannot be reached; the command line answers exit code 3."""


class RefusedError(TidegateError):
    """The request was understood and refused, or failed; the command line answers exit code 1."""


class IllegalPlanError(TidegateError):
    """A decision cannot be turned into steps; always a bug in Tidegate."""
