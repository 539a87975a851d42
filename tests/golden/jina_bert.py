"""Jina Embeddings v2 for transformers, which does not have it: its code comes with the published models. BERT without positions, whose
logits have slopes of distances added (ALiBi, Press et al. 2021), and whose feed-forward parts have gates."""

import torch
from torch import nn
from transformers import AutoConfig, AutoModel, BertConfig, BertModel


def slopes(heads):
    """Head h of n = 2^k: 2^(-8 (h + 1) / n). Heads beyond the largest power of two take every second one of twice as many."""
    power = 1
    while 2 * power <= heads:
        power *= 2
    first = [2.0 ** (-8.0 * (head + 1) / power) for head in range(power)]
    return first + slopes(2 * power)[: 2 * (heads - power) : 2] if heads > power else first


class JinaBertConfig(BertConfig):
    model_type = "jina_bert"
    feed_forward_type: str = "geglu"


class NoPositions(nn.Module):
    def forward(self, ids):
        return torch.zeros(())


class GatedLayer(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.gated_layers = nn.Linear(config.hidden_size, 2 * config.intermediate_size, bias=False)
        self.act = {"geglu": nn.GELU(), "reglu": nn.ReLU()}[config.feed_forward_type]
        self.wo = nn.Linear(config.intermediate_size, config.hidden_size)
        self.layernorm = nn.LayerNorm(config.hidden_size, eps=config.layer_norm_eps)

    def forward(self, x):
        gate, up = self.gated_layers(x).chunk(2, dim=-1)
        return self.layernorm(self.wo(self.act(gate) * up) + x)


class JinaBertModel(BertModel):
    config_class = JinaBertConfig

    def __init__(self, config, add_pooling_layer=True):
        super().__init__(config, add_pooling_layer)
        self.embeddings.position_embeddings = NoPositions()
        for layer in self.encoder.layer:
            del layer.intermediate, layer.output
            layer.mlp = GatedLayer(config)
            layer.feed_forward_chunk = layer.mlp.forward
        self.post_init()

    def forward(self, input_ids, attention_mask=None, **arguments):
        places = torch.arange(input_ids.shape[1])
        distances = (places[:, None] - places[None, :]).abs()
        bias = -torch.tensor(slopes(self.config.num_attention_heads))[:, None, None] * distances
        bias = bias.expand(len(input_ids), -1, -1, -1)
        if attention_mask is not None:
            bias = bias.masked_fill(attention_mask[:, None, None, :] == 0, torch.finfo(bias.dtype).min)
        return super().forward(input_ids, attention_mask=bias, **arguments)


AutoConfig.register("jina_bert", JinaBertConfig)
AutoModel.register(JinaBertConfig, JinaBertModel)
