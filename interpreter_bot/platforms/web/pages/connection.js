// The websocket. It comes again by itself; whoever uses it is told when it is there and when not.

const FIRST_MILLISECONDS = 250;
const LONGEST_MILLISECONDS = 8000;

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
    const socket = new WebSocket(`${scheme}//${location.host}/live`);
    this.socket = socket;
    socket.onopen = () => {
      this.pause = FIRST_MILLISECONDS;
      this.user.opened();
    };
    socket.onmessage = (event) => {
      for (const message of JSON.parse(event.data)) this.user.heard(message);
    };
    socket.onclose = () => {
      if (this.socket !== socket) return;
      this.user.closed();
      this.timer = setTimeout(() => this.open(), this.pause * (0.7 + 0.6 * Math.random()));
      this.pause = Math.min(this.pause * 2, LONGEST_MILLISECONDS);
    };
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
