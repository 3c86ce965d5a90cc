"""Two hosts on this machine: network namespaces of Linux, joined by one cable, each with its own name. Needs root."""

import itertools
import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

ADDRESSES = ("10.213.77.1", "10.213.77.2")
_HOLD = 'mount --bind "$1" /etc/hosts && hostname "$2" && ip link set lo up && echo ready && exec sleep 1200'
_numbers = itertools.count()


def _run(*command: str) -> None:
    subprocess.run(command, check=True, capture_output=True)


@dataclass(frozen=True)
class Host:
    """A process that holds the namespaces of a host, and the end of the cable that is in them."""

    process: int
    cable: str

    def inside(self, *command: str) -> list[str]:
        """The command that runs this one on the host."""
        return ["nsenter", "-t", str(self.process), "-n", "-m", "-u", "--", *command]

    def cut(self) -> None:
        """Pull the cable out."""
        _run(*self.inside("ip", "link", "set", self.cable, "down"))


def possible() -> bool:
    """Whether hosts can be made here."""
    tools = all(map(shutil.which, ("unshare", "nsenter", "ip", "mount")))
    return tools and os.geteuid() == 0 and subprocess.run(["unshare", "-n", "-m", "-u", "true"]).returncode == 0


@contextmanager
def two_hosts(folder: Path, named: bool = True) -> Iterator[tuple[Host, Host]]:
    """host0 and host1, with ADDRESSES. named: whether each knows its own name by that address, not by 127.0.1.1."""
    text = "127.0.0.1 localhost\n"
    own = [(address if named else "127.0.1.1") for address in ADDRESSES]
    holders, ends = [], [f"tg{os.getpid()}{end}{next(_numbers)}"[-15:] for end in "ab"]
    try:
        for number, address in enumerate(own):
            file = folder / f"hosts{number}"
            file.write_text(f"{text}{address} host{number}\n{ADDRESSES[1 - number]} host{1 - number}\n")
            command = ["unshare", "-n", "-m", "-u", "sh", "-c", _HOLD, "sh", str(file), f"host{number}"]
            holders.append(subprocess.Popen(command, stdout=subprocess.PIPE, text=True))
            assert holders[-1].stdout.readline() == "ready\n"
        _run("ip", "link", "add", ends[0], "type", "veth", "peer", "name", ends[1])
        hosts = [Host(holder.pid, end) for holder, end in zip(holders, ends, strict=True)]
        for host, address in zip(hosts, ADDRESSES, strict=True):
            _run("ip", "link", "set", host.cable, "netns", str(host.process))
            _run(*host.inside("ip", "addr", "add", f"{address}/24", "dev", host.cable))
            _run(*host.inside("ip", "link", "set", host.cable, "up"))
        yield hosts[0], hosts[1]
    finally:
        subprocess.run(["ip", "link", "del", ends[0]], capture_output=True)  # where it is not on its host yet
        for holder in holders:  # with the last process in it a namespace goes, and its end of the cable
            holder.kill()
            holder.wait()
            holder.stdout.close()
