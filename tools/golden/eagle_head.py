"""The head of an EAGLE-3 checkpoint beside a model: one layer that reads outputs of three of the model's.

The formula is that of the EAGLE-3 report (arXiv 2503.01840), as vLLM's llama_eagle3.py and SGLang's
llama_eagle3.py compute it for these checkpoints:

    g[j] = fc(outputs of three layers for token j)
    attention reads input_layernorm(embedding of token j) | hidden_norm(g[j - 1]), with position j - 1
    x = g[j - 1] + attention, then y = x + mlp(post_attention_layernorm(x))
    logits[j] = lm_head(norm(y)): rows of a smaller vocabulary, of ids row + d2t[row]

The next draft token has y in place of g."""
import json

import torch

HEADS, KV_HEADS, HEAD, MLP, ROWS, EPS, THETA = 4, 2, 6, 20, 40, 1e-5, 20000.0


class Head:
    def __init__(self, model, dtype, draws):
        generator = torch.Generator().manual_seed(3000 + draws.seed)
        config = model.config
        hidden, vocab = config.hidden_size, config.vocab_size
        self.model, self.hidden, self.layers = model, hidden, [0, 1, config.num_hidden_layers - 2]

        def matrix(rows, columns, gain=1.4):
            return draws.like([rows, columns], dtype, gain / columns ** 0.5)

        def norm():
            return draws.like([hidden], dtype, 0.2, 1.0)

        at = "midlayer."
        self.tensors = {
            "fc.weight": matrix(hidden, 3 * hidden), "norm.weight": norm(), "lm_head.weight": matrix(ROWS, hidden, 2),
            at + "input_layernorm.weight": norm(), at + "hidden_norm.weight": norm(),
            at + "post_attention_layernorm.weight": norm(),
            at + "self_attn.q_proj.weight": matrix(HEADS * HEAD, 2 * hidden),
            at + "self_attn.k_proj.weight": matrix(KV_HEADS * HEAD, 2 * hidden),
            at + "self_attn.v_proj.weight": matrix(KV_HEADS * HEAD, 2 * hidden),
            at + "self_attn.o_proj.weight": matrix(hidden, HEADS * HEAD),
            at + "mlp.gate_proj.weight": matrix(MLP, hidden), at + "mlp.up_proj.weight": matrix(MLP, hidden),
            at + "mlp.down_proj.weight": matrix(hidden, MLP),
        }
        ids = torch.randperm(vocab, generator=generator)[:ROWS].sort().values
        self.tensors["d2t"] = ids - torch.arange(ROWS)
        self.tensors["t2d"] = torch.zeros(vocab, dtype=torch.bool).index_fill(0, ids, True)

    def of(self, name):
        return self.tensors.get(name + ".weight", self.tensors.get("midlayer." + name + ".weight")).float()

    def norm(self, name, x):
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + EPS) * self.of(name)

    def rotate(self, x, position):
        """x: [tokens, heads, HEAD]."""
        frequency = THETA ** (-torch.arange(0, HEAD, 2).float() / HEAD)
        angles = position[:, None, None].float() * frequency
        first, second = x.chunk(2, -1)
        return torch.cat([first * angles.cos() - second * angles.sin(), second * angles.cos() + first * angles.sin()], -1)

    def keys(self, embedding, hidden, position):
        pair = torch.cat([self.norm("input_layernorm", embedding), self.norm("hidden_norm", hidden)], -1)
        count = len(pair)
        q = (pair @ self.of("self_attn.q_proj").T).view(count, HEADS, HEAD)
        k = (pair @ self.of("self_attn.k_proj").T).view(count, KV_HEADS, HEAD)
        v = (pair @ self.of("self_attn.v_proj").T).view(count, KV_HEADS, HEAD)
        return self.rotate(q, position), self.rotate(k, position), v

    def finish(self, hidden, q, k, v):
        """One token: its query [HEADS, HEAD], all keys and values that it sees."""
        k, v = (x.repeat_interleave(HEADS // KV_HEADS, 1) for x in (k, v))
        weights = torch.einsum("hd,thd->ht", q, k).div(HEAD ** 0.5).softmax(-1)
        x = hidden + torch.einsum("ht,thd->hd", weights, v).flatten() @ self.of("self_attn.o_proj").T
        n = self.norm("post_attention_layernorm", x)
        gate, up = n @ self.of("mlp.gate_proj").T, n @ self.of("mlp.up_proj").T
        y = x + (torch.nn.functional.silu(gate) * up) @ self.of("mlp.down_proj").T
        return y, (self.norm("norm", y) @ self.of("lm_head").T).double()

    def best(self, logits):
        top = logits.topk(2)
        row = int(top.indices[0])
        return row + int(self.tensors["d2t"][row]), float(top.values[0]), float(top.values[0] - top.values[1])

    def part(self, ids):
        """Best token and logit for each token but the first, and the logit of the draft token after it."""
        base, count = self.model.model, len(ids) - 1
        embedding = base.get_input_embeddings().weight.float()
        found = {"mtp_argmax": [], "mtp_max_logit": [], "mtp_second_logit": []}
        margin = float("inf")
        with torch.no_grad():
            outputs = base(input_ids=torch.tensor([ids]), use_cache=False, output_hidden_states=True).hidden_states
            fused = torch.cat([outputs[layer + 1][0] for layer in self.layers], -1) @ self.of("fc").T
            q, k, v = self.keys(embedding[ids[1:]], fused[:-1], torch.arange(count))
            for j in range(count):
                y, logits = self.finish(fused[j], q[j], k[:j + 1], v[:j + 1])
                token, logit, apart = self.best(logits)
                margin = min(margin, apart)
                q2, k2, v2 = self.keys(embedding[token][None], y[None], torch.tensor([j + 1]))
                _, second = self.finish(y, q2[0], torch.cat([k[:j + 1], k2]), torch.cat([v[:j + 1], v2]))
                found["mtp_argmax"].append(token)
                found["mtp_max_logit"].append(round(logit, 6))
                found["mtp_second_logit"].append(round(float(second.max()), 6))
        return found, margin

    def add(self, _):
        pass

    def configure(self, _):
        pass

    def restore(self):
        pass

    def save(self, folder):
        from safetensors.torch import save_file
        folder.mkdir()
        save_file(self.tensors, folder / "model.safetensors", metadata={"format": "pt"})
        config = {"architectures": ["LlamaForCausalLMEagle3"], "model_type": "llama", "hidden_size": self.hidden,
                  "num_hidden_layers": 1, "num_attention_heads": HEADS, "num_key_value_heads": KV_HEADS,
                  "head_dim": HEAD, "intermediate_size": MLP, "hidden_act": "silu", "rms_norm_eps": EPS,
                  "rope_theta": THETA, "vocab_size": self.model.config.vocab_size, "draft_vocab_size": ROWS,
                  "max_position_embeddings": 256, "tie_word_embeddings": False,
                  "eagle_config": {"eagle_aux_hidden_state_layer_ids": self.layers, "use_aux_hidden_state": True}}
        (folder / "config.json").write_text(json.dumps(config, indent=1) + "\n")
