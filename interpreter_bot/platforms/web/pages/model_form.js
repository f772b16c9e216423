// Choice of a model: a key, or a server of models, entered by whoever runs the bot.

import { pageKey } from "./connection.js";
import { el, loadStyles } from "./dom.js";
import { modelWords } from "./later_words.js";

await loadStyles("/forms.css");

export function modelForm() {
  const key = el("input", { type: "password", name: "key", autocomplete: "off", spellcheck: false, placeholder: "sk-…", "aria-label": modelWords.keyOf });
  const address = el("input", { type: "text", inputmode: "url", name: "address", autocomplete: "off", spellcheck: false, placeholder: "http://127.0.0.1:11434/v1", "aria-label": modelWords.addressOf });
  const button = el("button", { type: "submit", class: "small strong" }, modelWords.tryIt);
  const statusLine = el("p", { class: "muted", role: "status" });
  const serverList = el("p", { class: "muted" });

  async function choose(event) {
    event.preventDefault();
    button.disabled = true;
    statusLine.textContent = modelWords.trying;
    try {
      const headers = { "Interpreter-Bot-Key": pageKey, "Content-Type": "application/json" };
      const response = await fetch("/model", { method: "POST", headers, body: JSON.stringify({ key: key.value, address: address.value }) });
      if (!response.ok) throw new Error(await response.text());
      location.reload();
    } catch (error) {
      statusLine.textContent = error instanceof TypeError ? modelWords.unanswered : error.message;
      button.disabled = false;
    }
  }

  async function findServers() {
    const response = await fetch("/model-servers", { method: "POST", headers: { "Interpreter-Bot-Key": pageKey } }).catch(() => null);
    if (!response?.ok) return;
    const servers = await response.json();
    if (servers.length)
      serverList.append(modelWords.foundHere, ...servers.map((server) =>
        el("button", { type: "button", class: "small", title: server.models.join(", "), onclick: () => { address.value = server.address; } }, server.name)));
  }

  findServers();
  return el("form", { class: "model-form", onsubmit: choose },
    el("h3", {}, modelWords.choose),
    el("label", {}, el("span", {}, modelWords.key), key),
    el("label", {}, el("span", {}, modelWords.address), address),
    serverList, el("div", {}, button), statusLine,
    el("p", { class: "muted" }, modelWords.whatHappens));
}
