// The websocket. It reconnects by itself, and reports when it opens and closes.

import { address, download } from "./dom.js";

const MIN_PAUSE_MILLISECONDS = 250;
const MAX_PAUSE_MILLISECONDS = 8000;

const STORED_KEY = "interpreter-bot-key";
const NO_KEY = "none";

// Cookies ignore ports, so other servers on this host receive ours. The key comes once, after the #
// of the address, and is stored where only this page can read it. Any page may link here with a
// made-up key, so a key of the address is tried after the stored one, and stored once it worked.
function candidateKeys() {
  const keyFromAddress = /^#key=([0-9a-f]{64})$/.exec(location.hash)?.[1];
  if (keyFromAddress) history.replaceState(null, "", "/");
  return [...new Set([localStorage.getItem(STORED_KEY), keyFromAddress])].filter(Boolean);
}

const untriedKeys = candidateKeys();

/** The key that requests of this page carry. */
export let pageKey;

function tryNextKey() {
  pageKey = untriedKeys.shift() ?? NO_KEY;
  if (pageKey === NO_KEY) location.replace("/?locked");
}

tryNextKey();

export class Connection {
  constructor(callbacks) {
    this.callbacks = callbacks;
    this.pauseMilliseconds = MIN_PAUSE_MILLISECONDS;
    this.socket = null;
    addEventListener("online", () => this.reconnectNow());
    document.addEventListener("visibilitychange", () => document.hidden || this.reconnectNow());
    this.open();
  }

  get isOpen() {
    return this.socket !== null && this.socket.readyState === WebSocket.OPEN;
  }

  open() {
    clearTimeout(this.reconnectTimer);
    const scheme = location.protocol === "https:" ? "wss:" : "ws:";
    const key = pageKey;
    const socket = new WebSocket(`${scheme}//${location.host}/live`, ["interpreter-bot", key]);
    this.socket = socket;
    let wasOpen = false;
    socket.onopen = () => {
      wasOpen = true;
      localStorage.setItem(STORED_KEY, key);
      // After a connection that ends at once, the next one waits longer and longer.
      this.stableTimer = setTimeout(() => (this.pauseMilliseconds = MIN_PAUSE_MILLISECONDS), MAX_PAUSE_MILLISECONDS);
      this.callbacks.onOpen();
    };
    socket.onmessage = (event) => {
      for (const message of JSON.parse(event.data)) this.callbacks.onMessage(message);
    };
    socket.onclose = () => {
      if (this.socket !== socket) return;
      this.callbacks.onClose();
      clearTimeout(this.stableTimer);
      if (!wasOpen) this.checkKey(key);
      this.reconnectTimer = setTimeout(() => this.open(), this.pauseMilliseconds * (0.7 + 0.6 * Math.random()));
      this.pauseMilliseconds = Math.min(this.pauseMilliseconds * 2, MAX_PAUSE_MILLISECONDS);
    };
  }

  /** Scripts are not told why a handshake failed, so ask the server. A refused key is dropped. */
  async checkKey(key) {
    const headers = { "Interpreter-Bot-Key": key };
    const response = await fetch("/live", { method: "POST", headers }).catch(() => null);
    if (key !== pageKey || key === NO_KEY || ![401, 403].includes(response?.status)) return;
    tryNextKey();
    this.reconnectNow();
  }

  /** Send a message; return whether it was sent. */
  sendAction(message) {
    if (!this.isOpen) return false;
    this.socket.send(JSON.stringify(message));
    return true;
  }

  reconnectNow() {
    if (this.socket.readyState !== WebSocket.CLOSED) return;
    this.pauseMilliseconds = MIN_PAUSE_MILLISECONDS;
    this.open();
  }
}

async function sendPost(path, query) {
  const response = await fetch(address(path, query), { method: "POST", headers: { "Interpreter-Bot-Key": pageKey } });
  if (!response.ok) throw new Error(await response.text());
  return response;
}

/** Send a request to the bot; return its answer. */
export async function post(path, query) {
  return (await sendPost(path, query)).json();
}

/** Let the browser save the bot's response under a name. */
export async function postForDownload(path, query, name) {
  const href = URL.createObjectURL(await (await sendPost(path, query)).blob());
  download(href, name);
  setTimeout(() => URL.revokeObjectURL(href), 60_000);
}
