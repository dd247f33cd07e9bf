"""Dropout set to one share throughout a model."""

from torch import nn

from lmexposure.errors import ModelError

_LAYERS = (nn.Dropout, nn.Dropout1d, nn.Dropout2d, nn.AlphaDropout)


def set_dropout(model: nn.Module, share: float) -> None:
    """Let every place of a model that can drop units in training drop this share of them."""
    places = 0
    for module in model.modules():
        if isinstance(module, _LAYERS):
            module.p = share
            places += 1
        elif isinstance(module, nn.LSTM) and module.num_layers > 1:
            module.dropout = share
            places += 1
        elif isinstance(getattr(module, "attention_dropout", None), float):  # of Llama's kind
            vars(module)["attention_dropout"] = share
            places += 1
    if not places:
        raise ModelError(
            f"{type(model).__name__} has no place where units could be dropped, such as between "
            "the layers of an LSTM of two; give it more layers, or leave dropout out"
        )
