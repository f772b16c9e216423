// Choice of a model: a key, or a server of models, entered by whoever runs the bot.

import { pageKey } from "./connection.js";
import { el } from "./dom.js";

export function modelForm(hasDemo) {
  const key = el("input", { type: "password", name: "key", autocomplete: "off", spellcheck: false, placeholder: "sk-…", "aria-label": "API key of OpenAI, Anthropic or another server" });
  const address = el("input", { type: "text", inputmode: "url", name: "address", autocomplete: "off", spellcheck: false, placeholder: "http://127.0.0.1:11434/v1", "aria-label": "Address of a server" });
  const button = el("button", { type: "submit", class: "small strong" }, "Try and use it");
  const state = el("p", { class: "muted", role: "status" });
  const found = el("p", { class: "muted" });

  async function choose(event) {
    event.preventDefault();
    button.disabled = true;
    state.textContent = "Asking the model…";
    try {
      const headers = { "Interpreter-Bot-Key": pageKey, "Content-Type": "application/json" };
      const response = await fetch("/model", { method: "POST", headers, body: JSON.stringify({ key: key.value, address: address.value }) });
      if (!response.ok) throw new Error(await response.text());
      location.reload();
    } catch (error) {
      state.textContent = error instanceof TypeError ? "The bot does not answer. Try again in a moment." : error.message;
      button.disabled = false;
    }
  }

  async function look() {
    const response = await fetch("/model-servers", { method: "POST", headers: { "Interpreter-Bot-Key": pageKey } }).catch(() => null);
    if (!response?.ok) return;
    const servers = await response.json();
    if (servers.length)
      found.append("Found on this machine: ", ...servers.map((one) =>
        el("button", { type: "button", class: "small", title: one.models.join(", "), onclick: () => { address.value = one.address; } }, one.name)));
  }

  look();
  return el("form", { class: "model-form", onsubmit: choose },
    el("h3", {}, hasDemo ? "Use a better model" : "Choose a model"),
    el("label", {}, el("span", {}, "Key of OpenAI or Anthropic"), key),
    el("label", {}, el("span", {}, "Address, for a server of your own"), address),
    found, el("div", {}, button), state,
    el("p", { class: "muted" }, "The model is asked for one word first. The key is stored encrypted where the bot runs, and is never shown."),
    hasDemo ? el("p", { class: "muted" }, "Or just ask: the demo model is downloaded with your first question.") : null);
}
