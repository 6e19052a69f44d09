"""MTP heads, which transformers leaves out of its models: one layer more.

DeepSeek's form is that of DeepSeek-V3's report (arXiv 2412.19437, section 2.2), as vLLM's deepseek_mtp.py and
glm4_moe_mtp.py compute it for these checkpoints:

    x[j] = eh_proj(enorm(embedding of token j) | hnorm(hidden state of token j - 1, after the model's norm))
    logits[j] = lm_head(shared_head.norm(layer(x)[j])), with position j - 1, and x of tokens 1 to j

vLLM clears the embedding at position 0; the report does not, and neither do we. Nemotron 3 (vLLM's
nemotron_h_mtp.py) has two layers of one branch each, attention and experts. ERNIE 4.5 (FastDeploy's
ernie4_5_mtp.py) has a dense layer under other names, and the model's own final norm."""

import torch

# By model_type: layers of the head, where they and its other tensors are.
FORMS = {
    "nemotron_h": dict(layers=2, at="mtp.layers.{}.", embedding="mtp.layers.0.enorm", hidden="mtp.layers.0.hnorm",
                       norm="mtp.layers.1.final_layernorm", pair="mtp.layers.0.eh_proj"),
    "ernie4_5_moe": dict(layers=1, at="model.mtp_block.{}.", embedding="model.mtp_emb_norm.0",
                         hidden="model.mtp_hidden_norm.0", norm=None, pair="model.mtp_linear_proj.0"),
}


def form_of(model_type, layers):
    at = f"model.layers.{layers}."
    return FORMS.get(model_type) or dict(layers=1, at=None, embedding=at + "enorm", hidden=at + "hnorm",
                                         norm=at + "shared_head.norm", pair=at + "eh_proj")


class Head:
    """The last layers of `model` become the head's."""

    def __init__(self, model, dtype, draws):
        config, hidden = model.config, model.config.hidden_size
        self.form = form_of(config.model_type, config.num_hidden_layers - 1)
        self.model, self.layers = model, config.num_hidden_layers - self.form["layers"]
        norms = [self.form[k] for k in ("embedding", "hidden", "norm") if self.form[k]]
        self.tensors = {name: draws.like([hidden], dtype, 0.2, 1.0) for name in norms}
        self.tensors[self.form["pair"]] = draws.like([hidden, 2 * hidden], dtype, 1.2 / hidden ** 0.5)
        self.blocks = list(model.model.layers)[self.layers:]
        if config.model_type in FORMS:
            del model.model.layers[self.layers:]
        if config.model_type != "nemotron_h":
            config.num_hidden_layers = self.layers

    def norm(self, kind, x):
        if not self.form[kind]:
            return self.model.model.norm(x)
        config = self.model.config
        eps = getattr(config, "rms_norm_eps", None) or config.layer_norm_epsilon
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + eps) * self.tensors[self.form[kind]].float()

    def layer(self, x, count):
        position = torch.arange(count)[None]
        mask = torch.full((count, count), float("-inf")).triu(1)[None, None]
        base = self.model.model
        rotary = {"position_embeddings": base.rotary_emb(x, position)} if hasattr(base, "rotary_emb") else {}
        for block in self.blocks:
            x = block(x, attention_mask=mask, position_ids=position, **rotary)
            x = x[0] if isinstance(x, tuple) else x
        return x

    def part(self, ids):
        """Best token and logit of the head for each token but the first."""
        base, count = self.model.model, len(ids) - 1
        tokens = torch.tensor([ids])
        embedding = base.get_input_embeddings()
        with torch.no_grad():
            hidden = base(input_ids=tokens, use_cache=False).last_hidden_state
            pair = torch.cat([self.norm("embedding", embedding(tokens)[:, 1:]), self.norm("hidden", hidden[:, :-1])], -1)
            y = self.layer(pair @ self.tensors[self.form["pair"]].float().T, count)
            logits = self.model.lm_head(self.norm("norm", y))[0].double()
        best = logits.topk(2, dim=-1)
        margin = float((best.values[:, 0] - best.values[:, 1]).min())
        return {"mtp_argmax": best.indices[:, 0].tolist(),
                "mtp_max_logit": [round(float(v), 6) for v in best.values[:, 0]]}, margin

    def add(self, tensors):
        """Its tensors beside the layers, under the names of published files."""
        tensors |= {f"{name}.weight": tensor for name, tensor in self.tensors.items()}
        for i in range(self.form["layers"] if self.form["at"] else 0):
            old = next(k for k in tensors if f".layers.{self.layers + i}." in k).split(f"{self.layers + i}.")[0]
            for name in [k for k in tensors if k.startswith(f"{old}{self.layers + i}.")]:
                new = self.form["at"].format(i) + name[len(f"{old}{self.layers + i}."):]
                tensors[new] = tensors.pop(name)

    def restore(self):
        """Puts the layers back, to be saved with the model."""
        layers = self.model.model.layers
        layers.extend(self.blocks[len(layers) - self.layers:])

    def configure(self, config):
        config["num_hidden_layers"] = self.layers
        config["num_nextn_predict_layers"] = 1
        for key in ("layer_types", "layers_block_type", "mlp_layer_types"):
            if config.get(key):
                config[key] = config[key][:self.layers]
        if self.form["layers"] == 2:
            config["mtp_hybrid_override_pattern"] = "*E"
            config.pop("mtp_layers_block_type", None)
