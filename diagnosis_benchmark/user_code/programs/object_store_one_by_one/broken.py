"""Fine-tune a price forecaster on windows kept as objects in a bucket (here: a bucket on the loopback)."""
import http.client
import io
import multiprocessing as mp
import socket
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset

ROUND_TRIP = 0.02
OBJECTS = 1120
WINDOW = 96


class Bucket(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    wbufsize = -1

    def do_GET(self):
        key = int(self.path.rsplit("/", 1)[1])
        buffer = io.BytesIO()
        np.save(buffer, np.random.default_rng(key).standard_normal((WINDOW, 8), dtype=np.float32).cumsum(0))
        time.sleep(ROUND_TRIP)
        self.send_response(200)
        self.send_header("Content-Length", str(buffer.tell()))
        self.end_headers()
        self.wfile.write(buffer.getvalue())

    def log_message(self, *args):
        pass


def serve(pipe):
    server = ThreadingHTTPServer(("127.0.0.1", 0), Bucket)
    pipe.send(server.server_address)
    server.serve_forever()


class BucketClient:
    def __init__(self, address):
        self.address = address
        self.connection = None

    def get(self, key):
        if self.connection is None:
            self.connection = http.client.HTTPConnection(*self.address)
            self.connection.connect()
            self.connection.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.connection.request("GET", f"/windows/{key}")
        body = self.connection.getresponse().read()
        return np.load(io.BytesIO(body))


class PriceWindows(Dataset):
    def __init__(self, address, keys):
        self.client = BucketClient(address)
        self.keys = keys

    def __len__(self):
        return len(self.keys)

    def __getitem__(self, index):
        window = self.client.get(self.keys[index])
        window = (window - window.mean(0)) / (window.std(0) + 1e-6)
        return torch.from_numpy(window[:-1]), torch.from_numpy(window[1:, 0])


class Forecaster(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.rnn = torch.nn.GRU(8, 64, batch_first=True)
        self.out = torch.nn.Linear(64, 1)

    def forward(self, x):
        return self.out(self.rnn(x)[0]).squeeze(-1)


def train(address):
    torch.manual_seed(1)
    torch.set_num_threads(1)
    loader = DataLoader(PriceWindows(address, list(range(OBJECTS))), batch_size=16, shuffle=True,
                        num_workers=2, prefetch_factor=4)
    model = Forecaster()
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    samples, start = 0, time.perf_counter()
    for step, (past, future) in enumerate(loader, 1):
        optimizer.zero_grad()
        loss = torch.nn.functional.mse_loss(model(past), future)
        loss.backward()
        optimizer.step()
        samples += len(past)
        if step % 10 == 0:
            print(f"step {step}/{len(loader)}  loss {loss.item():.4f}")
    return samples / (time.perf_counter() - start)


if __name__ == "__main__":
    here, there = mp.Pipe()
    bucket = mp.Process(target=serve, args=(there,), daemon=True)
    bucket.start()
    try:
        rate = train(here.recv())
    finally:
        bucket.terminate()
    print(f"throughput: {rate:.1f} samples/s")
