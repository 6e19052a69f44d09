// connect.js - the lines to paste for each client, with this server's address, the first model and its context.

import { el, text, toast } from "./dom.js";

const CLIENTS = [
  ["Claude Code", (at, key, model, context) => `ANTHROPIC_BASE_URL=${at} \\\nANTHROPIC_AUTH_TOKEN=${key} \\\n${context ? `CLAUDE_CODE_MAX_CONTEXT_TOKENS=${context} \\\n` : ""}claude --model ${model}`],
  ["Codex", (at, key, model, context) => `# ~/.codex/config.toml; and in the shell: export LOCAL_KEY=${key}\nmodel = "${model}"\n${context ? `model_context_window = ${context}\n` : ""}model_provider = "plateau"\n\n[model_providers.plateau]\nname = "Plateau"\nbase_url = "${at}/v1"\nenv_key = "LOCAL_KEY"\nwire_api = "responses"`],
  ["OpenAI (Python)", (at, key, model) => `import openai\nclient = openai.OpenAI(base_url="${at}/v1", api_key="${key}")\nreply = client.chat.completions.create(\n    model="${model}",\n    messages=[{"role": "user", "content": "What does ls do?"}])\nprint(reply.choices[0].message.content)`],
  ["Anthropic (Python)", (at, key, model) => `import anthropic\nclient = anthropic.Anthropic(base_url="${at}", api_key="${key}")\nreply = client.messages.create(\n    model="${model}", max_tokens=200,\n    messages=[{"role": "user", "content": "What does ls do?"}])\nprint(reply.content[0].text)`],
  ["Terminal", (at, key, model) => `${key === "none" ? "" : `PLATEAU_API_KEY=${key} `}plateau chat --url ${at} ${model}`],
  ["Open WebUI", (at, key) => `OPENAI_API_BASE_URL=${at}/v1\nOPENAI_API_KEY=${key}`],
  ["curl", (at, key, model) => `curl ${at}/v1/chat/completions \\\n  -H 'authorization: Bearer ${key}' -H 'content-type: application/json' \\\n  -d '{"model": "${model}", "messages": [{"role": "user", "content": "What does ls do?"}]}'`],
];

// Names go into lines that people paste into shells and programs.
function plain(name) {
  return /^[\w./@:+-]+$/.test(name) ? name : "MODEL";
}

export function openConnect() {
  let chosen = 0, model = "MODEL", context = 0, key = "none";
  const code = el("code", {}), block = el("pre", { class: "block", tabindex: "0", "aria-label": "Lines to paste" }, code);
  const copy = el("button", { type: "button", class: "btn small" }, "Copy");
  const buttons = CLIENTS.map(([name], i) => el("button", { type: "button", "aria-pressed": i === 0, onclick: () => {
    chosen = i;
    buttons.forEach((b, each) => b.setAttribute("aria-pressed", String(each === i)));
    draw();
  } }, name));
  const node = el("section", { class: "card", id: "connect" }, el("h2", {}, "Connect", el("span", { class: "tools" }, copy)), el("div", { class: "segments wrap", role: "group", "aria-label": "Client" }, buttons), block);

  function draw() {
    text(code, CLIENTS[chosen][1](location.origin, key, model, context));
  }
  copy.addEventListener("click", async () => {
    try {
      await navigator.clipboard.writeText(code.textContent);
      toast("Copied.");
    } catch {
      getSelection().selectAllChildren(code);
      toast("Selected: copy it with the keyboard.");
    }
  });

  return {
    node,
    show(now) {
      const ready = now.models.find((m) => m.state === "ready") || now.models[0];
      model = ready ? plain(ready.id) : "MODEL";
      context = ready?.max_model_len;
      key = now.key_needed ? "YOUR_API_KEY" : "none";
      draw();
    },
  };
}
