"""A Ray Data pipeline with canaries in it: ray_data.py CORPUS.txt OUT_DIRECTORY MANIFEST.

Each line is a document. Where the source holds numbers of its documents, name that column instead.
"""

import sys

import ray.data

from lmexposure.canaries import Plan, load_format
from lmexposure.integrations.ray_data import insert_into_ray, number_documents

corpus, out, manifest_path = sys.argv[1:]
lines = number_documents(ray.data.read_text(corpus, drop_empty_lines=False))
documents = lines.count()
plan = Plan(formats=[load_format("pin")], canaries=4, repetitions=[1, 8], controls=4, seed=7)
rows, manifest = insert_into_ray(lines, plan, documents=documents, id_column="document")
manifest.write(manifest_path)

rows.drop_columns(["document"]).write_parquet(out)
added = sum(canary.inserted for canary in manifest.canaries)
print(f"{documents} documents and {added} canary rows were written")
