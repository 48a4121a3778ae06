"""Network namespaces of the test's own: one for each server, and one for the clients, in which this process is from then on."""
import ctypes, os, subprocess

CLONE_NEWNET = 0x4000_0000


class Refused(Exception):
    """This machine gives no such network."""


def ip(*words, within=None):
    command = ["ip", *(["-n", within] if within else []), *words]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        raise Refused(f"{' '.join(command)}: {done.stderr.strip()}")


class Namespaces:
    """Port 0 is that of the clients; servers have 1 to `count`. Those who derive from this say how ports are connected."""

    def __init__(self, count):
        if os.geteuid() != 0:
            raise Refused("network namespaces need root")
        self.count, self.mark, self.names = count, f"ce{os.getpid() % 100000}", []
        self.home = os.open("/proc/self/ns/net", os.O_RDONLY)
        self.library = ctypes.CDLL(None, use_errno=True)
        try:
            for port in range(count + 1):
                self.add(f"{self.mark}-{port}")
            self.connect()
        except OSError as error:
            self.close()
            raise Refused(f"/dev/net/tun: {error}") from error
        except Refused:
            self.close()
            raise
        self.enter(os.open(f"/run/netns/{self.names[0]}", os.O_RDONLY))

    def add(self, name):
        ip("netns", "add", name)
        self.names.append(name)
        ip("link", "set", "lo", "up", within=name)

    def connect(self):
        raise NotImplementedError

    def furnish(self, port, device, mtu):
        """Gives the device, which is in the namespace, its address."""
        name = self.names[port]
        ip("link", "set", device, "mtu", str(mtu), within=name)
        ip("address", "add", f"{self.address(port)}/24", "dev", device, within=name)
        ip("link", "set", device, "up", within=name)

    def enter(self, descriptor):
        if self.library.setns(descriptor, CLONE_NEWNET) != 0:
            raise Refused(f"setns: {os.strerror(ctypes.get_errno())}")

    @staticmethod
    def address(port):
        return f"10.77.0.{port or 100}"

    def within(self, port):
        """The words before a command that has to run there."""
        return ["ip", "netns", "exec", self.names[port]]

    def close(self):
        self.enter(self.home)
        for name in self.names:
            subprocess.run(["ip", "netns", "delete", name], capture_output=True)


class Bridge(Namespaces):
    """Ports on the kernel's own bridge, in a namespace beside them: the shortest way that there is on one machine."""

    def connect(self):
        hub = f"{self.mark}-hub"
        self.add(hub)
        ip("link", "add", "bridge", "type", "bridge", within=hub)
        ip("link", "set", "bridge", "up", within=hub)
        for port in range(self.count + 1):
            ip("link", "add", "net0", "netns", self.names[port], "type", "veth", "peer", "name", f"port{port}", "netns", hub)
            ip("link", "set", f"port{port}", "master", "bridge", "up", within=hub)
            self.furnish(port, "net0", 1500)
