// Shows the page of a server (`ptynb dashboard`), whose messages come through a WebSocket.

import { withBuffers } from "./elements.js";
import { show } from "./show.jsx";

/** @import { Channel, KernelMessage, Receive, Tree } from "./types" */

const AGAIN_MS = 500;
/** The server sends a frame each second, if only an empty one: a process that hangs does not close its connections. */
const SILENCE_MS = 5000;

/** Shows the page in a node; `lost` is shown while there is no connection.
 * @type {(el: HTMLElement, lost: HTMLElement) => void} */
export function connect(el, lost) {
  /** @type {Receive[]} */
  const listeners = [];
  /** @type {WebSocket} */
  let socket;
  /** @type {string | undefined} */
  let session;
  /** @type {ReturnType<typeof setTimeout>} */
  let silence;

  /** @type {(tree: Tree) => Channel} */
  const channelOf = (tree) => ({
    get: () => tree,
    on: (_event, act) => listeners.push(act),
    send(message, _callbacks, buffers = []) {
      if (socket.readyState !== WebSocket.OPEN) return;
      socket.send(JSON.stringify({ message, buffers: buffers.length }));
      buffers.forEach((buffer) => socket.send(buffer));
    },
  });

  /** @type {(message: KernelMessage, buffers: DataView[]) => void} */
  const receive = (message, buffers) => {
    if (session === undefined) {
      if (!("tree" in message)) return;
      session = message.session;
      show({ channel: channelOf(withBuffers(message.tree, buffers)), model: null, el });
    } else if (message.session && message.session !== session) {
      location.reload(); // of another server
    } else {
      for (const act of listeners) act(message, buffers);
    }
  };

  const hear = () => {
    lost.hidden = true;
    clearTimeout(silence);
    silence = setTimeout(() => (lost.hidden = false), SILENCE_MS);
  };

  const open = () => {
    // beside the page, which may be below a prefix of JupyterHub or Open OnDemand
    socket = new WebSocket(new URL("messages", location.href).href.replace(/^http/, "ws"));
    socket.binaryType = "arraybuffer";
    /** @type {{ message: KernelMessage, buffers: number }} */
    let header;
    /** @type {DataView[]} */
    let buffers = [];
    socket.addEventListener("open", hear);
    socket.addEventListener("message", ({ data }) => {
      hear();
      if (data === "") return;
      if (typeof data === "string") [header, buffers] = [JSON.parse(data), []];
      else buffers.push(new DataView(data));
      if (buffers.length === header.buffers) receive(header.message, buffers);
    });
    socket.addEventListener("close", () => {
      lost.hidden = false;
      setTimeout(open, AGAIN_MS);
    });
  };
  open();
}
