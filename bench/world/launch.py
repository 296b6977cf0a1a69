"""Start one command, wait for it, and say what it took: `python launch.py SECONDS OUTPUT COMMAND…` prints JSON.

A process of its own, and a small one: Linux counts the memory of the process that forked into a child's peak.
"""

import json
import os
import signal
import subprocess
import sys
import time


def main() -> None:
    seconds, output, command = int(sys.argv[1]), sys.argv[2], sys.argv[3:]
    with open(output, "wb") as out, open(output + ".err", "wb") as err:
        began = time.time()
        child = subprocess.Popen(command, stdout=out, stderr=err, stdin=subprocess.DEVNULL, start_new_session=True)
        signal.signal(signal.SIGALRM, lambda *_: os.killpg(child.pid, signal.SIGKILL))
        signal.alarm(seconds)
        _, status, usage = os.wait4(child.pid, 0)
        ended = time.time()
        signal.alarm(0)
    code = os.waitstatus_to_exitcode(status)
    cpu, peak = usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024
    print(json.dumps({"code": code, "began": began, "ended": ended, "cpu_s": cpu, "peak_mib": peak}))


if __name__ == "__main__":
    main()
