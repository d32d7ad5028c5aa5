"""Whether `transformers` reads what we saved as we do: python3 roundtrip.py MODEL TASK SAMPLES.json

SAMPLES.json is what `lemon policy sample --model MODEL --task TASK --no-grammar --temperature 0 --device cpu --json` printed.
The same prompt, made by the model's own chat template, has to lead to the same tokens, and to log-probabilities that agree.
"""
import json
import sys

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

folder, task, path = sys.argv[1:4]
tokenizer = AutoTokenizer.from_pretrained(folder)
model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager").eval()
messages = [{"role": "system", "content": "-"}, {"role": "user", "content": f"Task:\n{task}\n"}]
text = tokenizer.apply_chat_template(messages, add_generation_prompt=True, tokenize=False)
prompt = tokenizer(text, return_tensors="pt", add_special_tokens=False)["input_ids"]
sample = json.load(open(path))["samples"][0]
count = len(sample["tokens"])
with torch.no_grad():
    written = model.generate(prompt, do_sample=False, max_new_tokens=count)[0, prompt.shape[1]:].tolist()
print("same tokens:", written[:count] == sample["tokens"], "of", count)
print(tokenizer.decode(written, skip_special_tokens=True))
sys.exit(written[:count] != sample["tokens"])
