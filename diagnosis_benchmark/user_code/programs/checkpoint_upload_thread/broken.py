"""Trains a small sequence model and sends a checkpoint to the artefact store every few steps."""
import base64
import concurrent.futures
import hashlib
import hmac
import http.client
import json
import multiprocessing
import time
from http.server import BaseHTTPRequestHandler, HTTPServer

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

KEY = b"artefact-store"
PART = 1024


class Store(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_PUT(self):
        self.rfile.read(int(self.headers["Content-Length"]))
        self.send_response(204)
        self.end_headers()

    def log_message(self, format, *args):
        pass


def run_store(pipe):
    server = HTTPServer(("127.0.0.1", 0), Store)
    pipe.send(server.server_port)
    server.serve_forever()


def upload_checkpoint(port, step, arrays):
    """Sends every array in signed parts, 256 of them a request."""
    connection = http.client.HTTPConnection("127.0.0.1", port)
    block = []
    for name, array in arrays.items():
        data = array.tobytes()
        for offset in range(0, len(data), PART):
            part = data[offset : offset + PART]
            signature = hmac.new(KEY, part, hashlib.sha256).hexdigest()
            total = 0
            for value in part:
                total = (total + value) & 0xFFFF
            header = {"name": name, "offset": offset, "sum": total, "signature": signature}
            block.append(json.dumps(header) + base64.b64encode(part).decode())
            if len(block) == 256:
                connection.request("PUT", f"/checkpoints/{step}", body="\n".join(block))
                connection.getresponse().read()
                block.clear()
    connection.request("PUT", f"/checkpoints/{step}/end", body="\n".join(block))
    connection.getresponse().read()
    connection.close()
    return step


class SequenceModel(nn.Module):
    def __init__(self, width=112, layers=6):
        super().__init__()
        self.inp, self.out = nn.Linear(16, width), nn.Linear(width, 16)
        self.blocks = nn.ModuleList(
            nn.Sequential(nn.LayerNorm(width), nn.Linear(width, 2 * width), nn.GELU(), nn.Linear(2 * width, width))
            for _ in range(layers)
        )
        self.cell = nn.GRUCell(width, width)

    def forward(self, x):
        h = self.inp(x)
        for block in self.blocks:
            h = h + block(h)
        state = h.new_zeros(len(h), h.shape[-1])
        for t in range(h.shape[1]):
            state = self.cell(h[:, t], state)
        return self.out(state)


def snapshot(model, optimizer):
    tensors = dict(model.state_dict())
    for number, state in optimizer.state_dict()["state"].items():
        tensors.update({f"optimizer.{number}.{key}": tensor for key, tensor in state.items()})
    return {name: tensor.clone().numpy() for name, tensor in tensors.items()}


def main(steps=180, save_every=5, batch_size=32):
    torch.manual_seed(0)
    torch.set_num_threads(1)
    here, there = multiprocessing.Pipe()
    store = multiprocessing.Process(target=run_store, args=(there,), daemon=True)
    store.start()
    port = here.recv()
    series = torch.randn(steps * batch_size, 25, 16).cumsum(1) / 5
    loader = DataLoader(TensorDataset(series[:, :-1], series[:, -1]), batch_size=batch_size, shuffle=True)
    model = SequenceModel()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    uploader = concurrent.futures.ThreadPoolExecutor(max_workers=1)
    uploads = []
    start = time.perf_counter()
    for step, (past, following) in enumerate(loader):
        loss = nn.functional.mse_loss(model(past), following)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % save_every == 0:
            uploads.append(uploader.submit(upload_checkpoint, port, step, snapshot(model, optimizer)))
            print(f"step {step} loss {loss.item():.4f} uploaded {sum(u.done() for u in uploads)}")
    seconds = time.perf_counter() - start
    uploader.shutdown()
    store.terminate()
    print(f"throughput: {len(series) / seconds:.1f} samples/s")


if __name__ == "__main__":
    main()
