"""The command line: `meshwright VERB ...`. One module each; floors above hang their verbs on by entry points."""

from planner.cli.app import main

__all__ = ["main"]
