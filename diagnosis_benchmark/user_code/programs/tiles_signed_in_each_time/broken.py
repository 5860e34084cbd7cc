"""Estimate the height of trees from elevation tiles that a tile store hands out over the network."""

import multiprocessing
import socket
import socketserver
import time

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

SIDE = 48
SIGN_IN_SECONDS = 0.014
ANSWER_SECONDS = 0.002


class TileHandler(socketserver.StreamRequestHandler):
    """Stands for a store in another town: it lets a client in, then answers "GET number" line by line."""

    disable_nagle_algorithm = True

    def handle(self):
        time.sleep(SIGN_IN_SECONDS)
        self.wfile.write(b"READY\n")
        for line in self.rfile:
            time.sleep(ANSWER_SECONDS)
            tile = np.random.default_rng(int(line.split()[1])).gamma(2.0, 4.0, (SIDE, SIDE))
            self.wfile.write(tile.astype(np.float32).tobytes())


class TileServer(socketserver.ThreadingTCPServer):
    daemon_threads = True
    request_queue_size = 64


def serve(pipe):
    server = TileServer(("127.0.0.1", 0), TileHandler)
    pipe.send(server.server_address[1])
    server.serve_forever()


class TileStore:
    def __init__(self, port):
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=30)
        self.stream = self.socket.makefile("rwb")
        if self.stream.readline() != b"READY\n":
            raise ConnectionError("the tile store does not let us in")

    def get(self, number):
        self.stream.write(b"GET %d\n" % number)
        self.stream.flush()
        return np.frombuffer(self.stream.read(SIDE * SIDE * 4), dtype=np.float32).reshape(1, SIDE, SIDE)

    def close(self):
        self.stream.close()
        self.socket.close()


class RemoteTiles(Dataset):
    def __init__(self, port, count):
        self.port = port
        self.count = count

    def __len__(self):
        return self.count

    def __getitem__(self, number):
        store = TileStore(self.port)
        tile = torch.from_numpy(store.get(number).copy())
        store.close()
        return (tile - 8.0) / 6.0, tile.amax() / 10.0


def run(port, steps=90, batch_size=12):
    loader = DataLoader(
        RemoteTiles(port, steps * batch_size), batch_size=batch_size, shuffle=True, num_workers=2, prefetch_factor=4
    )
    net = nn.Sequential(
        nn.Conv2d(1, 24, 5, padding=2),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(24, 32, 3, padding=1),
        nn.ReLU(),
        nn.AdaptiveMaxPool2d(4),
        nn.Flatten(),
        nn.Linear(512, 1),
    )
    optimizer = torch.optim.Adam(net.parameters(), lr=1e-3)
    start = time.perf_counter()
    for step, (tiles, heights) in enumerate(loader):
        loss = nn.functional.l1_loss(net(tiles).squeeze(1), heights)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 30 == 0:
            print(f"[{step:3d}/{steps}] error {loss.item():.3f}")
    return steps * batch_size / (time.perf_counter() - start)


if __name__ == "__main__":
    torch.manual_seed(5)
    torch.set_num_threads(1)
    ours, theirs = multiprocessing.Pipe()
    server = multiprocessing.Process(target=serve, args=(theirs,), daemon=True)
    server.start()
    rate = run(ours.recv())
    server.terminate()
    server.join()
    print(f"throughput: {rate:.1f} samples/s")
