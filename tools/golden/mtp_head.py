"""The MTP head of DeepSeek's form, which transformers leaves out of its models: one layer more.

The formula is that of DeepSeek-V3's report (arXiv 2412.19437, section 2.2), as vLLM's deepseek_mtp.py and
glm4_moe_mtp.py compute it for these checkpoints:

    x[j] = eh_proj(enorm(embedding of token j) | hnorm(hidden state of token j - 1, after the model's norm))
    logits[j] = lm_head(shared_head.norm(layer(x)[j])), with position j - 1, and x of tokens 1 to j

vLLM clears the embedding at position 0; the report does not, and neither do we."""

import torch


class Head:
    """The last layer of `model` becomes the head's."""

    def __init__(self, model, dtype, seed):
        generator = torch.Generator().manual_seed(2000 + seed)
        hidden = model.config.hidden_size
        self.model, self.layers = model, model.config.num_hidden_layers - 1
        self.tensors = {name: (1 + 0.2 * torch.randn(hidden, generator=generator)).to(dtype)
                        for name in ("enorm", "hnorm", "shared_head.norm")}
        self.tensors["eh_proj"] = (1.2 * torch.randn(hidden, 2 * hidden, generator=generator) / hidden ** 0.5).to(dtype)
        model.config.num_hidden_layers = self.layers

    def norm(self, name, x):
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.model.config.rms_norm_eps) * \
            self.tensors[name].float()

    def part(self, ids):
        """Best token and logit of the head for each token but the first."""
        base, count = self.model.model, len(ids) - 1
        tokens = torch.tensor([ids])
        with torch.no_grad():
            hidden = base(input_ids=tokens, use_cache=False).last_hidden_state
            pair = torch.cat([self.norm("enorm", base.embed_tokens(tokens)[:, 1:]), self.norm("hnorm", hidden[:, :-1])], -1)
            x = pair @ self.tensors["eh_proj"].float().T
            position = torch.arange(count)[None]
            mask = torch.full((count, count), float("-inf")).triu(1)[None, None]
            y = base.layers[self.layers](x, attention_mask=mask, position_ids=position,
                                         position_embeddings=base.rotary_emb(x, position))
            y = y[0] if isinstance(y, tuple) else y
            logits = self.model.lm_head(self.norm("shared_head.norm", y))[0].double()
        best = logits.topk(2, dim=-1)
        margin = float((best.values[:, 0] - best.values[:, 1]).min())
        return {"mtp_argmax": best.indices[:, 0].tolist(),
                "mtp_max_logit": [round(float(v), 6) for v in best.values[:, 0]]}, margin

    def add(self, tensors):
        """Its tensors beside the layer, and copies of the model's that published files have."""
        at = f"model.layers.{self.layers}."
        tensors |= {f"{at}{name}.weight": tensor for name, tensor in self.tensors.items()}

    def configure(self, config):
        config["num_hidden_layers"] = self.layers
        config["num_nextn_predict_layers"] = 1
        for key in ("layer_types", "mlp_layer_types"):
            if config.get(key):
                config[key] = config[key][:self.layers]
