"""A Ray Data pipeline with canaries in it: ray_data.py CORPUS.txt OUT_DIRECTORY MANIFEST.

Each line is a document. Where a column holds the numbers of documents, name it as `id_column`.
"""

import sys

import ray.data

import lmexposure as lx

corpus, out, manifest_path = sys.argv[1:]
lines = ray.data.read_text(corpus, drop_empty_lines=False)
documents = lines.count()
plan = lx.Plan(formats=["pin"], canaries=4, repetitions=[1, 8], controls=4, seed=7)
rows, manifest = lx.insert(lines, plan, total=documents)
manifest.write(manifest_path)

rows.write_parquet(out)
added = sum(canary.inserted for canary in manifest.canaries)
print(f"{documents} documents and {added} canary rows were written")
