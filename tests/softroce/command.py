"""`python -m tests.softroce.command COMMAND...`: runs any command in one soft-RoCE guest, in this folder.

Owns nothing but the exit code: that of the command, or 1 where no guest can be run or it did not answer.
"""

import sys
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.softroce import guests, machine

SECONDS = 600.0


def main(command: list[str]) -> int:
    """Prints what the command printed."""
    if reason := machine.obstacle():
        print(reason, file=sys.stderr)
        return 1
    with TemporaryDirectory(prefix="nexuskv-softroce-") as job:
        ended = guests.run_alone(command, Path(job), SECONDS, guests.MEASURED)
    print(ended.output, end="")
    return 1 if ended.status is None else ended.status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
