"""crowd.py — how busy this machine is: for tests that bound times."""
import os


def crowd():
    """How many threads want each processor, now or in the last minute, at least 1: all takes so many times as long."""
    with open("/proc/loadavg", encoding="ascii") as file:
        last, _, _, now, _ = file.read().split()
    return max(1.0, max(float(last), int(now.partition("/")[0])) / len(os.sched_getaffinity(0)))
