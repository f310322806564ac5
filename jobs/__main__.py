"""The command line: `dmqr VERB`, also as `python -m jobs VERB`.

Standard output has only what was asked for: a table and, as the last line of `run`, the run's folder. Exit codes: 0 done,
1 failed or stopped (the same command goes on), 2 refused (config, input or cluster), 130 / 143 interrupted.
"""

from __future__ import annotations

import signal
import sys
import tempfile
import traceback
from collections.abc import Sequence

from cluster import UnavailableError
from jobs import verbs
from jobs.command_line import parser
from jobs.refusal import REFUSALS, cause, say, system


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one verb; returns the exit code."""
    if hasattr(sys.stdout, "reconfigure"):  # a terminal that cannot show a letter shows another
        sys.stdout.reconfigure(errors="replace")
    options = parser().parse_args(arguments)
    function = verbs.try_ if options.verb == "try" else getattr(verbs, options.verb)
    try:
        return int(function(options))
    except REFUSALS as error:
        return say(options.verb, error, 2)
    except KeyboardInterrupt:
        return say(options.verb, "interrupted; start it again", 130)
    except SystemExit as stop:  # Ray answers SIGTERM with it while it starts
        return say(options.verb, "interrupted; start it again", 143) if stop.code == signal.SIGTERM else 1
    except BrokenPipeError:  # whoever read the table has seen enough
        sys.stderr.close()
        return 0
    except Exception as error:
        return say(options.verb, _failure(error), 1)


def _failure(error: Exception) -> str:
    """What the system refused, or a bug: one line for the person, the trace where it can be found."""
    if isinstance(error, UnavailableError):
        return f"{system(error)}: the same command"
    if isinstance(error, OSError) and error.strerror:
        return system(error)
    with tempfile.NamedTemporaryFile("w", prefix="dmqr-", suffix=".log", delete=False) as log:
        traceback.print_exception(error, file=log)
    return f"{cause(error)}; report it with the details in {log.name}"


if __name__ == "__main__":
    sys.exit(main())
