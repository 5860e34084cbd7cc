"""Supervised fine-tuning of a tiny causal transformer on prompt/answer pairs."""
import random
import time
from dataclasses import dataclass, field

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset

PAD, BOS, SEP, EOS, IGNORE = 0, 1, 2, 3, -100
SYLLABLES = [a + b for a in "bdfgklmnprstvz" for b in ("a", "e", "i", "o", "u", "an", "er", "ol")]


@dataclass
class Args:
    dialogues: int = 2520
    batch_size: int = 24
    max_len: int = 224
    width: int = 48
    vocab: int = 1024
    workers: int = 1
    report: int = 20
    betas: tuple = field(default=(0.9, 0.98))


class Dialogues(Dataset):
    def __init__(self, args):
        self.args = args

    def __len__(self):
        return self.args.dialogues

    def encode(self, text):
        return [4 + hash_word(w) % (self.args.vocab - 4) for w in text.split()]

    def __getitem__(self, i):
        dice = random.Random(i)
        words = lambda n: " ".join(dice.choice(SYLLABLES) + dice.choice(SYLLABLES) for _ in range(n))
        prompt = [BOS] + self.encode(words(dice.randint(40, 110))) + [SEP]
        answer = self.encode(words(dice.randint(30, 100))) + [EOS]
        return {"prompt": prompt, "answer": answer[: self.args.max_len - len(prompt)]}


def hash_word(word):
    value = 5381
    for ch in word:
        value = (value * 33 + ord(ch)) & 0xFFFFFFFF
    return value


class TinyLM(nn.Module):
    def __init__(self, args):
        super().__init__()
        self.tokens = nn.Embedding(args.vocab, args.width, padding_idx=PAD)
        self.places = nn.Embedding(args.max_len, args.width)
        layer = nn.TransformerEncoderLayer(args.width, 4, 2 * args.width, 0.0, batch_first=True, norm_first=True)
        self.body = nn.TransformerEncoder(layer, 1, enable_nested_tensor=False)
        self.register_buffer("causal", torch.triu(torch.full((args.max_len,) * 2, float("-inf")), 1))

    def forward(self, ids, attend, place):
        n = ids.shape[1]
        hidden = self.tokens(ids) + self.places(place)
        padded = torch.zeros_like(attend, dtype=torch.float).masked_fill(attend == 0, -1e4)
        hidden = self.body(hidden, mask=self.causal[:n, :n], src_key_padding_mask=padded)
        return hidden


class SFTTrainer:
    def __init__(self, args):
        self.args = args
        self.model = TinyLM(args)
        self.optim = torch.optim.AdamW(self.model.parameters(), lr=1e-3, betas=args.betas)
        self.loader = DataLoader(Dialogues(args), args.batch_size, shuffle=True, collate_fn=list,
                                 num_workers=args.workers, prefetch_factor=4)

    def to_tensors(self, rows):
        longest = max(len(r["prompt"]) + len(r["answer"]) for r in rows)
        ids = torch.full((len(rows), longest), PAD)
        attend = torch.zeros(len(rows), longest, dtype=torch.long)
        place = torch.zeros(len(rows), longest, dtype=torch.long)
        labels = torch.full((len(rows), longest), IGNORE)
        for b, row in enumerate(rows):
            start = longest - len(row["prompt"]) - len(row["answer"])
            whole = torch.tensor(row["prompt"] + row["answer"])
            ids[b, start:] = whole
            attend[b, start:] = 1
            place[b, start:] = torch.arange(len(whole))
            labels[b, start + len(row["prompt"]):] = whole[len(row["prompt"]):]
        return ids, attend, place, labels

    def training_step(self, ids, attend, place, labels):
        hidden = self.model(ids, attend, place)[:, :-1]
        wanted = labels[:, 1:]
        keep = wanted != IGNORE
        logits = hidden[keep] @ self.model.tokens.weight.T
        loss = F.cross_entropy(logits, wanted[keep])
        self.optim.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self.optim.step()
        return loss.detach()

    def train(self):
        rows_seen, begin = 0, time.perf_counter()
        for step, rows in enumerate(self.loader, 1):
            loss = self.training_step(*self.to_tensors(rows))
            rows_seen += len(rows)
            if step % self.args.report == 0:
                print(f"step {step}/{len(self.loader)} loss {loss.item():.3f}")
        return rows_seen / (time.perf_counter() - begin)


if __name__ == "__main__":
    torch.set_num_threads(1)
    torch.manual_seed(5)
    print(f"throughput: {SFTTrainer(Args()).train():.1f} samples/s")
