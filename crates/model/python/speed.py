"""Training speed of PyTorch eager on the shapes of `lemon bench policy`: python3 speed.py [cuda|cpu]

A plain model of the same form: fused scaled-dot-product attention, torch's own RMS norm, fused AdamW, loss on every position.
On a GPU twice: with f32 master weights and bf16 computation (autocast), as `lemon` trains, and with everything in bf16, which
is quicker and less exact. Prints one JSON object per measurement.
"""
import json
import sys
import time

import torch
import torch.nn.functional as F
from torch import nn

SHAPES = {  # hidden, intermediate, layers, heads, vocabulary, batch, length
    "42m": (512, 1408, 8, 8, 32000, 16, 512),
    "285m": (1024, 2048, 24, 16, 32000, 16, 512),
    "3m": (256, 768, 4, 4, 2048, 4, 128),
}


class Block(nn.Module):
    def __init__(self, hidden, intermediate, heads):
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.RMSNorm(hidden, eps=1e-6), nn.RMSNorm(hidden, eps=1e-6)
        self.q, self.k, self.v = (nn.Linear(hidden, hidden) for _ in range(3))
        self.o = nn.Linear(hidden, hidden, bias=False)
        self.gate, self.up = (nn.Linear(hidden, intermediate, bias=False) for _ in range(2))
        self.down = nn.Linear(intermediate, hidden, bias=False)

    def forward(self, x, cos, sin):
        b, t, _ = x.shape
        h = self.norm1(x)
        split = lambda it: it.view(b, t, self.heads, -1).transpose(1, 2)
        q, k, v = split(self.q(h)), split(self.k(h)), split(self.v(h))
        turn = lambda it: it * cos + torch.cat((-it[..., it.shape[-1] // 2:], it[..., : it.shape[-1] // 2]), -1) * sin
        attended = F.scaled_dot_product_attention(turn(q), turn(k), v, is_causal=True)
        x = x + self.o(attended.transpose(1, 2).reshape(b, t, -1))
        h = self.norm2(x)
        return x + self.down(F.silu(self.gate(h)) * self.up(h))


class Model(nn.Module):
    def __init__(self, hidden, intermediate, layers, heads, vocabulary, length):
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, hidden)
        self.blocks = nn.ModuleList(Block(hidden, intermediate, heads) for _ in range(layers))
        self.norm = nn.RMSNorm(hidden, eps=1e-6)
        nn.init.normal_(self.embedding.weight, std=0.02)
        half = hidden // heads // 2
        angles = torch.outer(torch.arange(length).float(), 10000.0 ** (-torch.arange(half).float() / half))
        angles = torch.cat((angles, angles), -1)
        self.register_buffer("cos", angles.cos())
        self.register_buffer("sin", angles.sin())

    def forward(self, tokens):
        x = self.embedding(tokens)
        cos, sin = self.cos.to(x.dtype), self.sin.to(x.dtype)
        for block in self.blocks:
            x = block(x, cos, sin)
        return F.linear(self.norm(x), self.embedding.weight)


def measure(name, device, pure=False):
    hidden, intermediate, layers, heads, vocabulary, batch, length = SHAPES[name]
    model = Model(hidden, intermediate, layers, heads, vocabulary, length).to(device)
    cuda = device == "cuda"
    model = model.to(torch.bfloat16) if pure else model
    optimiser = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
    tokens = torch.randint(vocabulary, (batch, length), device=device)

    def step():
        with torch.autocast(device, torch.bfloat16, enabled=cuda and not pure):
            logits = model(tokens)
            loss = F.cross_entropy(logits[:, :-1].reshape(-1, vocabulary), tokens[:, 1:].reshape(-1))
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimiser.step()
        optimiser.zero_grad(set_to_none=True)

    wait = torch.cuda.synchronize if cuda else (lambda: None)
    for _ in range(10 if cuda else 2):
        step()
    times = []
    for _ in range(30 if cuda else 8):
        wait()
        start = time.perf_counter()
        step()
        wait()
        times.append(time.perf_counter() - start)
    seconds = sorted(times)[len(times) // 2]
    parameters = sum(it.numel() for it in model.parameters())
    print(json.dumps({"shape": name, "parameters": parameters, "device": device, "weights": "bf16" if pure else "f32", "torch": torch.__version__,
                      "step_ms": seconds * 1e3, "tokens_per_second": batch * length / seconds}), flush=True)


if __name__ == "__main__":
    device = sys.argv[1] if len(sys.argv) > 1 else "cuda"
    for name in ["42m", "285m"] if device == "cuda" else ["3m"]:
        for pure in [False, True] if device == "cuda" else [False]:
            measure(name, device, pure)
