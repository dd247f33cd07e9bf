"""The fills of a format as token paths, each fill once, under the model's own tokenizer."""

__all__: list[str] = []
