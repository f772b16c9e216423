// The websocket. It comes again by itself; whoever uses it is told when it is there and when not.

import { address, download } from "./dom.js";

const FIRST_MILLISECONDS = 250;
const LONGEST_MILLISECONDS = 8000;

const KEPT = "interpreter-bot-key";
const NONE = "none";

// Cookies know no ports, so ours is sent to whatever else is served on this host. What is kept here
// is seen by this page alone; it comes once, behind the # of the address. Any page may lead here
// with a made-up one: it is tried after the one that is kept, and kept once it was of use.
function knownKeys() {
  const given = /^#key=([0-9a-f]{64})$/.exec(location.hash)?.[1];
  if (given) history.replaceState(null, "", "/");
  return [...new Set([localStorage.getItem(KEPT), given])].filter(Boolean);
}

const untried = knownKeys();

/** The key that requests of this page have to show. */
export let pageKey;

function tryNextKey() {
  pageKey = untried.shift() ?? NONE;
  if (pageKey === NONE) location.replace("/?locked");
}

tryNextKey();

export class Connection {
  /** @param {{opened(): void, closed(): void, heard(message: object): void}} user */
  constructor(user) {
    this.user = user;
    this.pause = FIRST_MILLISECONDS;
    this.socket = null;
    addEventListener("online", () => this.hurry());
    document.addEventListener("visibilitychange", () => document.hidden || this.hurry());
    this.open();
  }

  get isOpen() {
    return this.socket !== null && this.socket.readyState === WebSocket.OPEN;
  }

  open() {
    clearTimeout(this.timer);
    const scheme = location.protocol === "https:" ? "wss:" : "ws:";
    const key = pageKey;
    const socket = new WebSocket(`${scheme}//${location.host}/live`, ["interpreter-bot", key]);
    this.socket = socket;
    let wasOpen = false;
    socket.onopen = () => {
      wasOpen = true;
      localStorage.setItem(KEPT, key);
      // After a connection that ends at once, the next one waits longer and longer.
      this.lasting = setTimeout(() => (this.pause = FIRST_MILLISECONDS), LONGEST_MILLISECONDS);
      this.user.opened();
    };
    socket.onmessage = (event) => {
      for (const message of JSON.parse(event.data)) this.user.heard(message);
    };
    socket.onclose = () => {
      if (this.socket !== socket) return;
      this.user.closed();
      clearTimeout(this.lasting);
      if (!wasOpen) this.checkKey(key);
      this.timer = setTimeout(() => this.open(), this.pause * (0.7 + 0.6 * Math.random()));
      this.pause = Math.min(this.pause * 2, LONGEST_MILLISECONDS);
    };
  }

  /** Scripts are not told why a handshake failed, so ask. A key that is refused is given up. */
  async checkKey(key) {
    const headers = { "Interpreter-Bot-Key": key };
    const answer = await fetch("/live", { method: "POST", headers }).catch(() => null);
    if (key !== pageKey || key === NONE || ![401, 403].includes(answer?.status)) return;
    tryNextKey();
    this.hurry();
  }

  /** Say something; tells whether it went out. */
  say(message) {
    if (!this.isOpen) return false;
    this.socket.send(JSON.stringify(message));
    return true;
  }

  hurry() {
    if (this.socket.readyState !== WebSocket.CLOSED) return;
    this.pause = FIRST_MILLISECONDS;
    this.open();
  }
}

async function posted(path, query) {
  const response = await fetch(address(path, query), { method: "POST", headers: { "Interpreter-Bot-Key": pageKey } });
  if (!response.ok) throw new Error(await response.text());
  return response;
}

/** Ask the bot to do something to what an address names; gives its answer. */
export async function post(path, query) {
  return (await posted(path, query)).json();
}

/** Let the browser save what the bot makes for it, under a name. */
export async function postForDownload(path, query, name) {
  const href = URL.createObjectURL(await (await posted(path, query)).blob());
  download(href, name);
  setTimeout(() => URL.revokeObjectURL(href), 60_000);
}
