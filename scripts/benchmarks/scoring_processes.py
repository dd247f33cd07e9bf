"""Started by torchrun: references a second of all processes together, and a bare product's rate."""

import json
import time

import torch
import torch.distributed
from scoring_texts import encoded_references, gpt2_small, tokenizer_of

from lmexposure.scoring import score_encoded

REFERENCES, ENTRIES, SENTENCES = 600, 2_000, 3_000
SHAPE = (2048, 768, 3072)


def main() -> None:
    torch.distributed.init_process_group("gloo")
    torch.set_num_threads(1)
    processes = torch.distributed.get_world_size()
    model = gpt2_small()
    encoded = encoded_references(tokenizer_of("uneven", ENTRIES, SENTENCES), REFERENCES)
    score_encoded(model, encoded[:40])
    product = processes * product_rate()
    seconds = between_barriers(lambda: score_encoded(model, encoded))
    product = max(product, processes * product_rate())
    if torch.distributed.get_rank() == 0:
        said = {"processes": processes, "references": REFERENCES / seconds, "product": product}
        print(json.dumps(said), flush=True)
    torch.distributed.destroy_process_group()


def product_rate() -> float:
    M, K, N = SHAPE
    a, b = torch.randn(M, K), torch.randn(N, K)
    torch.nn.functional.linear(a, b)
    turns = 20
    seconds = between_barriers(lambda: [torch.nn.functional.linear(a, b) for _ in range(turns)])
    return 2 * M * K * N * turns / seconds


def between_barriers(run) -> float:  # type: ignore[no-untyped-def]
    torch.distributed.barrier()
    begun = time.perf_counter()
    run()
    torch.distributed.barrier()
    return time.perf_counter() - begun


if __name__ == "__main__":
    main()
