"""LFM2 as an encoder for transformers, which does not have it: the code of `Lfm2BidirectionalModel` comes with the published models.
Attention sees both sides, and the taps of convolutions are centred."""

import torch
from torch.nn.functional import conv1d
from transformers import AutoConfig, AutoModel, Lfm2Config, Lfm2Model
from transformers.models.lfm2.modeling_lfm2 import Lfm2ShortConv


class Lfm2EncoderConfig(Lfm2Config):
    model_type = "lfm2_encoder"


class CentredConv(Lfm2ShortConv):
    def forward(self, hidden_states, attention_mask=None, **_):
        if attention_mask is not None:
            hidden_states = hidden_states * attention_mask[:, :, None]
        b, c, x = self.in_proj(hidden_states).transpose(1, 2).chunk(3, dim=1)
        y = conv1d(b * x, self.conv.weight, self.conv.bias, padding=self.conv_kernel_size // 2, groups=b.shape[1])
        return self.out_proj((c * y).transpose(1, 2))


class Lfm2EncoderModel(Lfm2Model):
    config_class = Lfm2EncoderConfig

    def __init__(self, config):
        super().__init__(config)
        for layer in self.layers:
            if hasattr(layer, "conv"):
                layer.conv.__class__ = CentredConv

    def forward(self, input_ids, attention_mask=None, **arguments):
        mask = torch.ones_like(input_ids) if attention_mask is None else attention_mask
        seen = torch.zeros(len(input_ids), 1, *[input_ids.shape[1]] * 2)
        seen = seen.masked_fill(mask[:, None, None, :] == 0, torch.finfo(seen.dtype).min)
        return super().forward(input_ids, attention_mask={"full_attention": seen, "conv": mask}, use_cache=False, **arguments)


AutoConfig.register("lfm2_encoder", Lfm2EncoderConfig)
AutoModel.register(Lfm2EncoderConfig, Lfm2EncoderModel)
