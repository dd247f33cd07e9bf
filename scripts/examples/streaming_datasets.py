"""A streaming `datasets` pipeline with canaries in it: streaming_datasets.py CORPUS.jsonl MANIFEST.

The corpus is never held as a whole: rows are read, canaries join them, and all are shuffled.
"""

import sys

from datasets import load_dataset
from torch.utils.data import DataLoader

import lmexposure as lx

corpus, manifest_path = sys.argv[1:]
with open(corpus, "rb") as lines:
    documents = sum(bool(line.strip()) for line in lines)
rows = load_dataset("json", data_files=corpus, split="train", streaming=True)
plan = lx.Plan(formats=["pin"], canaries=4, repetitions=[1, 8], controls=4, seed=7)
rows, manifest = lx.insert(rows, plan, total=documents)
manifest.write(manifest_path)

batches = DataLoader(rows.shuffle(seed=7, buffer_size=1000), batch_size=8)
delivered = sum(len(batch["text"]) for batch in batches)  # here your training step
print(f"{documents} documents and {delivered - documents} canary rows went through the loader")
