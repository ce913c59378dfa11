"""`tidegate completion`: a completion script for the shell."""

import argparse
import sys

from tidegate.app.cli import main as cli

EXAMPLE = 'eval "$(tidegate completion bash)"'


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the verb's arguments."""
    parser.add_argument("shell", choices=("bash", "zsh", "tcsh"), help="which shell")


def run(args: argparse.Namespace) -> int:
    """Print the script and return 0."""
    import shtab  # noqa: PLC0415  (only this verb needs it)

    sys.stdout.write(shtab.complete(cli.build_parser(), shell=args.shell) + "\n")
    return cli.EXIT_DONE
