"""Two learning rates for a defect classifier, trained side by side; the panels'
scans come from the plant's image store, a small TCP service on the loopback."""
import socket
import socketserver
import struct
import time
import zlib

import numpy as np
import torch
import torch.multiprocessing as mp
from torch import nn
from torch.utils.data import DataLoader, Dataset

N_PANELS = 900
BATCH = 12
EPOCHS = 3
SIDE = 48
ROUND_TRIP = 0.0028
ARMS = {0: 3e-3, 1: 3e-4}


class Store(socketserver.ThreadingTCPServer):
    allow_reuse_address = True
    daemon_threads = True


class Answer(socketserver.BaseRequestHandler):
    scans = {}

    def handle(self):
        self.request.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        while True:
            head = self.request.recv(4)
            if len(head) < 4:
                return
            (key,) = struct.unpack("!I", head)
            time.sleep(ROUND_TRIP)
            body = self.scans[key]
            self.request.sendall(struct.pack("!I", len(body)) + body)


def serve(port_box):
    rng = np.random.default_rng(5)
    for key in range(N_PANELS):
        base = rng.integers(0, 40, (SIDE, SIDE), dtype=np.uint8)
        base[: 4 + key % 7] += 60 * (key % 3)
        Answer.scans[key] = zlib.compress(base.tobytes(), 1)
    server = Store(("127.0.0.1", 0), Answer)
    port_box.put(server.server_address[1])
    server.serve_forever()


class Panels(Dataset):
    def __init__(self, port):
        self.port = port
        self.wire = None

    def __len__(self):
        return N_PANELS

    def _read(self, count):
        parts = bytearray()
        while len(parts) < count:
            parts += self.wire.recv(count - len(parts))
        return bytes(parts)

    def __getitem__(self, key):
        if self.wire is None:
            self.wire = socket.create_connection(("127.0.0.1", self.port))
            self.wire.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.wire.sendall(struct.pack("!I", key))
        (size,) = struct.unpack("!I", self._read(4))
        raw = zlib.decompress(self._read(size))
        scan = np.frombuffer(raw, np.uint8).reshape(1, SIDE, SIDE)
        return torch.from_numpy(scan.astype(np.float32) / 255.0), key % 3


def train(arm, port):
    torch.set_num_threads(1)
    torch.manual_seed(100 + arm)
    loader = DataLoader(Panels(port), batch_size=BATCH, shuffle=True, num_workers=4)
    net = nn.Sequential(
        nn.Conv2d(1, 12, 5, stride=2), nn.ReLU(), nn.Conv2d(12, 24, 3), nn.ReLU(),
        nn.AdaptiveAvgPool2d(4), nn.Flatten(), nn.Linear(384, 3),
    )
    opt = torch.optim.Adam(net.parameters(), lr=ARMS[arm])
    seen = step = 0
    begin = None
    for epoch in range(EPOCHS):
        for scans, kinds in loader:
            loss = nn.functional.cross_entropy(net(scans), kinds)
            opt.zero_grad()
            loss.backward()
            opt.step()
            step += 1
            if step == 5:
                begin = time.perf_counter()
            elif step > 5:
                seen += len(kinds)
    took = time.perf_counter() - begin
    return loss.item(), seen / took


if __name__ == "__main__":
    box = mp.get_context("fork").Queue()
    store = mp.get_context("fork").Process(target=serve, args=(box,), daemon=True)
    store.start()
    port = box.get()
    rival = mp.get_context("fork").Process(target=train, args=(1, port))
    rival.start()
    loss, rate = train(0, port)
    rival.join()
    store.terminate()
    print(f"arm 0 (lr {ARMS[0]}): last loss {loss:.4f}")
    print(f"throughput: {rate:.1f} samples/s")
