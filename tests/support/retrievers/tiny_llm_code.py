"""What lies beside the weights of `tiny_llm.make_with_own_code`: a network for FlagEmbedding's layerwise classes."""

from dataclasses import dataclass

import torch
from transformers import GemmaConfig, GemmaModel, PreTrainedModel
from transformers.utils import ModelOutput


class OwnConfig(GemmaConfig):
    """Gemma's, under a name that transformers does not know."""

    model_type = "own_layerwise"


@dataclass
class OwnOutput(ModelOutput):
    """A score per token, of each layer that was asked for."""

    logits: tuple[torch.Tensor, ...] | None = None
    attention_masks: tuple[torch.Tensor, ...] | None = None


class OwnForCausalLM(PreTrainedModel):
    """A head for every layer. "Compression" only makes the score greater: enough to see what was asked for."""

    config_class = OwnConfig

    def __init__(self, config: OwnConfig) -> None:
        super().__init__(config)
        self.model = GemmaModel(config)
        self.heads = torch.nn.Linear(config.hidden_size, config.num_hidden_layers, bias=False)
        self.post_init()

    def forward(self, input_ids, attention_mask, cutoff_layers=None, compress_layer=(), compress_ratio=1, **_):
        hidden = self.model(input_ids=input_ids, attention_mask=attention_mask, output_hidden_states=True).hidden_states
        layers = cutoff_layers or [self.config.num_hidden_layers]
        logits = tuple(self.heads(hidden[n])[..., n - 1] * compress_ratio + sum(compress_layer) for n in layers)
        return OwnOutput(logits, (attention_mask,) * len(layers))
