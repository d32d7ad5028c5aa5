"""Expected values of small random checkpoints, computed by `transformers`: python3 fixtures.py > ../tests/fixtures/logits.json

Weights are drawn by a formula (SplitMix64 over the name of the tensor), which the test repeats, so that no weights have to be
kept. Each case holds the config, the seed, two texts of different lengths, the logits at every position, and the loss with
the norm of the gradient of every tensor.
"""
import json

import numpy as np
import torch
import transformers
from transformers import AutoModelForCausalLM, LlamaConfig, Qwen2Config, Qwen3Config

GOLDEN = np.uint64(0x9E3779B97F4A7C15)


def drawn(seed, name, count):
    state = (seed ^ 0xCBF29CE484222325) & (2**64 - 1)
    for byte in name.encode():
        state = ((state ^ byte) * 0x100000001B3) & (2**64 - 1)
    with np.errstate(over="ignore"):
        z = np.uint64(state) + np.arange(1, count + 1, dtype=np.uint64) * GOLDEN
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        z = z ^ (z >> np.uint64(31))
    return (z >> np.uint64(11)).astype(np.float64) / 2.0**53


def values(seed, name, shape):
    uniform = drawn(seed, name, int(np.prod(shape))).reshape(shape)
    if name.endswith("norm.weight"):
        return (0.5 + uniform).astype(np.float32)
    return ((uniform - 0.5) * 0.4).astype(np.float32)


COMMON = dict(vocab_size=89, hidden_size=48, intermediate_size=80, num_hidden_layers=3, max_position_embeddings=64,
              rms_norm_eps=1e-6, attention_dropout=0.0, eos_token_id=1, bos_token_id=None, pad_token_id=None)
CASES = [
    ("qwen2, tied, grouped heads", Qwen2Config(
        **COMMON, num_attention_heads=4, num_key_value_heads=2, tie_word_embeddings=True)),
    ("qwen3, wide heads, one key head", Qwen3Config(
        **COMMON, num_attention_heads=4, num_key_value_heads=1, head_dim=20, tie_word_embeddings=False)),
    ("llama, stretched positions", LlamaConfig(
        **COMMON, num_attention_heads=3, num_key_value_heads=3, tie_word_embeddings=False,
        rope_parameters=dict(rope_type="llama3", rope_theta=10000.0, factor=8.0, low_freq_factor=1.0,
                             high_freq_factor=4.0, original_max_position_embeddings=16))),
]
TEXTS = [[5, 17, 3, 88, 42, 42, 7, 0, 61, 30, 12, 9, 77], [64, 2, 33, 8, 21]]


def case(number, name, config):
    seed = 1000 + number
    model = AutoModelForCausalLM.from_config(config, attn_implementation="eager").eval().to(torch.float32)
    with torch.no_grad():
        for tensor, parameter in model.named_parameters():
            parameter.copy_(torch.from_numpy(values(seed, tensor, tuple(parameter.shape))))
    longest = max(map(len, TEXTS))
    tokens = torch.tensor([text + [0] * (longest - len(text)) for text in TEXTS])
    mask = torch.tensor([[1] * len(text) + [0] * (longest - len(text)) for text in TEXTS])
    logits = model(input_ids=tokens, attention_mask=mask).logits
    labels = tokens.masked_fill(mask == 0, -100)
    loss = torch.nn.functional.cross_entropy(
        logits[:, :-1].reshape(-1, logits.shape[-1]), labels[:, 1:].reshape(-1), ignore_index=-100, reduction="sum")
    loss.backward()
    rounded = lambda tensor: [float(f"{it:.7g}") for it in tensor.flatten().tolist()]
    return {
        "name": name,
        "seed": seed,
        "config": json.loads(config.to_json_string(use_diff=False)),
        "texts": TEXTS,
        "logits": [rounded(logits[row, : len(text)].detach()) for row, text in enumerate(TEXTS)],
        "loss": loss.item(),
        "gradient_norms": {tensor: parameter.grad.norm().item() for tensor, parameter in model.named_parameters()},
    }


if __name__ == "__main__":
    torch.manual_seed(0)
    cases = [case(number, name, config) for number, (name, config) in enumerate(CASES)]
    print(json.dumps({"made_by": f"transformers {transformers.__version__}, torch {torch.__version__}", "cases": cases}))
