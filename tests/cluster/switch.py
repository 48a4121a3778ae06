"""An Ethernet switch in user space between namespaces, which drops frames, or only long ones, from chosen ports to chosen ports."""
import fcntl, multiprocessing, os, select, struct

from namespaces import Namespaces, ip

TUNSETIFF, IFF_TAP, IFF_NO_PI = 0x400454CA, 0x0002, 0x1000
# Larger than what Ethernet has: fewer frames have to pass the switch.
MTU = 9000
# Largest packet that still passes a path with a smaller MTU than its servers believe: heartbeats, acknowledgments, logons; no data.
SHORT = 1400


def mac(port):
    return bytes([2, 0, 0, 0, 0xCE, port])


def forward(taps, told):
    """The switch, in a process of its own: by address of the sender, not learnt, so that nobody can pose as another port."""
    cuts, longest, ports = frozenset(), 0, {mac(port): port for port in range(len(taps))}
    by_fd = {tap: port for port, tap in enumerate(taps)}
    poller = select.epoll()
    for tap in taps:
        os.set_blocking(tap, False)
        poller.register(tap, select.EPOLLIN)
    poller.register(told.fileno(), select.EPOLLIN)
    while True:
        for fd, _ in poller.poll():
            if fd == told.fileno():
                try:
                    cuts, longest = told.recv()
                except EOFError:
                    return
                told.send(True)
                continue
            source = by_fd[fd]
            for _ in range(64):
                try:
                    frame = os.read(fd, 65536)
                except OSError:
                    break
                port = ports.get(frame[:6])
                # Broadcasts and multicasts go to all.
                targets = [port] if port is not None else range(len(taps)) if frame[0] & 1 else []
                for target in targets:
                    if target != source and ((source, target) not in cuts or len(frame) <= longest):
                        try:
                            os.write(taps[target], frame)
                        except OSError:
                            # Its queue is full, or it is down: as with any switch the frame is lost.
                            pass


class Switched(Namespaces):
    """Ports on such a switch."""

    process = None

    def connect(self):
        taps = []
        for port, name in enumerate(self.names):
            device = f"{self.mark}t{port}"
            tap = os.open("/dev/net/tun", os.O_RDWR)
            taps.append(tap)
            fcntl.ioctl(tap, TUNSETIFF, struct.pack("16sH22x", device.encode(), IFF_TAP | IFF_NO_PI))
            ip("link", "set", device, "netns", name)
            ip("link", "set", device, "address", mac(port).hex(":"), within=name)
            self.furnish(port, device, MTU)
        self.told, other = multiprocessing.Pipe()
        self.process = multiprocessing.get_context("fork").Process(target=forward, args=(taps, other), daemon=True)
        self.process.start()
        other.close()
        for tap in taps:
            os.close(tap)

    def cut(self, pairs, longest=0):
        """Drops frames of more than `longest` bytes from the first to the second port of each pair, and no others, from when this returns on."""
        self.told.send((frozenset(pairs), longest))
        self.told.recv()

    def close(self):
        if self.process:
            self.process.terminate()
            self.process.join()
        super().close()
