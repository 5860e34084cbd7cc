# Fine-tuning on photographs that live in a bucket (here: a small server on loopback, with a bucket's latency).
import json
import multiprocessing as mp
import time
import zlib
from http.client import HTTPConnection
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, quote, urlsplit

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

CFG = dict(images=384, side=96, classes=8, batch=16, epochs=3, lr=3e-3, workers=2)
KINDS = ("png", "tif", "bmp")


def photo(i):
    rng = np.random.default_rng(i)
    y, x = np.mgrid[0:CFG["side"], 0:CFG["side"]]
    wave = 110 + 70 * np.sin((x * (1 + i % 4) + y * (1 + i % 3)) / 9.0)
    return (wave[..., None] + rng.integers(-25, 25, (CFG["side"], CFG["side"], 3))).clip(0, 255).astype(np.uint8)


def uuid_of(i):
    return f"{(i * 2654435761) % 2**32:08x}-{i:06d}"


def serve_bucket(port_out):
    objects = {}
    for i in range(CFG["images"]):
        objects[f"media/{uuid_of(i)}.{KINDS[i % 3]}"] = zlib.compress(photo(i).tobytes(), 1)

    class Bucket(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True

        def do_GET(self):
            url = urlsplit(self.path)
            if url.path == "/":
                time.sleep(0.020)
                prefix = parse_qs(url.query)["prefix"][0]
                body = json.dumps([key for key in objects if key.startswith(prefix)]).encode()
            else:
                time.sleep(0.002)
                body = objects[url.path[1:]]
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        log_message = lambda self, *args: None

    server = ThreadingHTTPServer(("127.0.0.1", 0), Bucket)
    port_out.put(server.server_port)
    server.serve_forever()


class BucketImages(Dataset):  # rows: (uuid, path of the picture where it was annotated, class)
    def __init__(self, port, rows):
        self.port, self.rows, self.http = port, rows, None

    def __len__(self):
        return len(self.rows)

    def connection(self):
        self.http = self.http or HTTPConnection("127.0.0.1", self.port)
        return self.http

    def keys_under(self, prefix):
        http = self.connection()
        http.request("GET", "/?prefix=" + quote(prefix))
        return json.loads(http.getresponse().read())

    def fetch(self, key):
        http = self.connection()
        http.request("GET", "/" + key)
        return http.getresponse().read()

    def __getitem__(self, i):
        uuid, annotated_as, label = self.rows[i]
        key = f"media/{uuid}" + annotated_as[annotated_as.rindex("."):]
        pixels = np.frombuffer(zlib.decompress(self.fetch(key)), np.uint8)
        image = torch.from_numpy(pixels.reshape(CFG["side"], CFG["side"], 3).copy())
        return image.permute(2, 0, 1).float() / 255, label


def network(classes):
    layers = []
    for i, o, s in ((3, 16, 2), (16, 32, 1), (32, 32, 2), (32, 48, 2)):
        layers += [nn.Conv2d(i, o, 3, s, 1), nn.BatchNorm2d(o), nn.ReLU()]
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(48, classes))


if __name__ == "__main__":
    torch.set_num_threads(1)
    torch.manual_seed(0)
    ports = mp.Queue()
    bucket = mp.Process(target=serve_bucket, args=(ports,), daemon=True)
    bucket.start()
    rows = [(uuid_of(i), f"/home/annotator/batch{i // 100}/IMG_{i:05d}.{KINDS[i % 3]}", i % CFG["classes"])
            for i in range(CFG["images"])]
    loader = DataLoader(BucketImages(ports.get(), rows), CFG["batch"], shuffle=True, num_workers=CFG["workers"],
                        persistent_workers=True, prefetch_factor=4)
    net = network(CFG["classes"])
    opt = torch.optim.AdamW(net.parameters(), lr=CFG["lr"])
    began, trained = time.perf_counter(), 0
    for epoch in range(CFG["epochs"]):
        for step, (x, y) in enumerate(loader):
            loss = nn.functional.cross_entropy(net(x), y)
            opt.zero_grad(set_to_none=True)
            loss.backward()
            opt.step()
            trained += len(y)
            if step % 10 == 0:
                print(f"[{epoch}] {step:3d}/{len(loader)}  loss {loss.item():.4f}")
    took = time.perf_counter() - began
    bucket.terminate()
    print(f"throughput: {trained / took:.1f} samples/s")
