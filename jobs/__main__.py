"""`python -m jobs VERB`: the command line `dmqr VERB`."""

from dmqr.command_line import entry_point, main

__all__ = ["entry_point", "main"]

if __name__ == "__main__":
    entry_point()
