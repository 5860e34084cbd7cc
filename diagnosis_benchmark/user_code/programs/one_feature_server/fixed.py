"""Node classification on a graph whose features lie in a store of its own; workers sample and pull."""
import http.client
import multiprocessing as mp
import time
from http.server import BaseHTTPRequestHandler, HTTPServer

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset, get_worker_info

NODES, WIDTH, CLASSES, FANOUT = 20_000, 48, 10, 6
GATHER_SECONDS = 0.04  # rows lie scattered on the disk of the store


def make_features():
    return np.random.default_rng(5).standard_normal((NODES, WIDTH), dtype=np.float32)


class StoreHandler(BaseHTTPRequestHandler):
    features = None

    def do_POST(self):
        nodes = np.frombuffer(self.rfile.read(int(self.headers["Content-Length"])), np.int64)
        time.sleep(GATHER_SECONDS)
        rows = self.features[nodes].tobytes()
        self.send_response(200)
        self.send_header("Content-Length", str(len(rows)))
        self.end_headers()
        self.wfile.write(rows)

    def log_message(self, *args):
        pass


def serve(port):
    StoreHandler.features = make_features()
    server = HTTPServer(("127.0.0.1", 0), StoreHandler)
    server.socket.listen(64)
    port.send(server.server_port)
    server.serve_forever()


def start_store():
    receiver, sender = mp.Pipe(duplex=False)
    process = mp.Process(target=serve, args=(sender,), daemon=True)
    process.start()
    return process, receiver.recv()


class NeighbourBatches(Dataset):
    """Each item is the seeds, their neighbours' features and labels of one batch."""

    def __init__(self, ports, batches, seeds_per_batch):
        rng = np.random.default_rng(0)
        self.neighbours = rng.integers(0, NODES, (NODES, 24))
        self.labels = rng.integers(0, CLASSES, NODES)
        self.ports = ports
        self.seeds = rng.integers(0, NODES, (batches, seeds_per_batch))

    def __len__(self):
        return len(self.seeds)

    def pull(self, nodes):
        worker = get_worker_info().id
        store = http.client.HTTPConnection("127.0.0.1", self.ports[worker % len(self.ports)])
        store.request("POST", "/rows", body=nodes.astype(np.int64).tobytes())
        rows = store.getresponse().read()
        store.close()
        return torch.frombuffer(bytearray(rows), dtype=torch.float32).view(*nodes.shape, WIDTH)

    def __getitem__(self, i):
        rng = np.random.default_rng(i)
        seeds = self.seeds[i]
        columns = rng.integers(0, 24, (len(seeds), FANOUT))
        nodes = np.concatenate([seeds[:, None], np.take_along_axis(self.neighbours[seeds], columns, 1)], 1)
        return self.pull(nodes), torch.from_numpy(self.labels[seeds])


class SageNet(nn.Module):
    def __init__(self, hidden=256):
        super().__init__()
        self.own, self.around = nn.Linear(WIDTH, hidden), nn.Linear(WIDTH, hidden)
        self.head = nn.Sequential(nn.ReLU(), nn.Linear(hidden, hidden), nn.ReLU(), nn.Linear(hidden, CLASSES))

    def forward(self, x):
        return self.head(self.own(x[:, 0]) + self.around(x[:, 1:]).mean(1))


def run(batches=300, seeds_per_batch=256, workers=3):
    torch.manual_seed(0)
    torch.set_num_threads(1)
    stores = [start_store() for _ in range(workers)]
    dataset = NeighbourBatches([port for _, port in stores], batches, seeds_per_batch)
    loader = DataLoader(dataset, batch_size=None, num_workers=workers, shuffle=True)
    model = SageNet()
    optimizer = torch.optim.Adam(model.parameters(), 3e-3)
    started = time.perf_counter()
    for step, (rows, labels) in enumerate(loader):
        loss = F.cross_entropy(model(rows), labels)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        if step % 100 == 0:
            print("step", step, "loss", round(loss.item(), 4))
    seconds = time.perf_counter() - started
    for process, _ in stores:
        process.terminate()
    return batches * seeds_per_batch / seconds


if __name__ == "__main__":
    print(f"throughput: {run():.1f} samples/s")
