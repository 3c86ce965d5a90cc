"""One process of a team that computes nothing: a program for tests of what breaks.

    python team_member.py ADDRESS PROCESSES PROCESS PATIENCE FACTS DEED

FACTS: JSON. DEED: ``wait`` for calls until the end, ``die`` or ``sleep`` once all have met, or ``lead``, which makes a
call a tenth of a second and ends after twenty. An EngineError is printed as JSON, with exit code 3.
"""

import json
import os
import sys
import time

from tritgold.errors import EngineError
from tritgold_xla.processes.joining import join
from tritgold_xla.processes.seat import Seat


def main(address: str, processes: str, process: str, patience: str, facts: str, deed: str) -> int:
    """The exit code."""
    try:
        team = join(Seat(address, int(processes), int(process), float(patience)), json.loads(facts))
        print("met", flush=True)
        if deed == "die":
            os._exit(9)
        if deed == "hang":  # waits for what does not come, as a collective does
            team.wait(lambda: time.sleep(60))
        if deed == "lead":
            for number in range(20):
                team.tell({"number": number})
                team.wait(lambda: time.sleep(0.1))
            team.end()
            return 0
        while team.told() is not None:
            pass
    except EngineError as error:
        print(json.dumps({"kind": error.kind, "thing": error.thing, "got": error.got}), flush=True)
        return 3
    return 0


if __name__ == "__main__":
    code = main(*sys.argv[1:])
    sys.stdout.flush()
    os._exit(code)
