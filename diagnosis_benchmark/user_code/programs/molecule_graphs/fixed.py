"""Regress a property of random molecule-like graphs that live in a two-tier graph store."""
import json
import multiprocessing as mp
import shutil
import tempfile
import time
from http.client import HTTPConnection
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import networkx as nx
import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

CONFIG = {
    "graphs": 1600,
    "batch_size": 8,
    "epochs": 1,
    "width": 64,
    "rounds": 3,
    "lr": 1e-3,
    "loader": {"num_workers": 3, "persistent_workers": True, "in_order": False},
    "seed": 77,
}


def fill_store(folder, cfg):
    rng = np.random.default_rng(cfg["seed"])
    for g in range(cfg["graphs"]):
        tree = nx.random_labeled_tree(int(rng.integers(18, 40)), seed=int(rng.integers(1 << 30)))
        extra = rng.integers(0, tree.number_of_nodes(), (4, 2))
        tree.add_edges_from((int(a), int(b)) for a, b in extra if a != b)
        atoms = rng.integers(0, 6, tree.number_of_nodes())
        tier = "archive" if g % 200 == 53 else "disk"
        record = {"atoms": atoms.tolist(), "bonds": list(tree.edges), "target": float(nx.density(tree) * atoms.sum()), "tier": tier}
        (folder / f"{g}.json").write_text(json.dumps(record))


class Store(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    folder = None

    def do_GET(self):
        body = (self.folder / self.path.strip("/")).read_bytes()
        if b'"archive"' in body:
            time.sleep(1.0)
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *args):
        pass


class GraphSet(Dataset):
    def __init__(self, port, count):
        self.port, self.count, self.http = port, count, None

    def __len__(self):
        return self.count

    def __getitem__(self, i):
        if self.http is None:
            self.http = HTTPConnection("127.0.0.1", self.port)
        self.http.request("GET", f"/{i}.json")
        record = json.loads(self.http.getresponse().read())
        atoms = torch.tensor(record["atoms"])
        bonds = torch.tensor(record["bonds"]).T
        return atoms, torch.cat([bonds, bonds.flip(0)], 1), record["target"]


def join(graphs):
    shift = np.cumsum([0] + [len(a) for a, _, _ in graphs[:-1]])
    atoms = torch.cat([a for a, _, _ in graphs])
    bonds = torch.cat([b + int(s) for (_, b, _), s in zip(graphs, shift)], 1)
    owner = torch.repeat_interleave(torch.arange(len(graphs)), torch.tensor([len(a) for a, _, _ in graphs]))
    return atoms, bonds, owner, torch.tensor([t for _, _, t in graphs])


class MessageNet(nn.Module):
    def __init__(self, width, rounds):
        super().__init__()
        self.embed = nn.Embedding(6, width)
        self.edge = nn.ModuleList(nn.Sequential(nn.Linear(2 * width, 4 * width), nn.SiLU(), nn.Linear(4 * width, width)) for _ in range(rounds))
        self.node = nn.ModuleList(nn.GRUCell(width, width) for _ in range(rounds))
        self.out = nn.Linear(width, 1)

    def forward(self, atoms, bonds, owner, graphs):
        h = self.embed(atoms)
        for edge, node in zip(self.edge, self.node):
            message = edge(torch.cat([h[bonds[0]], h[bonds[1]]], 1))
            h = node(torch.zeros_like(h).index_add(0, bonds[1], message), h)
        return self.out(torch.zeros(graphs, h.shape[1]).index_add(0, owner, h)).squeeze(1)


def train(cfg, port):
    loader = DataLoader(GraphSet(port, cfg["graphs"]), cfg["batch_size"], shuffle=True, collate_fn=join, **cfg["loader"])
    model = MessageNet(cfg["width"], cfg["rounds"])
    optimizer = torch.optim.AdamW(model.parameters(), lr=cfg["lr"])
    stamps, sizes = [], []
    for epoch in range(cfg["epochs"]):
        for atoms, bonds, owner, target in loader:
            optimizer.zero_grad()
            loss = nn.functional.mse_loss(model(atoms, bonds, owner, len(target)), target)
            loss.backward()
            optimizer.step()
            stamps.append(time.perf_counter())
            sizes.append(len(target))
            if len(sizes) % 50 == 0:
                print(f"epoch {epoch}, step {len(sizes)}: mse {loss.item():.3f}")
    return sum(sizes[5:]) / (stamps[-1] - stamps[4])


torch.manual_seed(CONFIG["seed"])
torch.set_num_threads(1)
Store.folder = Path(tempfile.mkdtemp(prefix="graphs_"))
fill_store(Store.folder, CONFIG)
httpd = ThreadingHTTPServer(("127.0.0.1", 0), Store)
shop = mp.get_context("fork").Process(target=httpd.serve_forever, daemon=True)
shop.start()
speed = train(CONFIG, httpd.server_port)
shop.terminate()
shutil.rmtree(Store.folder)
print(f"throughput: {speed:.1f} samples/s")
