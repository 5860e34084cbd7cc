"""Tabular regression with a run tracker on another host (here: a process of ours on the loopback)."""
import http.client
import json
import multiprocessing as mp
import socket
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

CONFIG = {"rows": 19200, "features": 256, "width": 512, "batch_size": 64, "epochs": 1, "log_every": 50, "latency": 0.02}


class TrackingServer(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    wbufsize = -1
    experiments, points = {}, []

    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        time.sleep(CONFIG["latency"])
        if self.path == "/experiments":
            answer = {"id": self.experiments.setdefault(body["name"], len(self.experiments) + 1)}
        else:
            self.points.append(body)
            answer = {"stored": len(self.points)}
        text = json.dumps(answer).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def log_message(self, *args):
        pass


def serve(pipe):
    server = ThreadingHTTPServer(("127.0.0.1", 0), TrackingServer)
    pipe.send(server.server_address)
    server.serve_forever()


class RemoteLogger:
    def __init__(self, address, name):
        self.name = name
        self.connection = http.client.HTTPConnection(*address)
        self.connection.connect()
        self.connection.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def _post(self, path, body):
        self.connection.request("POST", path, json.dumps(body))
        return json.loads(self.connection.getresponse().read())

    @property
    def experiment(self):
        return self._post("/experiments", {"name": self.name})["id"]

    def log_metrics(self, experiment, metrics, step):
        self._post("/metrics", {"experiment": experiment, "step": step, "metrics": metrics})


class Trainer:
    def __init__(self, model, logger, log_every):
        self.model, self.logger, self.log_every = model, logger, log_every
        self.optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
        self.step = 0

    def training_step(self, batch):
        x, y = batch
        loss = nn.functional.smooth_l1_loss(self.model(x).squeeze(1), y)
        self.optimizer.zero_grad(set_to_none=True)
        loss.backward()
        self.optimizer.step()
        return loss.detach()

    def after_step(self, loss):
        experiment = self.logger.experiment
        if self.step % self.log_every == 0:
            value = loss.item()
            self.logger.log_metrics(experiment, {"loss": value}, self.step)
            print(f"step {self.step:4d}  loss {value:.4f}")

    def fit(self, loader, epochs):
        for _ in range(epochs):
            for batch in loader:
                loss = self.training_step(batch)
                self.step += 1
                self.after_step(loss)


def run(address):
    torch.manual_seed(11)
    torch.set_num_threads(1)
    rng = np.random.default_rng(11)
    x = rng.standard_normal((CONFIG["rows"], CONFIG["features"]), dtype=np.float32)
    y = np.tanh(x @ rng.standard_normal(CONFIG["features"], dtype=np.float32) / 8)
    loader = DataLoader(TensorDataset(torch.from_numpy(x), torch.from_numpy(y)), batch_size=CONFIG["batch_size"],
                        shuffle=True, num_workers=1, prefetch_factor=4)
    width = CONFIG["width"]
    model = nn.Sequential(nn.Linear(CONFIG["features"], width), nn.GELU(), nn.Linear(width, width), nn.GELU(),
                          nn.Linear(width, width), nn.GELU(), nn.Linear(width, 1))
    trainer = Trainer(model, RemoteLogger(address, "tabular-baseline"), CONFIG["log_every"])
    start = time.perf_counter()
    trainer.fit(loader, CONFIG["epochs"])
    return CONFIG["rows"] * CONFIG["epochs"] / (time.perf_counter() - start)


if __name__ == "__main__":
    ours, theirs = mp.Pipe()
    tracker = mp.Process(target=serve, args=(theirs,), daemon=True)
    tracker.start()
    try:
        rate = run(ours.recv())
    finally:
        tracker.terminate()
    print(f"throughput: {rate:.1f} samples/s")
