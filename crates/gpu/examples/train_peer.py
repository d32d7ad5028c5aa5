"""Trains random weights with PyTorch on one GPU: what `gpu_bench train` is measured against.

    python3 train_peer.py SHAPE full|lora TEXTS SHARED OWN [STEPS]

The arguments are those of `gpu_bench train`. Hugging Face's model in bf16, fused attention, fused AdamW, the head over chosen rows in
chunks. A shared beginning is computed for every text, as a program does that knows nothing of groups.
"""
import sys
import time

import torch
import torch.nn.functional as functional
from torch.utils.checkpoint import checkpoint
from transformers import LlamaConfig, LlamaForCausalLM, Qwen2Config, Qwen2ForCausalLM

SHAPES = {
    "qwen": (Qwen2Config, Qwen2ForCausalLM, [151_936, 1_536, 8_960, 28, 12, 2]),
    "smol": (LlamaConfig, LlamaForCausalLM, [49_152, 576, 1_536, 30, 9, 3]),
    "42m": (LlamaConfig, LlamaForCausalLM, [32_000, 512, 1_408, 8, 8, 8]),
}
HEAD_ROWS = 2_048


class Adapted(torch.nn.Module):
    """A frozen matrix with an adapter."""

    def __init__(self, inner, rank=16, alpha=32.0):
        super().__init__()
        self.inner, self.scale = inner, alpha / rank
        make = lambda *size: torch.nn.Parameter(0.01 * torch.randn(*size, device="cuda", dtype=torch.bfloat16))
        self.down, self.up = make(rank, inner.in_features), make(inner.out_features, rank)

    def forward(self, rows):
        adapted = functional.linear(functional.linear(rows, self.down), self.up)
        return self.inner(rows) + self.scale * adapted


def model(shape, lora):
    config, kind, [vocabulary, hidden, intermediate, layers, heads, kv_heads] = SHAPES[shape]
    config = config(
        vocab_size=vocabulary,
        hidden_size=hidden,
        intermediate_size=intermediate,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        num_key_value_heads=kv_heads,
        tie_word_embeddings=True,
        max_position_embeddings=4_096,
        attn_implementation="sdpa",
    )
    torch.manual_seed(7)
    with torch.device("cuda"):
        made = kind(config).to(torch.bfloat16)
    if lora:
        made.requires_grad_(False)
        for layer in made.model.layers:
            for part in (layer.self_attn, layer.mlp):
                for name, child in list(part.named_children()):
                    if isinstance(child, torch.nn.Linear):
                        setattr(part, name, Adapted(child))
    return made.train()


def main():
    shape, learning = sys.argv[1:3]
    texts, shared, own = map(int, sys.argv[3:6])
    steps = int(sys.argv[6]) if len(sys.argv) > 6 else 5
    net = model(shape, learning == "lora")
    weights = [it for it in net.parameters() if it.requires_grad]
    adam = torch.optim.AdamW(weights, lr=1e-4, betas=(0.9, 0.98), eps=1e-8, weight_decay=0.01, fused=True)
    ids = torch.randint(0, 32_000, (texts, shared + own), device="cuda")
    head = net.lm_head.weight

    def loss_of(rows, targets):
        return functional.cross_entropy(functional.linear(rows, head).float(), targets, reduction="sum")

    def step():
        adam.zero_grad(set_to_none=True)
        hidden = net.model(input_ids=ids, use_cache=False).last_hidden_state
        rows = hidden[:, max(shared - 1, 0) : -1].flatten(0, 1)
        targets = ids[:, max(shared, 1) :].flatten()
        loss = 0.0
        for at in range(0, rows.shape[0], HEAD_ROWS):
            part = slice(at, at + HEAD_ROWS)
            loss = loss + checkpoint(loss_of, rows[part], targets[part], use_reentrant=False)
        loss = loss / rows.shape[0]
        loss.backward()
        norm = torch.nn.utils.clip_grad_norm_(weights, 1.0, foreach=True)
        adam.step()
        return loss, norm

    times = []
    for number in range(steps + 3):
        torch.cuda.synchronize()
        start = time.perf_counter()
        loss, norm = step()
        torch.cuda.synchronize()
        if number > 2:
            times.append(time.perf_counter() - start)
    times.sort()
    median = times[len(times) // 2]
    tokens = texts * (shared + own)
    print(
        f"pytorch {torch.__version__} {shape} {learning} {texts} x ({shared} shared + {own}): {1e3 * median:.1f} ms a step, "
        f"{tokens / median:.0f} tokens/s, {texts / median:.2f} texts/s, loss {loss:.3f}, "
        f"{torch.cuda.max_memory_allocated() >> 20} MiB",
        flush=True,
    )


main()
