"""Entry point: parse, import one verb, map its errors to exit codes."""

import argparse
import importlib
import importlib.metadata
import os
import sys
from collections.abc import Sequence

from tidegate.app.cli.parsers import Formatter, Parser, add_action, epilog
from tidegate.app.cli.verbs import NOT_BUILT, VERBS
from tidegate.terms.errors import BadInputError, NotBuiltYetError, ServerUnreachableError, TidegateError

EXIT_DONE = 0
EXIT_REFUSED = 1
EXIT_BAD_INPUT = 2
EXIT_UNREACHABLE = 3


def build_parser(only: str | None = None) -> Parser:
    """Return the parser; only the verb named (all when None) gets its arguments, which is what keeps `--help` fast."""
    parser = Parser(
        prog="tidegate",
        description="Scale LLM inference fleets ahead of the load, under SLOs.",
        epilog=epilog("tidegate check -f policy.yaml --prometheus http://127.0.0.1:9090"),
        formatter_class=Formatter,
    )
    parser.add_argument("--version", action="version", version=f"tidegate {importlib.metadata.version('tidegate')}")
    verbs = parser.add_subparsers(dest="verb", metavar="VERB", required=True)
    for verb in VERBS:
        sub = add_action(verbs, verb.name, verb.summary)
        if only in (None, verb.name):
            module = importlib.import_module(verb.module)
            module.add_arguments(sub)
            sub.epilog = epilog(module.EXAMPLE)
            sub.set_defaults(run=module.run)
    for name, summary in NOT_BUILT:
        sub = verbs.add_parser(name, help=f"{summary} (not built yet)", description=f"{summary} (not built yet)")
        sub.add_argument("rest", nargs=argparse.REMAINDER, help=argparse.SUPPRESS)
        sub.set_defaults(run=_refuse_not_built)
    return parser


def _refuse_not_built(args: argparse.Namespace) -> int:
    msg = f"tidegate {args.verb}: not built yet; the README's status table says what is"
    raise NotBuiltYetError(msg)


def main(argv: Sequence[str] | None = None) -> int:
    """Run one verb and return the exit code; errors raised on purpose become one line on stderr."""
    words = list(sys.argv[1:] if argv is None else argv)
    named = next((w for w in words if not w.startswith("-")), "")
    try:
        args = build_parser(only=named).parse_args(words)
        return int(args.run(args))
    except BadInputError as exc:
        return _fail(exc, EXIT_BAD_INPUT)
    except ServerUnreachableError as exc:
        return _fail(exc, EXIT_UNREACHABLE)
    except TidegateError as exc:
        return _fail(exc, EXIT_REFUSED)
    except BrokenPipeError:
        # The reader of our output went away (`tidegate … | head`): not an error worth a trace.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return EXIT_REFUSED
    except KeyboardInterrupt:
        return 130


def _fail(exc: Exception, code: int) -> int:
    sys.stderr.write(f"tidegate: {exc}\n")
    return code
