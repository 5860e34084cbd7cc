# Gesture recognition; recordings and their manifest come from an object store.
import http.client
import json
import multiprocessing
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

RECORDINGS = 1440
BATCH = 8
CHANNELS, TICKS = 6, 128


class Store(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def setup(self):
        self.request.setsockopt(6, 1, 1)
        super().setup()

    def do_GET(self):
        kind, _, name = self.path.strip("/").partition("/")
        if kind == "manifest":
            time.sleep(0.011)
            body = self.server.manifest
        else:
            time.sleep(0.008)
            body = np.random.default_rng(int(name)).integers(
                -500, 500, CHANNELS * TICKS, dtype="int16").tobytes()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *args):
        pass


def serve(pipe):
    server = ThreadingHTTPServer(("127.0.0.1", 0), Store)
    server.daemon_threads = True
    rng = np.random.default_rng(3)
    server.manifest = json.dumps([
        {"object": f"recording/{i}", "gesture": int(rng.integers(0, 5)), "gain": float(rng.uniform(0.5, 2))}
        for i in range(RECORDINGS)]).encode()
    pipe.send(server.server_port)
    server.serve_forever()


class Gestures(Dataset):
    def __init__(self, port):
        self.port = port
        self.line = None
        self.ready = json.loads(self.get("manifest/gestures"))
        self.line.close()
        self.line = None

    def __len__(self):
        return RECORDINGS

    def get(self, name):
        if self.line is None:
            self.line = http.client.HTTPConnection("127.0.0.1", self.port)
        self.line.request("GET", "/" + name)
        return self.line.getresponse().read()

    def __getitem__(self, index):
        manifest = self.ready
        entry = manifest[index]
        raw = np.frombuffer(self.get(entry["object"]), dtype="int16")
        signal = raw.reshape(CHANNELS, TICKS).astype("float32") * entry["gain"] / 500
        shift = int(torch.randint(0, TICKS, ()))
        return torch.from_numpy(np.roll(signal, shift, axis=1)), entry["gesture"]


torch.manual_seed(3)
torch.set_num_threads(1)
here, there = multiprocessing.Pipe()
store = multiprocessing.Process(target=serve, args=(there,), daemon=True)
store.start()
port = here.recv()

loader = DataLoader(Gestures(port), batch_size=BATCH, shuffle=True, num_workers=2)
model = nn.Sequential(
    nn.Conv1d(CHANNELS, 64, 5, padding=2), nn.GELU(),
    nn.Conv1d(64, 128, 5, padding=2), nn.GELU(),
    nn.Conv1d(128, 64, 5, padding=2), nn.GELU(),
    nn.AdaptiveAvgPool1d(4), nn.Flatten(), nn.Linear(256, 5))
optimizer = torch.optim.Adagrad(model.parameters(), lr=0.01)

for step, (signal, gesture) in enumerate(loader, 1):
    optimizer.zero_grad()
    loss = nn.functional.cross_entropy(model(signal), gesture)
    loss.backward()
    optimizer.step()
    if step == 5:
        begun = time.perf_counter()
    if step % 45 == 0:
        print(f"{step:4d} {loss.item():.3f}")
seconds = time.perf_counter() - begun
store.terminate()
print(f"throughput: {(step - 5) * BATCH / seconds:.1f} samples/s")
